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
	// Peak is the highest rate in bytes per second over any stretch of at least peakSpan.
	Peak float64 `json:"peak,omitempty"`
	// Frames is the number of frames with payload that this end sent; for raw frames, that the server received.
	// FrameBytes is the sum of their TCP payload.
	Frames     uint64     `json:"frames,omitempty"`
	FrameBytes uint64     `json:"frame_bytes,omitempty"`
	Latency    *Latencies `json:"latency,omitempty"`
	// HeldHigh is the maximum number of bytes that one connection held because of a gap before them.
	HeldHigh    int    `json:"held_high,omitempty"`
	Retransmits uint64 `json:"retransmits,omitempty"`
	PureAcks    uint64 `json:"pure_acks,omitempty"`
	Mallocs     uint64 `json:"mallocs"` // in the process while the clock ran
	GCs         uint32 `json:"gcs"`
	// CPU is the processor time of the process while the clock ran, in seconds.
	CPU float64 `json:"cpu"`
	// Processors is the average number of processors that the process kept busy, from before the first connection to
	// the end.
	Processors float64 `json:"processors,omitempty"`
}

// Rate returns bytes per second.
func (r *Result) Rate() float64 { return float64(r.Bytes) / r.Seconds }

// MessageRate returns messages per second.
func (r *Result) MessageRate() float64 { return float64(r.Messages) / r.Seconds }

// withProcessors runs f and adds to its result how many processors the process kept busy meanwhile.
func withProcessors(f func() (*Result, error)) (*Result, error) {
	from, spent := time.Now(), processorTime()
	r, err := f()
	if r != nil {
		r.Processors = (processorTime() - spent) / time.Since(from).Seconds()
	}
	return r, err
}

// Latencies are in microseconds: half of a round trip for a ping-pong, the whole operation for Reads and connections.
type Latencies struct {
	Count                                        int64   `json:"count"`
	Min, P50, Mean, Stdev, P99, P999, P9999, Max float64 `json:",omitempty"`
	// CDF is the distribution: pairs of a latency and the fraction of rounds that took at most that time.
	CDF [][2]float64 `json:"cdf,omitempty"`
}

// longest is the largest latency in nanoseconds that the histogram records. A longer one counts as longest.
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

// DisableGC switches the garbage collector off as long as the heap is below limit bytes.
func DisableGC(limit int64) {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(limit)
}

// resourceUse counts allocations, garbage collections and processor time from recordStart to addTo. Its readings do not
// stop the other goroutines, unlike runtime.ReadMemStats.
type resourceUse struct {
	now  [2]metrics.Sample
	from [2]uint64
	cpu  float64
}

// prepare makes a first reading, because only that one allocates. It also records a start.
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

// window is the measured time of a test. With Iterations it covers the whole test. Otherwise it lasts for Duration,
// after the warm-up.
type window struct {
	spec       *Spec
	began      time.Time // start of the test
	from, to   time.Time // start and end of the window
	at, after  uint64    // messages complete at from and at to
	open, over bool      // from is set; to is set

	mark   time.Time // start of the current stretch for the peak
	marked uint64    // messages complete at mark
	peak   float64   // messages per second

	mem resourceUse
	got Result // the resource use during the window
}

// peakSpan is the shortest stretch for which Peak is computed, long enough that one batch of completions is no peak.
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

// tick tells the window that n messages are complete now. It opens and closes a window of time, and reports whether the
// source should go on. A window of iterations is closed by finish.
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

// finish closes the window if it is not closed yet, with n messages complete.
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

// rounds is a window over operations that follow each other, with a histogram of their durations.
type rounds struct {
	window
	n         uint64
	histogram *hdrhistogram.Histogram
}

func newRounds(s *Spec) rounds {
	return rounds{window: window{spec: s}, histogram: hdrhistogram.New(1, longest, 3)}
}

// addRound records a round that lasted from from to to. It reports whether another round should follow.
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
		unit = 2e3 // half of a round trip
	}
	res := r.window.result()
	res.Latency, res.Peak = latencies(r.histogram, unit), 0
	return res
}

// Spread returns the median, the smallest and the largest of v, which must not be empty.
func Spread(v []float64) (mid, lo, hi float64) {
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2, s[0], s[n-1]
}
