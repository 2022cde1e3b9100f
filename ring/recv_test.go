package ring

import (
	"bytes"
	"fmt"
	"testing"
)

// receive expects exactly the frames want, in order.
func receive(t testing.TB, s Port, want ...[]byte) []Packet {
	t.Helper()
	batch := make([]Packet, len(want)+1)
	n := s.Recv(batch)
	if n != len(want) {
		t.Fatalf("received %d packets, want %d", n, len(want))
	}
	for i, w := range want {
		if got := batch[i].AppendTo(nil); !bytes.Equal(got, w) {
			t.Fatalf("packet %d: %d bytes differ from the %d sent", i, len(got), len(w))
		}
		if batch[i].Len() != len(w) {
			t.Errorf("packet %d: Len %d, want %d", i, batch[i].Len(), len(w))
		}
	}
	return batch[:n]
}

func TestRecvSizes(t *testing.T) {
	for _, mtu := range []int{1500, 1770, 1771, 9000} {
		t.Run(fmt.Sprint(mtu), func(t *testing.T) { testRecvSizes(t, mtu) })
	}
}

func testRecvSizes(t *testing.T, mtu int) {
	s, k := fake(t, Config{RxFrames: 16, TxSlots: 1}, FakeConfig{Start: nearWrap, MTU: mtu})
	data := RxChunkData
	if mtu <= 1770 { // which leaves room for two VLAN tags in a chunk of 2,048 bytes
		data = 2048 - RxHeadroom
	}
	for _, c := range []struct{ n, frags int }{
		{14, 1}, {60, 1}, {1514, 1}, {data, 1}, {data + 1, 2}, {9014, (9014 + data - 1) / data},
		{16 * data, 16},
	} {
		f := newFrame(c.n, 7)
		if !k.Inject(f) {
			t.Fatalf("%d bytes: dropped", c.n)
		}
		p := receive(t, s, f)
		if got := p[0].NumFrags(); got != c.frags {
			t.Errorf("%d bytes: %d pieces, want %d", c.n, got, c.frags)
		}
		if got := s.Census()[OwnerRx]; got != uint32(c.frags) {
			t.Errorf("%d bytes: reader owns %d chunks, want %d", c.n, got, c.frags)
		}
		if p[0].Frag(c.frags) != nil || p[0].Frag(-1) != nil {
			t.Errorf("%d bytes: a piece outside the packet", c.n)
		}
		audit(t, s, k)
		s.Release(&p[0])
		if p[0].NumFrags() != 0 || p[0].Len() != 0 {
			t.Errorf("%d bytes: packet not empty after Release", c.n)
		}
		s.Refill()
		audit(t, s, k)
	}
}

// TestRefillMasksHeadroom: the address of a received frame is RxHeadroom bytes after the start of its chunk, but the
// fill ring must get the address of the start. The fake kernel checks that.
func TestRefillMasksHeadroom(t *testing.T) {
	s, k := fake(t, small, FakeConfig{Start: nearWrap})
	for i := range uint32(200) {
		f := newFrame(100, i)
		if !k.Inject(f) {
			t.Fatalf("frame %d dropped", i)
		}
		p := receive(t, s, f)
		s.Release(&p[0])
		s.Refill()
		audit(t, s, k)
	}
}

func TestRecvWithoutFill(t *testing.T) {
	s, k := fake(t, Config{RxFrames: 4, RxSize: 8, TxSlots: 1}, FakeConfig{})
	for range 3 {
		k.Inject(newFrame(60, 1))
	}
	if k.Inject(newFrame(2*k.chunkData(), 2)) {
		t.Error("two pieces went into one chunk")
	}
	if !k.Inject(newFrame(60, 3)) {
		t.Error("the last chunk was lost with the packet that did not fit")
	}
	if k.Inject(newFrame(60, 4)) {
		t.Error("a packet without a chunk in the fill ring was received")
	}
	if st := s.Stats(); st.KernelFillRingEmpty != 2 {
		t.Errorf("fill ring empty %d times, want 2", st.KernelFillRingEmpty)
	}
}

