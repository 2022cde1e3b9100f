package endpoint

import (
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is the measurement of one end.
type Result struct {
	Messages uint64  `json:"messages"`
	Bytes    uint64  `json:"bytes"` // of messages, in one direction
	Seconds  float64 `json:"seconds"`
	// Peak is the most bytes per second in any stretch of at least peakSpan.
	Peak float64 `json:"peak,omitempty"`
	// Frames is how many frames with payload left or, of raw peers, arrived; FrameBytes their payload above
	// TCP's header.
	Frames     uint64     `json:"frames,omitempty"`
	FrameBytes uint64     `json:"frame_bytes,omitempty"`
	Latency    *Latencies `json:"latency,omitempty"`
	// HeldHigh is the most bytes that one connection held back because others before them were missing.
	HeldHigh    int    `json:"held_high,omitempty"`
	Retransmits uint64 `json:"retransmits,omitempty"`
	PureAcks    uint64 `json:"pure_acks,omitempty"`
	Mallocs     uint64 `json:"mallocs"` // in the process while the clock ran
	GCs         uint32 `json:"gcs"`
	// CPU is processor time of the process while the clock ran, in seconds.
	CPU float64 `json:"cpu"`
	// Processors is how many the process kept busy from the first connection to the end.
	Processors float64 `json:"processors,omitempty"`
}

// Rate returns bytes per second, MessageRate messages per second.
func (r *Result) Rate() float64 { return float64(r.Bytes) / r.Seconds }

// MessageRate returns messages per second.
func (r *Result) MessageRate() float64 { return float64(r.Messages) / r.Seconds }

// loaded runs f and says how many processors the process kept busy meanwhile.
func loaded(f func() (*Result, error)) (*Result, error) {
	from, spent := time.Now(), processorTime()
	r, err := f()
	if r != nil {
		r.Processors = (processorTime() - spent) / time.Since(from).Seconds()
	}
	return r, err
}

// Latencies are in microseconds, one way; for Reads, of the whole operation.
type Latencies struct {
	Count                                        int64   `json:"count"`
	Min, P50, Mean, Stdev, P99, P999, P9999, Max float64 `json:",omitempty"`
	// CDF has pairs of microseconds and fraction.
	CDF [][2]float64 `json:"cdf,omitempty"`
}

// longest is the upper bound of the latency histogram: longer ones count as this.
const longest = int64(10 * time.Second)

// latencies returns the percentiles of a histogram of nanoseconds. unit is the number of nanoseconds in one unit of
// Latencies.
func latencies(h *hdrhistogram.Histogram, unit float64) *Latencies {
	q := func(p float64) float64 { return float64(h.ValueAtQuantile(p)) / unit }
	l := &Latencies{
		Count: h.TotalCount(), Min: float64(h.Min()) / unit, P50: q(50),
		Mean: h.Mean() / unit, Stdev: h.StdDev() / unit,
		P99: q(99), P999: q(99.9), P9999: q(99.99), Max: float64(h.Max()) / unit,
	}
	for _, p := range []float64{
		1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 97, 98, 99, 99.5, 99.8, 99.9, 99.95, 99.98,
		99.99, 99.999,
	} {
		l.CDF = append(l.CDF, [2]float64{q(p), p / 100})
	}
	return l
}

// Quiet switches the garbage collector off as long as the heap is below limit bytes.
func Quiet(limit int64) {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(limit)
}

// resourceUse counts allocations, collections and processor time from recordStart to addTo. It stops nothing.
type resourceUse struct {
	now  [2]metrics.Sample
	from [2]uint64
	cpu  float64
}

// prepare makes the first reading, which allocates.
func (m *resourceUse) prepare() {
	m.now[0].Name, m.now[1].Name = "/gc/heap/allocs:objects", "/gc/cycles/total:gc-cycles"
	m.recordStart()
}

func (m *resourceUse) recordStart() {
	metrics.Read(m.now[:])
	for i := range m.now {
		m.from[i] = m.now[i].Value.Uint64()
	}
	m.cpu = processorTime()
}

func (m *resourceUse) addTo(r *Result) {
	metrics.Read(m.now[:])
	r.Mallocs, r.GCs = m.now[0].Value.Uint64()-m.from[0], uint32(m.now[1].Value.Uint64()-m.from[1])
	r.CPU = processorTime() - m.cpu
}

// window is the time that is measured: all of it, or from one point of time to another.
type window struct {
	spec       *Spec
	began      time.Time
	from, to   time.Time
	at, after  uint64 // messages
	open, over bool

	mark   time.Time // where the stretch for the peak began
	marked uint64
	peak   float64 // messages per second

	mem resourceUse
	got Result // mem's own count
}

// peakSpan is long enough that one batch of completions is no peak.
const peakSpan = 5 * time.Millisecond

func (w *window) sample(now time.Time, n uint64) {
	if w.mark.IsZero() {
		w.mark, w.marked = now, n
		return
	}
	if d := now.Sub(w.mark); d >= peakSpan {
		w.peak = max(w.peak, float64(n-w.marked)/d.Seconds())
		w.mark, w.marked = now, n
	}
}

func (w *window) openAt(now time.Time) {
	w.began = now
	w.mem.prepare()
	if w.spec.Iterations > 0 {
		w.from, w.open = now, true
	}
}

// tick is called after each progress, when n messages are complete. It reports whether the source should go on.
func (w *window) tick(now time.Time, n uint64) bool {
	if w.open && !w.over {
		w.sample(now, n)
	}
	if w.spec.Iterations > 0 || w.over {
		return !w.over
	}
	switch {
	case !w.open && now.Sub(w.began) >= w.spec.Warmup:
		w.open, w.from, w.at = true, now, n
		w.mem.recordStart()
	case w.open && now.Sub(w.from) >= w.spec.Duration:
		w.close(now, n)
	}
	return !w.over
}

// finish closes a window of iterations.
func (w *window) finish(now time.Time, n uint64) {
	if !w.over {
		w.close(now, n)
	}
}

func (w *window) close(now time.Time, n uint64) {
	w.over, w.to, w.after = true, now, n
	w.mem.addTo(&w.got)
}

func (w *window) result() *Result {
	n := w.after - w.at
	r := &Result{Messages: n, Bytes: n * uint64(w.spec.Size), Seconds: w.to.Sub(w.from).Seconds()}
	r.Mallocs, r.GCs, r.CPU = w.got.Mallocs, w.got.GCs, w.got.CPU
	if r.Seconds > 0 {
		r.Peak = max(w.peak*float64(w.spec.Size), r.Rate())
	}
	return r
}

// rounds measures operations that follow each other, and how long each of them takes.
type rounds struct {
	window
	n         uint64
	histogram *hdrhistogram.Histogram
}

func newRounds(s *Spec) rounds {
	return rounds{window: window{spec: s}, histogram: hdrhistogram.New(1, longest, 3)}
}

// addRound takes one round, and reports whether there are more.
func (r *rounds) addRound(from, to time.Time) bool {
	r.n++
	if r.open {
		r.histogram.RecordValue(min(int64(to.Sub(from)), longest))
	}
	if n := uint64(r.spec.Iterations); n > 0 && r.n >= n {
		r.finish(to, r.n)
	}
	return r.tick(to, r.n)
}

func (r *rounds) result() *Result {
	unit := 1e3
	if r.spec.Mode == Latency && r.spec.Verb != Read {
		unit = 2e3 // to and fro
	}
	res := r.window.result()
	res.Latency, res.Peak = latencies(r.histogram, unit), 0
	return res
}

// Spread returns median, smallest and largest of v, which has at least one.
func Spread(v []float64) (mid, lo, hi float64) {
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2, s[0], s[n-1]
}
