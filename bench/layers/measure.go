// Package layers measures the cost of one segment in each layer, without any network: nanoseconds and allocations.
//
// The parts are measured alone with everything in the cache. The paths of both ends run two engines on fake rings, and
// only the time inside the engine counts. The kernel's work for a frame is not included.
package layers

import (
	"fmt"
	"io"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/bench/endpoint"
)

// Row is one line of the budget: one layer.
type Row struct {
	Name   string  `json:"name"`
	Part   string  `json:"part"` // "receive", "send" or "both"
	Nanos  float64 `json:"ns"`   // per segment, median of the rounds
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Allocs float64 `json:"allocations"` // per segment
	Note   string  `json:"note,omitempty"`
}

// rounds and span are how often and how long each part is measured.
const (
	rounds = 7
	span   = 40 * time.Millisecond
)

// loop measures f, which does its work n times.
func loop(name, part string, f func(n int)) Row {
	n := 64
	for {
		start := cpuTime()
		f(n)
		if d := cpuTime() - start; d > span/4 {
			n = max(1, int(float64(n)*float64(span)/float64(d)))
			break
		}
		n *= 4
	}
	var ns []float64
	before := mallocs()
	for range rounds {
		start := cpuTime()
		f(n)
		ns = append(ns, float64(cpuTime()-start)/float64(n))
	}
	return row(name, part, ns, float64(mallocs()-before)/float64(n*rounds))
}

func row(name, part string, ns []float64, allocs float64) Row {
	mid, low, high := endpoint.Spread(ns)
	if allocs < 1e-3 {
		allocs = 0 // the clock's and the collector's own
	}
	return Row{Name: name, Part: part, Nanos: mid, Low: low, High: high, Allocs: allocs}
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// Budget is the cost of a segment with payload bytes.
type Budget struct {
	Payload int   `json:"payload"`
	Markers bool  `json:"markers"`
	Rows    []Row `json:"rows"`
	// Ratio is the whole receive path against the bare work on the same memory: median, lowest and highest of
	// the rounds.
	Ratio [3]float64 `json:"receive_to_work"`
}

// Measure measures every layer for segments of a link with this MTU.
func Measure(mtu int, markers bool) (*Budget, error) {
	runtime.LockOSThread() // cpuTime is the thread's
	defer runtime.UnlockOSThread()
	b := &Budget{Payload: mtu - 52, Markers: markers}
	steer, err := steering()
	if err != nil {
		b.Rows = append(b.Rows, Row{Name: "steer (BPF)", Part: "receive", Note: err.Error()})
	} else {
		b.Rows = append(b.Rows, steer)
	}
	b.Rows = append(b.Rows, parts(b.Payload)...)
	rows, ratio, err := paths(mtu, markers)
	b.Rows, b.Ratio = append(b.Rows, rows...), ratio
	return b, err
}

// WriteMarkdown writes the budget as a table.
func (b *Budget) WriteMarkdown(w io.Writer) error {
	how := "no markers"
	if b.Markers {
		how = "markers"
	}
	_, err := fmt.Fprintf(w, "Segments of %d bytes, %s\n\n| layer | path | ns per segment | "+
		"spread | allocations |\n|---|---|---:|---|---:|\n", b.Payload, how)
	for _, r := range b.Rows {
		if err != nil {
			return err
		}
		if r.Note != "" && r.Nanos == 0 {
			_, err = fmt.Fprintf(w, "| %s | %s | – | %s | |\n", r.Name, r.Part, r.Note)
			continue
		}
		_, err = fmt.Fprintf(w, "| %s | %s | %.1f | %.1f – %.1f | %.3g |\n", r.Name, r.Part,
			r.Nanos, r.Low, r.High, r.Allocs)
	}
	if err == nil {
		_, err = fmt.Fprintf(w, "\nThe whole receive path takes %.2f times the bare work on the "+
			"same memory (%.2f – %.2f).\n", b.Ratio[0], b.Ratio[1], b.Ratio[2])
	}
	return err
}

// cpuTime is the processor time of the calling thread. Other programs disturb it less than wall-clock time.
func cpuTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// clockCost is the time that reading the clock adds to a span measured with cpuTime. It is the least of many readings,
// so that never more than the cost is subtracted.
func clockCost() time.Duration {
	least := time.Duration(1 << 62)
	for range 10_000 {
		start := cpuTime()
		if d := cpuTime() - start; d > 0 { // not when the goroutine moved to another thread
			least = min(least, d)
		}
	}
	return least
}
