package ring

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkVeth sends frames over a veth pair as fast as the kernel accepts them. Another thread receives.
func BenchmarkVeth(b *testing.B) {
	for _, n := range []int{64, 1514, 3520, 9014} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x, y := newPair(b, max(n-ethHeader, 1500))
			x.attach(b)
			y.attach(b)
			tx := x.open(b, Config{RxFrames: 64, TxSlots: 512, TxSlot: SlotFor(n)})
			rx := y.open(b, Config{RxFrames: 2048, TxSlots: 64})
			var stop atomic.Bool
			got := make(chan uint64)
			go func() { got <- sink(rx, &stop) }()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			b.SetBytes(int64(n))
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; {
				for range min(64, b.N-i) {
					buf, ok := tx.AllocTx()
					if !ok {
						break
					}
					tx.Send(buf, n)
					i++
				}
				tx.Flush()
			}
			b.StopTimer()
			stop.Store(true)
			b.ReportMetric(100*float64(<-got)/float64(b.N), "%received")
		})
	}
}

// sink receives until stop is set and nothing has arrived for 10 ms.
func sink(s *Socket, stop *atomic.Bool) uint64 {
	runtime.LockOSThread()
	batch := make([]Packet, 64)
	for {
		n := s.Recv(batch)
		for i := range batch[:n] {
			s.Release(&batch[i])
		}
		s.Refill()
		if n == 0 && stop.Load() && s.Wait(10*time.Millisecond, -1) == 0 {
			return s.stats.RxPackets
		}
	}
}
