// Package fairness lets flows of the engine and flows of the kernel's TCP compete for one path, and says how
// they shared it.
//
// All flows are plain byte streams from host A to host B, through one relay: one queue, one loss process.
// What counts is the bytes that the readers got between the end of the warm-up and the end. Without a
// bottleneck flows do not touch each other, and the ratio compares loss recovery and congestion control of
// the two stacks under the same loss and round trip, at the same time.
package fairness

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"xwarp/bench/figures"
	"xwarp/bench/relay/impair"
)

// Config says who competes, and for what. Zero fields mean the defaults in brackets.
type Config struct {
	Ours, Kernel int           // flows of each kind [8, if both are 0]
	MTU          int           // [1500]
	RTT          time.Duration // of the empty path
	Rate         int64         // bits per second of the bottleneck, frames with their Ethernet header; 0: none
	Queue        int           // bytes in front of it [one RTT at Rate, at least 64 KiB]
	Loss         float64       // fraction of the packets from A to B
	MarkAbove    int           // bytes in the queue above which ECN-capable packets are marked; 0: never
	Congestion   string        // of the kernel's sockets [cubic, as the engine's]
	Warmup       time.Duration // not measured [3 s]
	Duration     time.Duration // [10 s]
	Rounds       int           // each with fresh connections and another seed [1]
	Seed         uint64
	// Progress, when set, hears of each round before it begins.
	Progress func(round, of int)
}

// Bounds of Config: a typing error must not make ten thousand sockets or run for a day.
const (
	MaxFlows  = 1024
	MaxRounds = 1000
	minQueue  = 64 << 10
)

// ErrConfig is wrapped by complaints about a Config.
var ErrConfig = errors.New("cannot be shared")

// Complete fills in defaults and checks.
func (c *Config) Complete() error {
	if c.Ours == 0 && c.Kernel == 0 {
		c.Ours, c.Kernel = 8, 8
	}
	if c.MTU == 0 {
		c.MTU = 1500
	}
	if c.Congestion == "" {
		c.Congestion = "cubic"
	}
	if c.Warmup == 0 {
		c.Warmup = 3 * time.Second
	}
	if c.Duration == 0 {
		c.Duration = 10 * time.Second
	}
	if c.Rounds == 0 {
		c.Rounds = 1
	}
	if c.Queue == 0 && c.Rate > 0 {
		c.Queue = max(minQueue, int(c.RTT.Seconds()*float64(c.Rate)/8))
	}
	switch n := c.Ours + c.Kernel; {
	case c.Ours < 0 || c.Kernel < 0 || n > MaxFlows:
		return fmt.Errorf("%w: %d and %d flows, at most %d in all", ErrConfig, c.Ours, c.Kernel,
			MaxFlows)
	case c.Rounds < 0 || c.Rounds > MaxRounds:
		return fmt.Errorf("%w: %d rounds are not in 1 to %d", ErrConfig, c.Rounds, MaxRounds)
	case c.Warmup < 0 || c.Duration < 0 || c.RTT < 0:
		return fmt.Errorf("%w: a time is negative", ErrConfig)
	}
	ab := c.there()
	if err := ab.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}

// there and back are the path's two directions.
func (c *Config) there() impair.Config {
	p := c.back()
	p.Rate, p.Queue, p.Loss, p.MarkAbove = c.Rate, c.Queue, c.Loss, c.MarkAbove
	return p
}

func (c *Config) back() impair.Config { return impair.Config{Delay: c.RTT / 2} }

// Round is what one round gave. Rates are bits per second of payload, one per flow.
type Round struct {
	Ours       []float64 `json:"ours_bits_per_second"`
	Kernel     []float64 `json:"kernel_bits_per_second"`
	Ratio      float64   `json:"ratio"` // mean of ours by mean of the kernel's; 0 without both
	JainOurs   float64   `json:"jain_ours"`
	JainKernel float64   `json:"jain_kernel"`
	Jain       float64   `json:"jain"` // of all flows
	Used       float64   `json:"used"` // payload of all by Rate; 0 without a rate
	Dropped    uint64    `json:"queue_dropped"`
	Lost       uint64    `json:"lost"`
	Marked     uint64    `json:"marked"`
}

// Result is all rounds and the medians over them.
type Result struct {
	Congestion string  `json:"kernel_congestion_control"` // as the kernel confirmed it
	Rounds     []Round `json:"rounds"`
	Median     Round   `json:"median"` // of each figure by itself; the rates are left out
}

// Jain returns Jain's fairness index: 1 when all are equal, 1/n when one has everything; 0 for none.
func Jain(x []float64) float64 {
	var sum, squares float64
	for _, v := range x {
		sum, squares = sum+v, squares+v*v
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(x)) * squares)
}

func mean(x []float64) (m float64) {
	for _, v := range x {
		m += v / float64(len(x))
	}
	return m
}

// judge computes what follows from the rates.
func (r *Round) judge(rate int64) {
	if len(r.Ours) > 0 && len(r.Kernel) > 0 && mean(r.Kernel) > 0 {
		r.Ratio = mean(r.Ours) / mean(r.Kernel)
	}
	all := slices.Concat(r.Ours, r.Kernel)
	r.JainOurs, r.JainKernel, r.Jain = Jain(r.Ours), Jain(r.Kernel), Jain(all)
	if rate > 0 {
		r.Used = mean(all) * float64(len(all)) / float64(rate)
	}
}

// median computes r.Median.
func (r *Result) median() {
	pick := func(f func(*Round) float64) float64 {
		var v []float64
		for i := range r.Rounds {
			v = append(v, f(&r.Rounds[i]))
		}
		mid, _, _ := figures.Spread(v)
		return mid
	}
	m := &r.Median
	m.Ratio = pick(func(x *Round) float64 { return x.Ratio })
	m.JainOurs = pick(func(x *Round) float64 { return x.JainOurs })
	m.JainKernel = pick(func(x *Round) float64 { return x.JainKernel })
	m.Jain = pick(func(x *Round) float64 { return x.Jain })
	m.Used = pick(func(x *Round) float64 { return x.Used })
}
