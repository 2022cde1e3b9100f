package ring

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestNoAllocations(t *testing.T) {
	s, k := fake(t, Config{RxFrames: 64, TxSlots: 32, TxSlot: 3, MaxFrags: 3},
		FakeConfig{Start: nearWrap})
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	batch := make([]Packet, 8)
	pieces := make([][]byte, 0, MaxFrags)
	shorts, jumbo, over := newFrame(60, 1), newFrame(9014, 2), newFrame(4*RxChunkData, 3)
	out := make([]byte, 0, 65536)
	round := func() {
		for _, f := range [][]byte{shorts, jumbo, over, shorts} {
			k.Inject(f)
		}
		s.Wait(time.Microsecond, -1)
		for i := range batch[:s.Recv(batch)] {
			p := &batch[i]
			pieces = p.Frags(pieces[:0])
			b, ok := s.AllocTx()
			if ok {
				s.Send(b, copy(b.Data, pieces[0]))
			}
			s.Release(p)
		}
		if b, ok := s.AllocTx(); ok {
			s.Send(b, copy(b.Data, jumbo))
		}
		s.Refill()
		s.Flush()
		for ok := true; ok; {
			_, ok = k.Take(out[:0])
		}
		s.Reap()
		s.Wait(time.Microsecond, fd)
		if err := s.Audit(); err != nil {
			t.Fatal(err)
		}
	}
	round()
	if n := testing.AllocsPerRun(200, round); n != 0 {
		t.Errorf("%v allocations per round, want 0", n)
	}
	if st := s.Stats(); st.RxPackets < 600 || st.TxCompleted < 800 || st.RxOversize < 200 {
		t.Errorf("the rounds did too little: %+v", st)
	}
}
