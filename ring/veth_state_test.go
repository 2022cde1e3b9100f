package ring

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// eventually calls f until it returns true, for 5 s at most.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !f(); {
		if time.Now().After(end) {
			t.Fatalf("not in 5 s: %s", what)
		}
	}
}

func (h *host) link(t *testing.T, f func(netlink.Link) error) {
	t.Helper()
	h.in(t, func() error {
		l, err := netlink.LinkByIndex(h.index)
		if err != nil {
			return err
		}
		return f(l)
	})
}

func TestVethLinkDownAndUp(t *testing.T) {
	a, b := newPair(t, 1500)
	a.attach(t)
	b.attach(t)
	sa, sb := a.open(t, Config{RxFrames: 128, TxSlots: 64}),
		b.open(t, Config{RxFrames: 128, TxSlots: 64})
	sizes := sizesBetween(60, 1514, 50)
	for range 2 {
		exchange(t, sa, sb, sizes)
		a.link(t, netlink.LinkSetDown)
		for range 3 {
			transmit(t, sa, newFrame(60, stray))
			if st := sa.Flush(); st != StateDown {
				t.Fatalf("link is down, Flush says %v", st)
			}
			audit(t, sa, nil)
		}
		if !sa.Pending() {
			t.Error("frames left through a link that is down")
		}
		a.link(t, netlink.LinkSetUp)
		eventually(t, "the link works again", func() bool {
			return sa.Flush() <= StateNoBuffers && !sa.Pending()
		})
		eventually(t, "the frames that waited are complete", func() bool {
			sa.Reap()
			return sa.InFlight() == 0
		})
		eventually(t, "one of them is received", func() bool {
			var batch [8]Packet
			n := sb.Recv(batch[:])
			for i := range batch[:n] {
				sb.Release(&batch[i])
			}
			sb.Refill()
			// The carrier may appear after the first frames, so more follow.
			if b, ok := sa.AllocTx(); ok {
				sa.Send(b, copy(b.Data, newFrame(60, stray)))
			}
			sa.Flush()
			sa.Reap()
			return n > 0
		})
		drainRx(sb)
	}
	exchange(t, sa, sb, sizes)
	if sa.Stats().Down != 6 {
		t.Errorf("link down counted %d times, want 6", sa.Stats().Down)
	}
}

// drainRx releases frames in flight, until nothing has arrived for 50 ms.
func drainRx(s *Socket) {
	for s.Wait(50*time.Millisecond, -1)&ReadyRx != 0 {
		var batch [8]Packet
		for i := range batch[:s.Recv(batch[:])] {
			s.Release(&batch[i])
		}
		s.Refill()
	}
}

func TestVethDeviceGone(t *testing.T) {
	a, _ := newPair(t, 1500)
	a.attach(t)
	s := a.open(t, Config{RxFrames: 128, TxSlots: 64})
	a.link(t, netlink.LinkDel)
	transmit(t, s, newFrame(60, 1))
	eventually(t, "the socket knows that its device is gone", func() bool {
		return s.Flush() == StateGone
	})
	audit(t, s, nil)
	s.Wait(0, -1)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// mappings returns the number of rings that this process has mapped.
func mappings(t *testing.T) int {
	t.Helper()
	m, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(m), "socket:[")
}

func TestVethCloseReleasesQueue(t *testing.T) {
	a, b := newPair(t, 1500)
	a.attach(t)
	b.attach(t)
	sb := b.open(t, Config{RxFrames: 128, TxSlots: 64})
	before := mappings(t)
	for range 4 {
		sa := a.open(t, Config{RxFrames: 128, TxSlots: 64})
		if n := mappings(t) - before; n != 4 {
			t.Errorf("%d rings mapped, want 4", n)
		}
		exchange(t, sa, sb, []int{60, 1514, 700})
		exchange(t, sb, sa, []int{60, 1514, 700})
		if err := sa.Close(); err != nil {
			t.Fatal(err)
		}
		if n := mappings(t) - before; n != 0 {
			t.Errorf("%d rings still mapped after Close", n)
		}
	}
}

