package ring

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"xwarp/bpf/needs"
)

// host is one end of a veth pair, in its own network namespace, with an XDP program that redirects every frame of a
// queue to the socket in xsks.
type host struct {
	ns    netns.NsHandle
	index int
	xsks  *ebpf.Map
}

// in runs f on its own thread in h's namespace. The thread ends with f.
func (h *host) in(t testing.TB, f func() error) {
	t.Helper()
	inNamespace(t, func() error {
		if err := netns.Set(h.ns); err != nil {
			return err
		}
		return f()
	})
}

func inNamespace(t testing.TB, f func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// newPair creates two hosts. Their namespaces have no name and end with the test.
func newPair(t testing.TB, mtu int) (a, b *host) {
	t.Helper()
	needs.XDP(t)
	needs.XSK(t)
	needs.NetNS(t)
	a, b = &host{}, &host{}
	for _, h := range []*host{a, b} {
		inNamespace(t, func() (err error) {
			h.ns, err = netns.New()
			return err
		})
		t.Cleanup(func() { h.ns.Close() })
	}
	a.in(t, func() error {
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: "ringt0", MTU: mtu, NumTxQueues: 2, NumRxQueues: 2},
			PeerName:  "ringt1", PeerNamespace: netlink.NsFd(b.ns), PeerMTU: uint32(mtu),
			PeerNumTxQueues: 2, PeerNumRxQueues: 2,
		})
	})
	for i, h := range []*host{a, b} {
		h.in(t, func() error {
			l, err := netlink.LinkByName([]string{"ringt0", "ringt1"}[i])
			if err != nil {
				return err
			}
			h.index = l.Attrs().Index
			return netlink.LinkSetUp(l)
		})
	}
	return a, b
}

// attach loads the program in native mode.
func (h *host) attach(t testing.TB) {
	t.Helper()
	var err error
	h.xsks, err = ebpf.NewMap(&ebpf.MapSpec{Name: "ringt_xsks", Type: ebpf.XSKMap, KeySize: 4,
		ValueSize: 4, MaxEntries: 4})
	if err != nil {
		t.Fatal(err)
	}
	const ctxQueue = 16 // offset of rx_queue_index in struct xdp_md
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "ringt_redirect", Type: ebpf.XDP, License: "Apache-2.0",
		Flags: unix.BPF_F_XDP_HAS_FRAGS,
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, ctxQueue, asm.Word),
			asm.LoadMapPtr(asm.R1, h.xsks.FD()),
			asm.Mov.Imm(asm.R3, 2), // XDP_PASS for a queue without socket
			asm.FnRedirectMap.Call(),
			asm.Return(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	h.in(t, func() error {
		l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: h.index,
			Flags: link.XDPDriverMode})
		if err == nil {
			t.Cleanup(func() { l.Close(); h.xsks.Close() })
		}
		return err
	})
}

// open creates a socket on h and puts it into the map.
func (h *host) open(t testing.TB, c Config) *Socket {
	t.Helper()
	var s *Socket
	c.Ifindex = h.index
	h.in(t, func() (err error) {
		s, err = Open(c)
		return err
	})
	t.Cleanup(func() { s.Close() })
	h.redirect(t, c.Queue, s.Fd())
	return s
}

func (h *host) redirect(t testing.TB, queue uint32, fd int) {
	t.Helper()
	if err := h.xsks.Put(queue, uint32(fd)); err != nil {
		t.Fatal(err)
	}
}

// stray is the id of frames that no exchange waits for.
const stray = 1 << 31

// ours reports whether b is a frame of newFrame that an exchange waits for, not a stray one or one that the kernel sent
// by itself, as IPv6 does.
func ours(b []byte) bool {
	return len(b) >= 18 && b[12] == 0x88 && b[13] == 0xb5 &&
		binary.BigEndian.Uint32(b[14:]) != stray
}

// exchange sends frames of all sizes from one port to the other. It expects each frame once, in order and unchanged,
// because a veth loses none while few are in flight.
func exchange(t testing.TB, from, to Port, sizes []int) {
	t.Helper()
	const window = 32
	batch := make([]Packet, 16)
	end := time.Now().Add(10 * time.Second)
	for sent, got := 0, 0; got < len(sizes); {
		for sent < len(sizes) && sent-got < window {
			transmit(t, from, newFrame(sizes[sent], uint32(sent)))
			sent++
		}
		if st := from.Flush(); st > StateNoBuffers {
			t.Fatalf("sender is %v", st)
		}
		for i := range batch[:to.Recv(batch)] {
			p := &batch[i]
			if b := p.AppendTo(nil); ours(b) {
				if !bytes.Equal(b, newFrame(sizes[got], uint32(got))) {
					t.Fatalf("frame %d of %d bytes arrived as %d bytes with id %d", got,
						sizes[got], len(b), binary.BigEndian.Uint32(b[14:]))
				}
				got++
			}
			to.Release(p)
		}
		to.Refill()
		from.Reap()
		audit(t, from, nil)
		audit(t, to, nil)
		if got < sent {
			to.Wait(time.Millisecond, -1)
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d frames after 10 s; sender %+v, receiver %+v", got, len(sizes),
				from.Stats(), to.Stats())
		}
	}
}

