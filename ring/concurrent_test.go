package ring

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
)

// TestConcurrentEcho: the socket echoes all frames, while the kernel's end of the rings runs in another goroutine. The
// race detector checks the memory order.
func TestConcurrentEcho(t *testing.T) {
	for _, poller := range []bool{false, true} {
		const frames = 4_000
		s, k := fake(t, Config{RxFrames: 64, TxSlots: 32, TxSlot: 3}, FakeConfig{Start: nearWrap,
			Poller: poller})
		sizes := []int{60, 1514, 9014, 64, 4096, 300}
		failed := make(chan string, 1)
		go func() { failed <- feed(k, frames, sizes) }()
		batch := make([]Packet, 16)
		for echoed := 0; echoed < frames; {
			select {
			case msg := <-failed:
				t.Fatal(msg)
			default:
			}
			s.Reap()
			for i := range batch[:s.Recv(batch)] {
				p := &batch[i]
				b, ok := s.AllocTx()
				for !ok {
					s.Flush()
					runtime.Gosched()
					b, ok = s.AllocTx()
				}
				n := 0
				for j := range p.NumFrags() {
					n += copy(b.Data[n:], p.Frag(j))
				}
				s.Send(b, n)
				s.Release(p)
				echoed++
			}
			s.Refill()
			s.Flush()
			if s.Wait(0, -1) == 0 {
				runtime.Gosched()
			}
		}
		for s.Pending() {
			s.Flush()
			runtime.Gosched()
		}
		if msg := <-failed; msg != "" {
			t.Fatal(msg)
		}
		for s.InFlight() > 0 {
			s.Reap()
		}
		audit(t, s, k)
	}
}

// feed injects frames and checks their echoes. It returns what is wrong, or "".
func feed(k *FakeKernel, frames int, sizes []int) string {
	var buf, want []byte
	for in, out := 0, 0; out < frames; {
		if in < frames {
			want = append(want[:0], make([]byte, sizes[in%len(sizes)])...)
			if k.Inject(pattern(want, uint32(in))) {
				in++
			}
		}
		for {
			var ok bool
			if buf, ok = k.Take(buf[:0]); !ok {
				break
			}
			want = append(want[:0], make([]byte, sizes[out%len(sizes)])...)
			if !bytes.Equal(buf, pattern(want, uint32(out))) {
				return fmt.Sprintf("echo %d of %d bytes differs", out, len(want))
			}
			out++
		}
		runtime.Gosched()
	}
	return ""
}
