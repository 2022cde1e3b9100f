package layers

import (
	"bytes"
	"runtime"
	"testing"
)

// TestPaths checks that the rig moves data, with the engine allocating nothing per segment.
func TestPaths(t *testing.T) {
	for _, markers := range []bool{true, false} {
		r, err := newRig(1500, markers)
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
			t.Errorf("markers %v: %v allocations in 50 turns", markers, n)
		}
		if r.a.done == 0 || !bytes.Equal(r.a.mem, r.b.mem) {
			t.Errorf("markers %v: %d Writes complete, memories differ", markers, r.a.done)
		}
	}
}

// TestParts checks that every part can be measured for segments of any size.
func TestParts(t *testing.T) {
	runtime.LockOSThread() // cpuTime is the thread's
	defer runtime.UnlockOSThread()
	for _, n := range []int{1448, 8948} {
		for _, r := range parts(n) {
			if r.Nanos <= 0 || r.Note != "" {
				t.Errorf("%d bytes: %+v", n, r)
			}
		}
	}
}

// BenchmarkPaths moves segments over the fake ring; an operation is one segment.
func BenchmarkPaths(b *testing.B) { benchmarkPaths(b, false) }

// BenchmarkPathsMarkers is BenchmarkPaths with markers.
func BenchmarkPathsMarkers(b *testing.B) { benchmarkPaths(b, true) }

func benchmarkPaths(b *testing.B, markers bool) {
	runtime.LockOSThread() // cpuTime is the thread's
	defer runtime.UnlockOSThread()
	r, err := newRig(1500, markers)
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	r.a.spent, r.b.spent, r.work.spent = 0, 0, 0
	b.ResetTimer()
	for n < b.N {
		if err := r.postWrites(); err != nil {
			b.Fatal(err)
		}
		n += r.stepBoth()
	}
	b.ReportMetric(float64(r.work.spent)/float64(n), "ns/work")
	b.ReportMetric(float64(r.b.spent)/float64(n), "ns/received")
	b.ReportMetric(float64(r.a.spent)/float64(n), "ns/sent")
}
