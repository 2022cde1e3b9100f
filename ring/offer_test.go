package ring

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// turns injects n frames and receives them, count times. It returns the number of frames that the kernel dropped.
func turns(t testing.TB, s *Socket, k *FakeKernel, count, n int) (lost int) {
	t.Helper()
	f := newFrame(60, 1)
	batch := make([]Packet, 64)
	for range count {
		for range n {
			if !k.Inject(f) {
				lost++
			}
		}
		for got := s.Recv(batch); got > 0; got = s.Recv(batch) {
			for i := range batch[:got] {
				s.Release(&batch[i])
			}
			s.Refill()
		}
	}
	audit(t, s, k)
	return lost
}

// withKernel returns the number of receive chunks that the kernel has, including those with a frame that was not
// received.
func withKernel(s *Socket) uint32 { return s.Census()[OwnerFill] }

// TestFewChunksWhileFramesFlow: a steady flow reuses few chunks, and loses nothing.
func TestFewChunksWhileFramesFlow(t *testing.T) {
	s, k := fake(t, Config{TxSlots: 1}, FakeConfig{Start: nearWrap})
	if n := withKernel(s); n != DefaultRxFrames {
		t.Errorf("the kernel has %d chunks at the start, want all", n)
	}
	if n := turns(t, s, k, 1000, 64); n != 0 {
		t.Errorf("%d frames lost", n)
	}
	if n := withKernel(s); n != offerLeast {
		t.Errorf("the kernel has %d chunks, want %d", n, offerLeast)
	}
	used := map[uint64]bool{}
	batch := make([]Packet, 64)
	for range 1000 {
		k.Inject(newFrame(60, 1))
		for i := range batch[:s.Recv(batch)] {
			used[s.frames.chunkAt(uint64(batch[i].frags[0].off))] = true
			s.Release(&batch[i])
		}
		s.Refill()
	}
	if len(used) > offerLeast {
		t.Errorf("%d chunks were used, want %d at most", len(used), offerLeast)
	}
	if st := s.Stats(); st.RxOffered != offerLeast || st.RxGrown != 0 {
		t.Errorf("offered %d, grown %d times", st.RxOffered, st.RxGrown)
	}
}

// TestOfferGrowsAtOnce: a larger burst raises the offer before the next one is twice as large, and a burst that empties
// the fill ring raises it to all chunks.
func TestOfferGrowsAtOnce(t *testing.T) {
	s, k := fake(t, Config{TxSlots: 1}, FakeConfig{Start: nearWrap})
	turns(t, s, k, 200, 64)
	for n := offerLeast; n < DefaultRxFrames; n *= 2 {
		if lost := turns(t, s, k, 1, n/2+1); lost != 0 {
			t.Fatalf("%d of a burst of %d frames lost", lost, n/2+1)
		}
		if got := s.Stats().RxOffered; got != uint64(2*n) {
			t.Fatalf("offered %d after a burst of %d frames, want %d", got, n/2+1, 2*n)
		}
	}

	s, k = fake(t, Config{TxSlots: 1}, FakeConfig{Start: nearWrap})
	turns(t, s, k, 200, 64)
	if lost := turns(t, s, k, 1, DefaultRxFrames); lost != DefaultRxFrames-offerLeast {
		t.Errorf("%d frames lost, want %d", lost, DefaultRxFrames-offerLeast)
	}
	if lost := turns(t, s, k, 3, DefaultRxFrames); lost != 0 {
		t.Errorf("%d frames lost of the next bursts", lost)
	}
	if st := s.Stats(); st.RxOffered != DefaultRxFrames || st.RxGrown != 1 {
		t.Errorf("offered %d, grown %d times", st.RxOffered, st.RxGrown)
	}
}

// TestOfferShrinksSlowly: after bursts the offer stays large until offerCalm chunks were offered. Repeated bursts keep
// it large.
func TestOfferShrinksSlowly(t *testing.T) {
	s, k := fake(t, Config{TxSlots: 1}, FakeConfig{})
	turns(t, s, k, 200, 64)
	for n := 257; n <= 2056; n *= 2 { // none of them loses a frame
		turns(t, s, k, 1, n)
	}
	before := s.Stats().RxOffered
	turns(t, s, k, offerCalm/64-100, 64)
	if n := s.Stats().RxOffered; n != before || n != DefaultRxFrames {
		t.Errorf("offered %d after the bursts and then %d", before, n)
	}
	turns(t, s, k, 100, 64) // the period with the bursts ends
	for n := before; n > offerLeast; n /= 2 {
		turns(t, s, k, offerCalm/64+int(n)/128+1, 64) // while the kernel has more than n/2 chunks, Refill offers none
		if got := s.Stats().RxOffered; got != n/2 {
			t.Errorf("offered %d after a calm time, want %d", got, n/2)
		}
	}
	turns(t, s, k, 2, 400)
	for range 8 {
		turns(t, s, k, offerCalm/64/2, 64)
		turns(t, s, k, 1, 400)
	}
	if n := s.Stats().RxOffered; n != 1024 {
		t.Errorf("offered %d while bursts of 400 frames came, want 1024", n)
	}
}

