package gso

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"xwarp/bench/topo"
	"xwarp/bpf"
	"xwarp/bpf/needs"
	"xwarp/ring"
)

// TestKernelCuts: the kernel cuts blocks into the frames that were joined, octet for octet: identification, sequence
// numbers, flags but PSH, lengths and checksums as the writer of the segments had them. So each segment begins where its writer
// had it begin, which is at an FPDU.
func TestKernelCuts(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	for _, mtu := range []int{1500, 9000} {
		net, err := topo.New(topo.Options{MTU: mtu, OffloadsA: topo.NoOffloads, OffloadsB: topo.NoOffloads})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { net.Close() })
		to := openPort(t, net.B, mtu)
		from := openPort(t, net.A, mtu)
		var p *Port
		if err := net.A.Do(func() error {
			s, err := OpenSender(index(t, net.A))
			if err == nil {
				p = Wrap(from, s)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		for _, ipv6 := range []bool{false, true} {
			for seed := range uint64(20) {
				want := flow(rand.New(rand.NewPCG(seed, 2)), ipv6, mtu)
				got := carry(t, p, to, want)
				if err := equal(withoutPSH(got), withoutPSH(want)); err != nil {
					t.Fatalf("MTU %d, IPv6 %v, seed %d: %v", mtu, ipv6, seed, err)
				}
			}
		}
		if s := p.GSOStats(); s.Blocks == 0 || s.Segments < 3*s.Blocks || s.Dropped > 0 {
			t.Errorf("%+v", s)
		}
	}
}

// flow makes a stream of segments as a sender of FPDUs does, with some that stand alone.
func flow(r *rand.Rand, ipv6 bool, mtu int) (all [][]byte) {
	header := ipHeader
	if ipv6 {
		header = ipv6Header
	}
	w := wireSegment{ipv6: ipv6, seq: r.Uint32(), port: 7, options: 12, id: uint16(r.Uint32()), headFlags: byte(r.IntN(2))}
	ece := byte(r.IntN(2)) * flagECE // with the bit beside the length, accurate ECN's counter
	full := (mtu - header - tcpMin - w.options) &^ 3
	for range 200 {
		n := full
		w.flags = flagACK | ece
		switch r.IntN(30) {
		case 0:
			n = 4 * (1 + r.IntN(full/4-1)) // ends a block
			w.flags |= flagPSH * byte(r.IntN(2))
		case 2:
			n, w.ack = 0, w.ack+1
		}
		w.payload = make([]byte, n)
		for i := range w.payload {
			w.payload[i] = byte(r.Uint32())
		}
		all = append(all, w.frame())
		w.seq += uint32(n)
		w.id++
	}
	return all
}

func index(t *testing.T, h *topo.Host) (i int) {
	nic, err := netlink.LinkByName(h.Link.Name)
	if err != nil {
		t.Fatal(err)
	}
	return nic.Attrs().Index
}

// openPort opens an AF_XDP socket of a host and steers the test's flows to it.
func openPort(t *testing.T, h *topo.Host, mtu int) (s *ring.Socket) {
	if err := h.Do(func() (err error) {
		link := index(t, h)
		if s, err = ring.Open(ring.Config{Ifindex: link, TxSlot: ring.SlotFor(mtu + ethernet)}); err != nil {
			return err
		}
		s.Refill()
		steer, err := bpf.Load(bpf.Options{})
		if err != nil {
			return err
		}
		t.Cleanup(func() { steer.Close(); s.Close() })
		for _, pair := range [][2]netip.Addr{{netip.AddrFrom4(addrB4), netip.AddrFrom4(addrA4)}, {netip.AddrFrom16(addrB6), netip.AddrFrom16(addrA6)}} {
			if err := steer.AddFlow(netip.AddrPortFrom(pair[0], 9), netip.AddrPortFrom(pair[1], 7)); err != nil {
				return fmt.Errorf("flow: %w", err)
			}
		}
		if _, err = steer.Attach(link, bpf.ModeAuto); err != nil {
			return err
		}
		return steer.SetSocket(0, s.Fd())
	}); err != nil {
		t.Fatal(err)
	}
	return s
}

// carry sends frames in rounds and returns what arrives.
func carry(t *testing.T, p *Port, to *ring.Socket, frames [][]byte) (got [][]byte) {
	batch := make([]ring.Packet, 64)
	for limit := time.Now().Add(time.Minute); len(got) < len(frames) && time.Now().Before(limit); {
		take := func() {
			n := to.Recv(batch)
			for i := range n {
				got = append(got, batch[i].AppendTo(nil))
				to.Release(&batch[i])
			}
			to.Refill()
		}
		sent := len(got)
		for _, f := range frames[sent:min(sent+50, len(frames))] {
			b, ok := p.AllocTx()
			if !ok {
				t.Fatal("no slot")
			}
			p.Send(b, copy(b.Data, f))
		}
		if st := p.Flush(); st != ring.StateOK {
			t.Fatalf("flush: %v", st)
		}
		p.Reap()
		for want := min(sent+50, len(frames)); len(got) < want && time.Now().Before(limit); {
			take()
		}
	}
	return got
}