func TestVethBusyQueue(t *testing.T) {
	a, _ := newPair(t, 1500)
	a.attach(t)
	a.open(t, Config{RxFrames: 64, TxSlots: 64})
	a.in(t, func() error {
		_, err := Open(Config{Ifindex: a.index, RxFrames: 64, TxSlots: 64,
			BindTimeout: 10 * time.Millisecond})
		if err == nil || !strings.Contains(err.Error(), "another AF_XDP socket uses the queue") {
			t.Errorf("second socket on one queue: %v", err)
		}
		_, err = Open(Config{Ifindex: a.index, Queue: 17})
		if err == nil || !strings.Contains(err.Error(), "is there such a queue") {
			t.Errorf("queue 17: %v", err)
		}
		_, err = Open(Config{Ifindex: a.index, Queue: 1, Mode: ModeZeroCopy})
		if err == nil || !strings.Contains(err.Error(), "no zero-copy mode") {
			t.Errorf("zero-copy on veth: %v", err)
		}
		s, err := Open(Config{Ifindex: a.index, Queue: 1, Mode: ModeCopy, HugePages: true})
		if err != nil {
			t.Error("failed opens left something behind:", err)
			return nil
		}
		return s.Close()
	})
}

// TestVethStatistics sends more frames than the receiver has chunks, without refills. The kernel counts a dropped frame
// in rx_dropped, and one that needs a single chunk also in rx_fill_ring_empty_descs. A Socket must count each once.
func TestVethStatistics(t *testing.T) {
	for _, c := range []struct{ mtu, bytes, room int }{{1500, 60, 16}, {9000, 8000, 5}} {
		a, b := newPair(t, c.mtu)
		a.attach(t)
		b.attach(t)
		sa, sb := a.open(t, Config{RxFrames: 64, TxSlots: 64, TxSlot: SlotFor(c.bytes)}),
			b.open(t, Config{RxFrames: 16, TxSlots: 64})
		for i := range uint32(40) {
			transmit(t, sa, newFrame(c.bytes, i))
		}
		eventually(t, "40 frames left", func() bool {
			sa.Flush()
			sa.Reap()
			return sa.InFlight() == 0
		})
		eventually(t, "the empty fill ring is counted", func() bool {
			return sb.Stats().KernelFillRingEmpty >= uint64(40-c.room)
		})
		if n := sb.rx.avail(64); n < 15 || n > 16 {
			t.Errorf("%d chunks in the receive ring, want all 16, or 15 if a frame needs 3", n)
		}
		if st := sb.Stats(); st.KernelRxDropped != 0 {
			t.Errorf("frames of %d bytes are counted twice: %+v", c.bytes, st)
		}
		if st := sa.Stats(); st.TxPackets != 40 || st.TxCompleted != 40 ||
			st.TxBytes != uint64(40*c.bytes) {
			t.Errorf("sender %+v", st)
		}
	}
}

func TestVethWait(t *testing.T) {
	a, b := newPair(t, 1500)
	a.attach(t)
	b.attach(t)
	sa, sb := a.open(t, Config{RxFrames: 64, TxSlots: 64}),
		b.open(t, Config{RxFrames: 64, TxSlots: 64})
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	drainRx(sb)
	go unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	// Signals end Wait too, and the kernel's own IPv6 frames may arrive first.
	woken := func(fd int, by Ready) bool {
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
			switch r := sb.Wait(5*time.Second, fd); {
			case r&by != 0:
				return true
			case r != 0:
				drainRx(sb)
			}
		}
		return false
	}
	if !woken(fd, ReadyExtra) {
		t.Fatal("the eventfd does not wake")
	}
	drainRx(sb)
	done := make(chan bool)
	go func() { done <- woken(-1, ReadyRx) }()
	transmit(t, sa, newFrame(60, 1))
	sa.Flush()
	if !<-done {
		t.Error("a packet does not wake")
	}
	if n := testing.AllocsPerRun(50, func() { sa.Wait(0, fd); sa.Flush(); sa.Reap() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