func TestRecvRingFull(t *testing.T) {
	s, k := fake(t, Config{RxFrames: 16, RxSize: 4, TxSlots: 1, MaxFrags: 4},
		FakeConfig{Start: nearWrap})
	for i := range 6 {
		if got := k.Inject(newFrame(60, 1)); got != (i < 4) {
			t.Errorf("packet %d received: %v", i, got)
		}
	}
	if st := s.Stats(); st.KernelRxRingFull != 2 {
		t.Errorf("receive ring full %d times, want 2", st.KernelRxRingFull)
	}
}

func TestRecvOversizeIsDroppedWhole(t *testing.T) {
	s, k := fake(t, Config{RxFrames: 32, TxSlots: 1, MaxFrags: 3}, FakeConfig{Start: nearWrap})
	data := k.chunkData()
	before, after := newFrame(3*data, 1), newFrame(60, 2)
	for _, n := range []int{3*data + 1, 5 * data, 9*data - 1} {
		for _, f := range [][]byte{before, newFrame(n, 9), newFrame(n, 10), after} {
			if !k.Inject(f) {
				break // fewer chunks than packets: the next round has them
			}
		}
		batch := make([]Packet, 8)
		got := batch[:s.Recv(batch)]
		if len(got) == 0 || got[0].Len() != len(before) {
			t.Fatalf("%d bytes: packet before was not received", n)
		}
		for i := range got {
			if got[i].Len() > 3*data {
				t.Errorf("%d bytes received", got[i].Len())
			}
			s.Release(&got[i])
		}
		s.Refill()
		audit(t, s, k)
		if c := s.Census(); c[OwnerFill] != 32 {
			t.Errorf("%d bytes: chunks missing in the fill ring: %v", n, c)
		}
	}
	if s.Stats().RxOversize < 3 {
		t.Errorf("%d oversize packets counted", s.Stats().RxOversize)
	}
}

// A chain whose pieces arrive in different batches is one packet, even with other calls in between. A chain of more
// than MaxFrags pieces is dropped whole.
func TestRecvChainAcrossBatches(t *testing.T) {
	for _, pieces := range []int{2, 3, 4, 5, 7} {
		t.Run(fmt.Sprint(pieces), func(t *testing.T) {
			s, k := fake(t, small, FakeConfig{Start: nearWrap})
			whole := newFrame(pieces*1000, 3)
			batch := make([]Packet, 4)
			for i := range pieces {
				last := i == pieces-1
				if !k.inject(whole[i*1000:(i+1)*1000], 1000, !last) {
					t.Fatal("dropped")
				}
				if !last {
					if n := s.Recv(batch); n != 0 {
						t.Fatalf("received %d packets before the last piece", n)
					}
					s.Refill()
					audit(t, s, k)
				}
			}
			if pieces <= 4 {
				p := receive(t, s, whole)
				s.Release(&p[0])
			} else if n := s.Recv(batch); n != 0 || s.Stats().RxOversize != 1 {
				t.Fatalf("received %d packets, %d oversize; want 0 and 1", n, s.Stats().RxOversize)
			}
			f := newFrame(60, 4)
			k.Inject(f)
			p := receive(t, s, f)
			s.Release(&p[0])
			s.Refill()
			if c := s.Census(); c[OwnerFill] != 16 {
				t.Errorf("chunks missing in the fill ring: %v", c)
			}
		})
	}
}

func TestRecvBatchSmallerThanRing(t *testing.T) {
	s, k := fake(t, Config{RxFrames: 16, TxSlots: 1}, FakeConfig{})
	for i := range uint32(6) {
		k.InjectSplit(newFrame(100, i), 50)
	}
	batch := make([]Packet, 4)
	if n := s.Recv(batch); n != 4 {
		t.Fatalf("received %d packets, want 4", n)
	}
	p := receive(t, s, newFrame(100, 4), newFrame(100, 5))
	if p[0].NumFrags() != 2 || s.Census()[OwnerRx] != 12 {
		t.Errorf("%d pieces, %v", p[0].NumFrags(), s.Census())
	}
}