func sizesBetween(from, to, step int) (s []int) {
	for n := from; n < to; n += step {
		s = append(s, n)
	}
	return append(s, to)
}

func TestVethAllSizes(t *testing.T) {
	for _, c := range []struct {
		name  string
		mtu   int
		sizes []int
	}{
		{"standard", 1500, sizesBetween(60, 1514, 1)},
		{"largest MTU of small chunks", 1770, sizesBetween(1700, 1784, 1)},
		{"smallest MTU of large chunks", 1771, sizesBetween(1700, 1785, 1)},
		{"largest single buffer", 3506, sizesBetween(3400, 3520, 1)},
		{"jumbo", 9000, append(sizesBetween(60, 9014, 37), sizesBetween(3830, 3850, 1)...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := newPair(t, c.mtu)
			a.attach(t)
			b.attach(t)
			cfg := Config{RxFrames: 512, TxSlots: 128, TxSlot: SlotFor(c.mtu + ethHeader)}
			sa, sb := a.open(t, cfg), b.open(t, cfg)
			exchange(t, sa, sb, c.sizes)
			exchange(t, sb, sa, c.sizes)
			if i := sa.Info(); i.ZeroCopy || i.KickBudget < 32 {
				t.Errorf("veth copies, and the budget is at least 32: %+v", i)
			}
			room := ChunkSize * int(cfg.TxSlot)
			if c.mtu <= 1770 {
				room = 2048
			}
			if got := sa.Info().TxRoom; got != room {
				t.Errorf("a slot holds %d bytes, want %d", got, room)
			}
			st := sb.Stats()
			if st.RxOversize+st.RxBadDesc+st.KernelTxInvalid+st.KernelRxInvalid != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// One socket per queue: frames sent on queue k arrive on queue k.
func TestVethTwoQueues(t *testing.T) {
	a, b := newPair(t, 1500)
	a.attach(t)
	b.attach(t)
	for q := range uint32(2) {
		c := Config{RxFrames: 128, TxSlots: 64, Queue: q}
		sa, sb := a.open(t, c), b.open(t, c)
		exchange(t, sa, sb, sizesBetween(60, 1514, 200))
	}
}

func TestVethOversizeIsDropped(t *testing.T) {
	a, b := newPair(t, 9000)
	a.attach(t)
	b.attach(t)
	sa := a.open(t, Config{RxFrames: 128, TxSlots: 64, TxSlot: 3})
	sb := b.open(t, Config{RxFrames: 128, TxSlots: 64, TxSlot: 3, MaxFrags: 2})
	for range 40 {
		transmit(t, sa, newFrame(9014, 99))
		for sa.Flush() == StateAgain {
		}
		sa.Reap()
		var batch [4]Packet
		for i := range batch[:sb.Recv(batch[:])] {
			if batch[i].NumFrags() > 2 {
				t.Error("packet of more pieces than MaxFrags")
			}
			sb.Release(&batch[i])
		}
		sb.Refill()
		audit(t, sb, nil)
	}
	exchange(t, sa, sb, sizesBetween(60, 2*RxChunkData, 500))
	if n := sb.Stats().RxOversize; n != 40 {
		t.Errorf("%d oversize packets counted, want 40", n)
	}
}

func TestVethHeldSurvivesRefill(t *testing.T) {
	a, b := newPair(t, 1500)
	a.attach(t)
	b.attach(t)
	sa, sb := a.open(t, Config{RxFrames: 128, TxSlots: 64}),
		b.open(t, Config{RxFrames: 64, TxSlots: 64})
	var held []Packet
	want := newFrame(1000, 4711)
	transmit(t, sa, want)
	end := time.Now().Add(5 * time.Second)
	for len(held) == 0 {
		sa.Flush()
		var batch [1]Packet
		if sb.Recv(batch[:]) == 1 {
			if ours(batch[0].Frag(0)) {
				held = append(held, batch[0])
			} else {
				sb.Release(&batch[0])
			}
		}
		sb.Refill()
		if time.Now().After(end) {
			t.Fatal("no packet in 5 s")
		}
	}
	exchange(t, sa, sb, sizesBetween(60, 1514, 3))
	if !bytes.Equal(held[0].AppendTo(nil), want) {
		t.Error("held packet was overwritten")
	}
	sb.Release(&held[0])
	sb.Refill()
	if c := sb.Census(); c[OwnerFill] != 64 {
		t.Errorf("%v", c)
	}
}
