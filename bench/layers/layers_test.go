// Package layers measures the cost of one segment in each layer, without any network: nanoseconds and allocations.
// The kernel's work for a frame is not included. make layers writes the table of results.
package layers

import (
	"bytes"
	"flag"
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"

	"xwarp/bench/topo"
	"xwarp/bpf"
)

// TestPaths checks that the Writes of the rig arrive unchanged and that the engines allocate nothing, with frames and
// with whole blocks.
func TestPaths(t *testing.T) {
	for _, c := range []struct{ markers, blocks bool }{{true, false}, {false, false}, {true, true},
		{false, true}} {
		r, err := newRig(1500, c.markers, c.blocks)
		if err != nil {
			t.Fatal(err)
		}
		for i := range r.a.mem {
			r.a.mem[i] = byte(i * 7)
		}
		run := func() {
			for range 50 {
				if err := r.postWrites(); err != nil {
					t.Fatal(err)
				}
				if r.stepBoth() == 0 {
					t.Fatalf("nothing moved: %v %v", r.a.ended, r.b.ended)
				}
			}
		}
		run()
		if n := testing.AllocsPerRun(5, run); n != 0 {
			t.Errorf("%+v: %v allocations in 50 turns", c, n)
		}
		if r.a.done == 0 || !bytes.Equal(r.a.mem, r.b.mem) {
			t.Errorf("%+v: %d Writes complete, memories differ", c, r.a.done)
		}
		sent := r.a.stk.Stats().TxBytes
		if whole := sent < 100_000*uint64(r.blocks); whole != c.blocks {
			t.Errorf("%+v: %d bytes in %d blocks", c, sent, r.blocks)
		}
	}
}

// TestParts checks that every part can be measured, for segments of two sizes.
func TestParts(t *testing.T) {
	benchtime := flag.Lookup("test.benchtime").Value
	defer benchtime.Set(benchtime.String())
	benchtime.Set("10x")
	for _, n := range []int{1448, 8948} {
		for _, p := range parts {
			r := testing.Benchmark(func(b *testing.B) { p.run(b, n) })
			if r.N < 10 || r.T <= 0 {
				t.Errorf("%s, %d bytes: %+v", p.name, n, r)
			}
		}
	}
}

// BenchmarkPath moves segments between two engines over the fake ring. An operation is one segment. It reports the time
// in each engine, and for comparison the time of bare: the unavoidable work on the same frames.
func BenchmarkPath(b *testing.B) {
	for _, mtu := range []int{1500, 9000} {
		for _, markers := range []bool{false, true} {
			b.Run(fmt.Sprintf("bytes=%d/markers=%v", mtu-52, markers), func(b *testing.B) {
				b.ReportAllocs()
				benchmarkPath(b, mtu, markers)
			})
		}
	}
}

func benchmarkPath(b *testing.B, mtu int, markers bool) {
	runtime.LockOSThread() // cpuTime is the thread's
	defer runtime.UnlockOSThread()
	r, err := newRig(mtu, markers, false)
	if err != nil {
		b.Fatal(err)
	}
	move := func(segments int) (n int) {
		for n < segments {
			if err := r.postWrites(); err != nil {
				b.Fatal(err)
			}
			k := r.stepBoth()
			if k == 0 {
				b.Fatalf("nothing moved: %v %v", r.a.ended, r.b.ended)
			}
			n += k
		}
		return n
	}
	move(100_000) // to warm up
	r.a.spent, r.b.spent, r.work.spent = 0, 0, 0
	b.ResetTimer()
	n := float64(move(b.N))
	b.ReportMetric(0, "ns/op") // not shown: it includes both engines and the rig
	b.ReportMetric(float64(r.work.spent)/n, "ns/work")
	b.ReportMetric(float64(r.b.spent)/n, "ns/received")
	b.ReportMetric(float64(r.a.spent)/n, "ns/sent")
	b.ReportMetric(float64(r.b.spent)/float64(r.work.spent), "received/work")
}

// BenchmarkSteer measures the XDP program's decision for a segment of a connection in its flow table. The kernel's test
// harness for BPF programs runs the program.
func BenchmarkSteer(b *testing.B) {
	net, err := topo.New(topo.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer net.Close()
	if err := net.A.Do(func() error { return benchmarkSteer(b, &net.A.Link) }); err != nil {
		b.Fatal(err)
	}
}

func benchmarkSteer(b *testing.B, link *topo.Link) error {
	s, err := bpf.Load(bpf.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	at, err := s.Attach(link.Index, bpf.ModeAuto)
	if err != nil {
		return err
	}
	if err := s.AddFlow(netip.MustParseAddrPort("192.0.2.2:2"),
		netip.MustParseAddrPort("192.0.2.1:1")); err != nil {
		return err
	}
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(at.ProgramID))
	if err != nil {
		return fmt.Errorf("the steering program: %w", err)
	}
	defer p.Close()
	f := append(make([]byte, 14), segment(1400)...)
	copy(f, link.MAC)
	f[12] = 8
	b.ResetTimer()
	_, each, err := p.Benchmark(f, b.N, b.ResetTimer)
	b.StopTimer()
	b.ReportMetric(float64(each), "ns/op")
	return err
}