// Packets held by a TCP must not be overwritten by later packets, whatever is refilled.
func TestHeldSurvivesRefill(t *testing.T) {
	s, k := fake(t, small, FakeConfig{Start: nearWrap})
	kept := newFrame(2*k.chunkData(), 77)
	k.Inject(kept)
	held := receive(t, s, kept)[0]
	if c := s.Census(); c[OwnerRx] != 2 {
		t.Fatalf("%v, want 2 of the reader", c)
	}
	for i := range uint32(100) {
		f := newFrame(1500, i)
		k.Inject(f)
		p := receive(t, s, f)
		s.Release(&p[0])
		s.Refill()
		audit(t, s, k)
	}
	if !bytes.Equal(held.AppendTo(nil), kept) {
		t.Error("held packet was overwritten")
	}
	s.Release(&held)
	s.Refill()
	if c := s.Census(); c[OwnerFill] != 16 {
		t.Errorf("%v, want all 16 chunks in the fill ring", c)
	}
}

func TestReleaseTwice(t *testing.T) {
	k := NewFakeKernel(FakeConfig{})
	s, err := OpenFake(small, k)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f := newFrame(60, 1)
	k.Inject(f)
	p := receive(t, s, f)
	again := p[0]
	s.Release(&p[0])
	s.Release(&p[0]) // empty: harmless
	audit(t, s, k)
	s.Release(&again) // a copy: refused, and Audit reports it
	if err := s.Audit(); err == nil || s.Stats().Misuse != 1 {
		t.Errorf("a packet released twice: audit %v, misuse %d", err, s.Stats().Misuse)
	}
	if n := s.Refill(); n != 1 {
		t.Errorf("refilled %d chunks, want 1", n)
	}
}

// Invalid descriptors are dropped and counted, and the frame after one is received.
func TestRecvBadDescriptor(t *testing.T) {
	for _, c := range []struct {
		name string
		addr uint64
		n    uint32
	}{
		{"outside the UMEM", 1 << 40, 60},
		{"in the transmit part", 16 << smallShift, 60},
		{"over the end of a chunk", 1500, 700},
		{"length overflow", 256, 1<<32 - 1},
	} {
		s, k := fake(t, small, FakeConfig{})
		d := k.mem.rx.desc
		f := newFrame(60, 1)
		k.Inject(f)
		k.Inject(f)
		d[0].Addr, d[0].Len = c.addr, c.n
		receive(t, s, f)
		if s.Stats().RxBadDesc != 1 {
			t.Errorf("%s: %d bad descriptors counted", c.name, s.Stats().RxBadDesc)
		}
	}
}

// TestRecvTwice: the zero-copy mode of igb may deliver a chunk that it delivered one lap of its ring before. If the
// chunk is being read or is free, the descriptor must be dropped. Audit must not report it as misuse of this package.
func TestRecvTwice(t *testing.T) {
	s, k := fake(t, small, FakeConfig{})
	again := func() {
		d := k.mem.rx.desc[0]
		k.rx.put(d)
		k.rx.publish()
	}
	f := newFrame(60, 1)
	k.Inject(f)
	p := receive(t, s, f)
	again()
	var batch [4]Packet
	if n := s.Recv(batch[:]); n != 0 || s.Stats().RxBadDesc != 1 {
		t.Errorf("a chunk that is being read came again: %d packets, %+v", n, s.Stats())
	}
	s.Release(&p[0])
	again()
	if n := s.Recv(batch[:]); n != 0 || s.Stats().RxBadDesc != 2 {
		t.Errorf("a free chunk came again: %d packets, %+v", n, s.Stats())
	}
	audit(t, s, k)
	s.Refill()
	k.Inject(f)
	receive(t, s, f)
}

// TestPacketOfAnotherSocket: Release refuses a packet of another, larger socket without a crash.
func TestPacketOfAnotherSocket(t *testing.T) {
	big, k := fake(t, Config{RxFrames: 64, TxSlots: 1}, FakeConfig{})
	for range 64 {
		k.Inject(newFrame(60, 1))
	}
	batch := make([]Packet, 64)
	big.Recv(batch)
	s, err := OpenFake(small, NewFakeKernel(FakeConfig{}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p := batch[63]
	s.Release(&p)
	if s.Stats().Misuse != 1 || s.Audit() == nil {
		t.Errorf("misuse %d, want 1", s.Stats().Misuse)
	}
}
