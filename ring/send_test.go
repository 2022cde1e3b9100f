package ring

import (
	"bytes"
	"slices"
	"testing"
)

func TestSendSizes(t *testing.T) {
	s, k := fake(t, Config{RxFrames: 32, TxSlots: 4, TxSlot: 3}, FakeConfig{Start: nearWrap})
	for _, n := range []int{14, 60, 1514, 4095, 4096, 4097, 8192, 8193, 9014, 12288} {
		f := newFrame(n, 5)
		transmit(t, s, f)
		if c := s.Census(); c[OwnerTx] != 3 {
			t.Errorf("%d bytes: before Flush %v", n, c)
		}
		if st := s.Flush(); st != StateOK {
			t.Fatalf("%d bytes: %v", n, st)
		}
		if c := s.Census(); c[OwnerCompletion] != 3 || s.InFlight() != 1 {
			t.Errorf("%d bytes: after Flush %v, %d in flight", n, c, s.InFlight())
		}
		if got, want := k.Sent(), (n+ChunkSize-1)/ChunkSize; got != want {
			t.Errorf("%d bytes: %d descriptors, want %d", n, got, want)
		}
		got, ok := k.Take(nil)
		if !ok || !bytes.Equal(got, f) {
			t.Fatalf("%d bytes: %d other bytes were transmitted", n, len(got))
		}
		if s.Reap() != 1 || s.Census()[OwnerFree] != 12 {
			t.Errorf("%d bytes: slot did not come back: %v", n, s.Census())
		}
		audit(t, s, k)
	}
}

// TestFlushLateKernel: before Linux 6.17 a kick that ends because of its budget leaves processed descriptors in the
// ring. The socket must not conclude that nothing was sent: the other frames would wait for the next Flush. Nor may it
// reuse the processed descriptors when their frames are complete.
func TestFlushLateKernel(t *testing.T) {
	s, k := fake(t, Config{RxFrames: 16, TxSlots: 512}, FakeConfig{Start: nearWrap, LateTx: true})
	send := func(n int) {
		for i := range n {
			transmit(t, s, newFrame(60, uint32(i)))
		}
	}
	send(100)
	if st := s.Flush(); st != StateOK || k.Sent() != 100 {
		t.Errorf("100 frames, 32 a kick: %v, %d were taken", st, k.Sent())
	}
	send(400)
	if st := s.Flush(); st != StateAgain || k.Sent() != 100+DefaultKicks*32 {
		t.Errorf("more than %d kicks take: %v, %d were taken", DefaultKicks, st, k.Sent())
	}
	for range k.Sent() {
		k.Take(nil)
	}
	if n := s.Reap(); n != 100+DefaultKicks*32 {
		t.Errorf("%d slots came back", n)
	}
	audit(t, s, k)
	if st := s.Flush(); st != StateOK || s.tx.used() != 0 {
		t.Errorf("the rest: %v, %d descriptors in the ring", st, s.tx.used())
	}
}

// A slot is free only when all of its descriptors are complete.
func TestReapPartOfSlot(t *testing.T) {
	s, k := fake(t, Config{RxFrames: 32, TxSlots: 2, TxSlot: 3},
		FakeConfig{Manual: true, Start: nearWrap})
	transmit(t, s, newFrame(9014, 1))
	s.Flush()
	k.Take(nil)
	for i, want := range []int{0, 0, 1} {
		if k.CompleteFrames(1) != 1 {
			t.Fatal("nothing to complete")
		}
		if got := s.Reap(); got != want {
			t.Errorf("after %d completions %d slots came back, want %d", i+1, got, want)
		}
		audit(t, s, k)
	}
}

func TestAllocUntilExhausted(t *testing.T) {
	s, k := fake(t, small, FakeConfig{Manual: true})
	for range 8 {
		transmit(t, s, newFrame(60, 1))
	}
	if _, ok := s.AllocTx(); ok || s.Stats().TxExhausted != 1 {
		t.Errorf("a ninth slot of eight: %v, exhausted %d", ok, s.Stats().TxExhausted)
	}
	s.Flush()
	k.Take(nil)
	k.CompleteFrames(1)
	b, ok := s.AllocTx()
	if !ok {
		t.Fatal("AllocTx did not reap")
	}
	s.CancelTx(b)
}

func TestSendInvalidLength(t *testing.T) {
	s, k := fake(t, small, FakeConfig{})
	for i, n := range []int{-1, 0, 13, 4097, 1 << 40} {
		b, _ := s.AllocTx()
		s.Send(b, n)
		if s.Stats().TxInvalid != uint64(i+1) || s.Census()[OwnerTx] != 0 {
			t.Errorf("length %d: %d invalid, %v", n, s.Stats().TxInvalid, s.Census())
		}
	}
	if s.Flush(); k.Sent() != 0 {
		t.Error("an invalid frame was sent")
	}
}

