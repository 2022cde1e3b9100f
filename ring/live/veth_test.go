package live

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"

	"xwarp/bench/topo"
	"xwarp/bpf"
	"xwarp/bpf/needs"
	"xwarp/ring"
)

// The program and this package use the same slot layout.
var _ = [1]struct{}{}[int(unsafe.Sizeof(Slot{}))-bpf.LiveSlotSize]

var addrA, addrB = netip.AddrFrom4([4]byte{10, 0, 0, 1}), netip.AddrFrom4([4]byte{10, 0, 0, 2})

// open opens an AF_XDP socket of a host, steers the test's flow to it, and adds live frames.
func open(t *testing.T, h *topo.Host) (p *Port) {
	t.Helper()
	on := new(atomic.Bool)
	on.Store(true)
	if err := h.Do(func() error {
		nic, err := netlink.LinkByName(h.Link.Name)
		if err != nil {
			return err
		}
		link := nic.Attrs().Index
		s, err := ring.Open(ring.Config{Ifindex: link})
		if err != nil {
			return err
		}
		s.Refill()
		steer, err := bpf.Load(bpf.Options{LiveWorkers: 2})
		if err != nil {
			return err
		}
		t.Cleanup(func() { s.Close(); steer.Close() })
		if err := steer.AddFlow(netip.AddrPortFrom(addrB, 9), netip.AddrPortFrom(addrA,
			7)); err != nil {
			return fmt.Errorf("flow: %w", err)
		}
		if _, err := steer.Attach(link, bpf.ModeAuto); err != nil {
			return err
		}
		if err := steer.SetSocket(0, s.Fd()); err != nil {
			return err
		}
		m, err := steer.Live(link, 1)
		if err != nil {
			return err
		}
		p = Wrap(s, NewProgram(m.Program, m.Worker), Memory{
			Slots: unsafe.Slice((*Slot)(unsafe.Pointer(&m.Slots[0])),
				len(m.Slots)/bpf.LiveSlotSize),
			First: m.First, State: (*State)(unsafe.Pointer(&m.State[0])),
		}, on)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return p
}

// frame is a TCP segment of n bytes with Ethernet header, from A to B.
func frame(r *rand.Rand, b []byte, n int) {
	for i := range n {
		b[i] = byte(r.Uint32())
	}
	copy(b, []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0})
	h := b[14:]
	h[0], h[1], h[6], h[7], h[8], h[9] = 0x45, 0, 0x40, 0, 64, 6
	binary.BigEndian.PutUint16(h[2:], uint16(n-14))
	a, z := addrA.As4(), addrB.As4()
	copy(h[12:], a[:])
	copy(h[16:], z[:])
	binary.BigEndian.PutUint16(h[20:], 7)
	binary.BigEndian.PutUint16(h[22:], 9)
	h[32] = 0x50
}

// TestVeth: frames of every length arrive unchanged and in order, by runs and by the Port below.
func TestVeth(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	tn, err := topo.New(topo.Options{MTU: Room - 14, OffloadsA: topo.NoOffloads,
		OffloadsB: topo.NoOffloads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tn.Close() })
	to, from := open(t, tn.B), open(t, tn.A)
	batch := make([]ring.Packet, 64)
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 2))
		var got, want [][]byte
		for range 1 + r.IntN(200) {
			n := 54 + r.IntN(Room-53)
			b, ok := from.AllocTx()
			if !ok {
				t.Fatal("no slot")
			}
			frame(r, b.Data, n)
			want = append(want, append([]byte(nil), b.Data[:n]...))
			from.Send(b, n)
		}
		if st := from.Flush(); st != ring.StateOK {
			t.Fatalf("flush: %v", st)
		}
		from.Reap()
		for limit := time.Now().Add(20 * time.Second); len(got) < len(want) &&
			time.Now().Before(limit); {
			for i := range to.Recv(batch) {
				got = append(got, batch[i].AppendTo(nil))
				to.Release(&batch[i])
			}
			to.Refill()
		}
		if err := equal(got, want); err != nil {
			t.Fatalf("seed %d: %v; %+v", seed, err, from.Live())
		}
	}
	if s := from.Live(); s.Runs == 0 || s.Single == 0 || s.Failed > 0 {
		t.Errorf("%+v", s)
	} else {
		t.Logf("%+v", s)
	}
}
