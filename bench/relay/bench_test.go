package relay

import (
	"encoding/binary"
	"testing"
	"time"

	"xwarp/bench/relay/impair"
	"xwarp/bench/topo"
)

// BenchmarkForward carries frames of 1514 bytes from A to B. The sender runs on another core and keeps at most a
// quarter of the ring under way, so that the ring never overflows. So ns/op is the time that the relay's core takes per
// frame.
func BenchmarkForward(b *testing.B) {
	for _, c := range []struct {
		name string
		cfg  impair.Config
	}{
		{"clean", impair.Config{}},
		{"impaired", impair.Config{Reorder: 0.01, Duplicate: 0.001, Corrupt: 0.01}},
	} {
		b.Run(c.name, func(b *testing.B) {
			n, r := start(b, topo.Options{}, Config{AB: c.cfg})
			var a *end
			if err := n.A.Do(func() (err error) {
				a, err = openEnd(n.A.Link.Index, n.A.Link.MTU)
				return err
			}); err != nil {
				b.Fatal(err)
			}
			defer a.close()
			batch := tcpFrames(n, 32)
			const window = ringBytes / 2048 / 4
			in := func() int { return int(r.Counters(AToB).In) }
			base := in()
			b.SetBytes(int64(len(batch[0].Data)))
			b.ResetTimer()
			seen := base
			for sent := 0; sent < b.N; sent += len(batch) {
				for ; sent-(seen-base) > window; seen = in() {
					time.Sleep(50 * time.Microsecond)
				}
				for _, f := range batch {
					a.send(f)
				}
			}
			for in()-base < b.N {
				time.Sleep(50 * time.Microsecond)
			}
			b.StopTimer()
			if c := r.Counters(AToB); c.Overflow+c.SendErrors > 0 {
				b.Fatalf("frames were lost: %+v", c)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
		})
	}
}

// tcpFrames returns count frames with full-sized TCP segments from A to B. Their TCP checksum is wrong, so that B's
// kernel drops them without an answer.
func tcpFrames(n *topo.Net, count int) (fs []*impair.Buf) {
	pool := impair.NewPool(1522)
	for range count {
		f := pool.Get(1514)
		clear(f.Data)
		copy(f.Data, n.B.Link.MAC)
		copy(f.Data[6:], n.A.Link.MAC)
		ip := f.Data[14:]
		binary.BigEndian.PutUint16(f.Data[12:], 0x0800)
		ip[0], ip[8], ip[9] = 0x45, 64, 6
		binary.BigEndian.PutUint16(ip[2:], 1500)
		copy(ip[12:], n.A.Addr4.Addr().AsSlice())
		copy(ip[16:], n.B.Addr4.Addr().AsSlice())
		sum := uint32(0)
		for i := 0; i < 20; i += 2 {
			sum += uint32(binary.BigEndian.Uint16(ip[i:]))
		}
		sum = sum&0xffff + sum>>16
		binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
		ip[32] = 5 << 4
		fs = append(fs, f)
	}
	return fs
}