func TestSendTwiceIsRefused(t *testing.T) {
	k := NewFakeKernel(FakeConfig{})
	s, err := OpenFake(small, k)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b, _ := s.AllocTx()
	s.Send(b, 60)
	s.Send(b, 60)
	s.CancelTx(b)
	s.Flush()
	s.CancelTx(b)
	if s.Stats().Misuse != 3 || k.Sent() != 1 {
		t.Errorf("misuse %d, sent %d; want 3 and 1", s.Stats().Misuse, k.Sent())
	}
	if s.Audit() == nil {
		t.Error("audit is content")
	}
}

func TestKickBudget(t *testing.T) {
	s, k := fake(t, Config{RxFrames: 32, TxSlots: 64, Kicks: 3},
		FakeConfig{Budget: 10, Start: nearWrap})
	for i := range uint32(50) {
		transmit(t, s, newFrame(60, i))
	}
	if st := s.Flush(); st != StateAgain || k.Sent() != 30 || s.Stats().Kicks != 3 {
		t.Fatalf("%v after %d kicks, %d sent; want again, 3, 30", st, s.Stats().Kicks, k.Sent())
	}
	if !s.Pending() {
		t.Error("20 frames wait in the ring, and nothing is pending")
	}
	if st := s.Flush(); st != StateOK || k.Sent() != 50 || s.Stats().Kicks != 5 {
		t.Errorf("%v after %d kicks, %d sent; want ok, 5, 50", st, s.Stats().Kicks, k.Sent())
	}
	if s.Pending() {
		t.Error("pending after all was sent")
	}
	if s.Flush(); s.Stats().Kicks != 5 {
		t.Error("a kick for an empty ring")
	}
}

// TestSmallTransmitRing: if the transmit ring has fewer entries than the slots need, other frames wait in the socket's
// queue, in order.
func TestSmallTransmitRing(t *testing.T) {
	s, k := fake(t, Config{RxFrames: 32, TxSlots: 16, TxSlot: 2, TxSize: 4},
		FakeConfig{Start: nearWrap})
	for i := range uint32(16) {
		transmit(t, s, newFrame(5000, i))
	}
	for range 8 {
		s.Flush()
		audit(t, s, k)
	}
	for i := range uint32(16) {
		if got, ok := k.Take(nil); !ok || !bytes.Equal(got, newFrame(5000, i)) {
			t.Fatalf("frame %d is missing or out of order", i)
		}
	}
}

func TestStates(t *testing.T) {
	for _, st := range []State{StateAgain, StateNoBuffers, StateDown, StateGone, StateError} {
		s, k := fake(t, small, FakeConfig{Start: nearWrap})
		k.SetState(st)
		f := newFrame(60, 1)
		transmit(t, s, f)
		for range 3 {
			if got := s.Flush(); got != st {
				t.Errorf("Flush says %v, want %v", got, st)
			}
			audit(t, s, k)
		}
		if k.Sent() != 0 || !s.Pending() {
			t.Errorf("%v: frame left", st)
		}
		k.SetState(StateOK)
		if got := s.Flush(); got != StateOK {
			t.Errorf("after %v: %v", st, got)
		}
		if got, ok := k.Take(nil); !ok || !bytes.Equal(got, f) {
			t.Errorf("frame did not survive %v", st)
		}
		n := s.Stats()
		counts := []uint64{n.Again, n.NoBuffers, n.Down, n.Gone, n.OtherErrors}
		if i := slices.Index([]State{StateAgain, StateNoBuffers, StateDown, StateGone, StateError},
			st); counts[i] != 3 {
			t.Errorf("%v: counted %v", st, counts)
		}
	}
}

// TestStateBusy: EBUSY means that the device dropped a frame. The kernel completes it, and Flush continues with the
// next one.
func TestStateBusy(t *testing.T) {
	s, k := fake(t, small, FakeConfig{})
	k.SetState(StateBusy)
	for i := range uint32(8) {
		transmit(t, s, newFrame(60, i))
	}
	if st := s.Flush(); st != StateBusy || s.Stats().Busy != 8 {
		t.Errorf("%v, %d times busy", st, s.Stats().Busy)
	}
	if got := s.Reap(); got != 8 {
		t.Errorf("%d dropped frames completed, want 8", got)
	}
}

func TestClosedSocketDoesNothing(t *testing.T) {
	k := NewFakeKernel(FakeConfig{})
	s, err := OpenFake(small, k)
	if err != nil {
		t.Fatal(err)
	}
	k.Inject(newFrame(60, 1))
	k.Inject(newFrame(60, 1))
	batch := make([]Packet, 1)
	s.Recv(batch)
	b, _ := s.AllocTx()
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s.Release(&batch[0])
	s.Send(b, 60)
	s.CancelTx(b)
	if _, ok := s.AllocTx(); ok {
		t.Error("a slot of a closed socket")
	}
	if s.Recv(batch) != 0 || s.Refill() != 0 || s.Reap() != 0 || s.Pending() || s.Fd() != -1 {
		t.Error("a closed socket works")
	}
	if st := s.Flush(); st != StateClosed || s.Wait(0, -1) != ReadyError {
		t.Errorf("Flush on a closed socket: %v", st)
	}
	if err := s.Audit(); err != nil {
		t.Error(err)
	}
	if s.Stats().RxPackets != 1 {
		t.Error("counters are gone")
	}
}