// TestRepeatedLossKeepsTheOffer: a socket whose fill ring repeatedly runs empty keeps all chunks offered for longer
// each time, and returns to the shortest calm time when that stops.
func TestRepeatedLossKeepsTheOffer(t *testing.T) {
	o := newOffer(DefaultRxFrames)
	calm := func(chunks uint32) {
		for range chunks / 64 {
			o.offered = o.target
			o.calm += 64
			o.adjust(o.target - 64)
		}
	}
	runEmpty := func(want uint32) {
		t.Helper()
		o.offered = o.target
		o.adjust(0)
		if want = min(want, offerCalmMax); o.target != DefaultRxFrames || o.patience != want {
			t.Fatalf("offered %d, calm time %d, want %d", o.target, o.patience, want)
		}
	}
	patience := uint32(offerCalm)
	for range 20 { // each time soon after the offer has halved
		patience = min(4*patience, offerCalmMax)
		runEmpty(patience)
		calm(patience)
		patience /= 2
	}
	if patience != offerCalmMax/2 {
		t.Errorf("the calm time is %d chunks, want %d", patience, offerCalmMax/2)
	}
	for n := uint32(DefaultRxFrames / 2); patience > offerCalm; n = max(n/2, offerLeast) {
		if calm(patience - 64); o.target != n {
			t.Fatalf("offered %d before the calm time was over, want %d", o.target, n)
		}
		patience /= 2
		if calm(64); o.patience != patience {
			t.Fatalf("the calm time is %d chunks, want %d", o.patience, patience)
		}
	}
	runEmpty(4 * offerCalm)
	if calm(7 * offerCalm); o.target != offerLeast || o.patience != offerCalm {
		t.Errorf("offered %d after the calm times, the next is %d", o.target, o.patience)
	}
}

// TestIdleSocketTakesBurst: an idle socket receives, without loss, a burst of as many frames as it has receive chunks,
// even if the kernel had few chunks while frames flowed before.
func TestIdleSocketTakesBurst(t *testing.T) {
	idle := map[string]func(*Socket){
		"spinning": func(s *Socket) {
			for range quietRecvs {
				s.Recv(make([]Packet, 1))
			}
		},
		"sleeping":        func(s *Socket) { s.Wait(100*time.Millisecond, -1) },
		"sleeping always": func(s *Socket) { s.Wait(-1, -1) },
		"woken by others": func(s *Socket) {
			for range quietRecvs / quietWait {
				s.Recv(make([]Packet, 1))
				s.Wait(0, -1)
			}
		},
	}
	for name, f := range idle {
		s, k := fake(t, Config{TxSlots: 1}, FakeConfig{Start: nearWrap})
		for round := range 3 {
			turns(t, s, k, 200, 64)
			if n := withKernel(s); n != offerLeast {
				t.Fatalf("%s: the kernel has %d chunks while frames flow", name, n)
			}
			f(s)
			if lost := turns(t, s, k, 1, DefaultRxFrames); lost != 0 {
				t.Errorf("%s: round %d: %d frames lost", name, round, lost)
			}
			s.offer.target = offerLeast // as after a calm time
		}
	}
}

// TestIdleSocketOffersLateChunks: chunks that the reader releases after the socket became idle are offered too.
func TestIdleSocketOffersLateChunks(t *testing.T) {
	s, k := fake(t, Config{TxSlots: 1}, FakeConfig{Start: nearWrap})
	f := newFrame(60, 1)
	k.Inject(f)
	held := receive(t, s, f)[0]
	turns(t, s, k, 200, 64)
	s.Wait(time.Second, -1)
	s.Release(&held)
	if s.Refill(); withKernel(s) != DefaultRxFrames {
		t.Errorf("the kernel of an idle socket has %d chunks, want all", withKernel(s))
	}
}

// TestZeroCopyOffersAll: a zero-copy socket always offers all chunks, because the driver's own ring may have more
// entries than a flow in copy mode needs.
func TestZeroCopyOffersAll(t *testing.T) {
	s, k := fake(t, Config{TxSlots: 1}, FakeConfig{
		Refuse: func(zeroCopy, segments bool) unix.Errno { return 0 }})
	if !s.Info().ZeroCopy {
		t.Fatal("no zero-copy")
	}
	turns(t, s, k, 200, 64)
	if st := s.Stats(); withKernel(s) != DefaultRxFrames || st.RxOffered != DefaultRxFrames {
		t.Errorf("the kernel has %d chunks, offered %d", withKernel(s), st.RxOffered)
	}
}

// TestVethBurst: an idle socket on a veth receives all frames of a burst that needs nearly all its chunks.
func TestVethBurst(t *testing.T) {
	a, b := newPair(t, 1500)
	a.attach(t)
	b.attach(t)
	sa, sb := a.open(t, Config{RxFrames: 64}), b.open(t, Config{TxSlots: 64})
	batch := make([]Packet, 64)
	read := func() (n int) {
		for got := sb.Recv(batch); got > 0; got = sb.Recv(batch) {
			for i := range batch[:got] {
				if batch[i].Len() == 1514 { // the kernel's own frames are shorter
					n++
				}
				sb.Release(&batch[i])
			}
			sb.Refill()
		}
		return n
	}
	send := func(n int) {
		for n > 0 {
			for ; n > 0; n-- {
				buf, ok := sa.AllocTx()
				if !ok {
					break
				}
				sa.Send(buf, copy(buf.Data, newFrame(1514, 1)))
			}
			sa.Flush()
			sa.Reap()
		}
		eventually(t, "all frames left", func() bool {
			sa.Flush()
			sa.Reap()
			return sa.InFlight() == 0
		})
	}
	receive := func(want int) {
		t.Helper()
		got := 0
		for end := time.Now().Add(5 * time.Second); got < want && time.Now().Before(end); {
			got += read()
			runtime.Gosched()
		}
		if got != want {
			t.Fatalf("%d frames of %d", got, want)
		}
	}
	const own = 64 // chunks for frames of the kernel, such as its IPv6 announcements
	for range 5 {
		for range 200 {
			send(32)
			receive(32)
		}
		if n := withKernel(sb); n > offerLeast {
			t.Errorf("the kernel has %d chunks while frames flow", n)
		}
		drainRx(sb)
		send(DefaultRxFrames - own)
		receive(DefaultRxFrames - own)
		sb.offer.target = offerLeast // as after a calm time
	}
}
