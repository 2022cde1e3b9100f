package matrix

import (
	"math"
	"slices"

	"xwarp/bench/endpoint"
)

// missing is the value of a round that failed, and of a metric that a variant does not have. JSON has no NaN.
const missing = -1

// allMetrics are all metrics, in the order of the report.
var allMetrics = []Metric{Gbps, Messages, Frames, Busy, Cost, P50, P99, P999, Longest, Turn, Held}

// add adds the values of one round: those of rep, or missing values if err is not nil.
func (v *VariantResult) add(rep *endpoint.Report, err error) {
	put := func(m Metric, x float64) { v.Values[m] = append(v.Values[m], x) }
	if err != nil {
		v.Failures = append(v.Failures, err.Error())
		for _, m := range allMetrics {
			put(m, missing)
		}
		return
	}
	r := rep.Main()
	byteCount, messages := r.Rate(), r.MessageRate()
	if s := rep.Server; rep.Spec.Bidirectional {
		byteCount, messages = byteCount+s.Rate(), messages+s.MessageRate()
	}
	put(Gbps, byteCount*8e-9)
	put(Messages, messages)
	put(Frames, frameRate(rep, r, byteCount))
	put(Held, float64(max(r.HeldHigh, rep.Server.HeldHigh)))
	l := r.Latency
	if l == nil {
		l = &endpoint.Latencies{P50: missing, P99: missing, P999: missing, Max: missing}
	} else {
		v.CDF = l.CDF
	}
	put(P50, l.P50)
	put(P99, l.P99)
	put(P999, l.P999)
	put(Longest, l.Max)
	put(Busy, microsPerFrame(rep))
	put(Cost, nanosPerMiB(rep, byteCount))
	put(Turn, microsPerMessage(rep, messages))
	v.Allocations = max(v.Allocations, r.Mallocs, rep.Server.Mallocs)
	v.Collections = max(v.Collections, r.GCs, rep.Server.GCs)
}

// microsPerFrame returns the microseconds of processor time that the sender spent per frame, spinning included. It
// returns missing if that is unknown or the sender only issues Reads.
func microsPerFrame(rep *endpoint.Report) float64 {
	c := rep.Client
	frames := c.Frames
	if rep.Spec.Peer.Frames() {
		frames = c.Messages // a sender of raw frames counts each frame as a message
	} else if c.FrameBytes > 0 {
		frames = c.Bytes * c.Frames / c.FrameBytes
	}
	if frames == 0 || c.CPU == 0 || rep.Spec.Mode != endpoint.Bandwidth ||
		rep.Spec.Verb == endpoint.Read {
		return missing
	}
	return 1e6 * c.CPU / float64(frames)
}

// nanosPerMiB returns the nanoseconds of processor time that both processes spent per MiB of messages. It includes
// spinning, and the kernel's work that is charged to the processes.
func nanosPerMiB(rep *endpoint.Report, byteCount float64) float64 {
	busy := rep.Client.Processors + rep.Server.Processors
	if byteCount == 0 || busy == 0 || rep.Spec.Mode != endpoint.Bandwidth {
		return missing
	}
	return 1e9 * busy * mebibyte / byteCount
}

// microsPerMessage returns the microseconds of processor time that both processes of a ping-pong spent per message. It
// includes the same as nanosPerMiB.
func microsPerMessage(rep *endpoint.Report, messages float64) float64 {
	busy := rep.Client.Processors + rep.Server.Processors
	if messages == 0 || busy == 0 || rep.Spec.Mode != endpoint.Latency {
		return missing
	}
	return 1e6 * busy / messages
}

// frameRate returns frames with payload per second. For RDMA it is the rate of message bytes divided by the average
// payload of the connection's segments.
func frameRate(rep *endpoint.Report, r *endpoint.Result, byteCount float64) float64 {
	switch {
	case rep.Spec.Peer.Frames():
		return float64(r.Frames) / r.Seconds
	case r.Frames > 0 && r.FrameBytes > 0:
		return byteCount * float64(r.Frames) / float64(r.FrameBytes)
	}
	return missing
}

// median returns the median of v, missing when v is empty.
func median(v []float64) float64 {
	m, _, _ := spread(v)
	return m
}

// spread returns median, smallest and largest of the rounds that did not fail.
func spread(v []float64) (mid, lo, hi float64) {
	ok := slices.DeleteFunc(slices.Clone(v), func(x float64) bool {
		return x == missing || math.IsNaN(x) || math.IsInf(x, 0)
	})
	if len(ok) == 0 {
		return missing, missing, missing
	}
	return endpoint.Spread(ok)
}

// quotient divides the values of each round: a[i] by b[i]. A round in which either is missing, or b[i] is 0, has no
// quotient.
func quotient(a, b []float64) []float64 {
	q := make([]float64, min(len(a), len(b)))
	for i := range q {
		q[i] = missing
		if a[i] != missing && b[i] != missing && b[i] != 0 {
			q[i] = a[i] / b[i]
		}
	}
	return q
}

// best divides the best value of a by the best value of b, because other load only makes a round worse. The best value
// is the smallest if small, otherwise the largest.
func best(a, b []float64, small bool) float64 {
	pick := func(v []float64) float64 {
		_, lo, hi := spread(v)
		if small {
			return lo
		}
		return hi
	}
	x, y := pick(a), pick(b)
	if x == missing || y == missing || y == 0 {
		return missing
	}
	return x / y
}
