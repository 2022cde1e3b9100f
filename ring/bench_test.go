package ring

import (
	"fmt"
	"testing"
)

// BenchmarkReceive measures one packet through Recv, Release and Refill, without the kernel's work.
func BenchmarkReceive(b *testing.B) {
	for _, n := range []int{64, 1514, 9014} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, k := fake(b, Config{RxFrames: 512, TxSlots: 1}, FakeConfig{})
			f := newFrame(n, 1)
			batch := make([]Packet, 64)
			b.ReportAllocs()
			for i := 0; i < b.N; {
				b.StopTimer()
				for range 64 {
					k.Inject(f)
				}
				b.StartTimer()
				got := s.Recv(batch)
				for j := range batch[:got] {
					s.Release(&batch[j])
				}
				s.Refill()
				i += got
			}
		})
	}
}

// BenchmarkTransmit measures one frame through AllocTx, Send, Flush and Reap, without writing it.
func BenchmarkTransmit(b *testing.B) {
	for _, n := range []int{64, 1514, 9014} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, k := fake(b, Config{RxFrames: 32, TxSlots: 64, TxSlot: SlotFor(n)},
				FakeConfig{Budget: 64})
			b.ReportAllocs()
			out := make([]byte, 0, 65536)
			for i := 0; i < b.N; i += 64 {
				for range 64 {
					buf, _ := s.AllocTx()
					s.Send(buf, n)
				}
				s.Flush()
				b.StopTimer()
				for ok := true; ok; {
					_, ok = k.Take(out[:0])
				}
				b.StartTimer()
				s.Reap()
			}
		})
	}
}

// BenchmarkAudit measures one call with the default number of chunks.
func BenchmarkAudit(b *testing.B) {
	s, _ := fake(b, Config{}, FakeConfig{})
	for b.Loop() {
		if err := s.Audit(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpenFake measures one socket of 256 chunks on a reused FakeKernel, as a simulation opens it.
func BenchmarkOpenFake(b *testing.B) {
	k := NewFakeKernel(FakeConfig{})
	for b.Loop() {
		s, err := OpenFake(Config{RxFrames: 192, TxSlots: 64}, k)
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}
