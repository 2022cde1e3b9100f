package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"xwarp/bench/endpoint"
	"xwarp/bench/relay"
	"xwarp/bench/relay/impair"
	"xwarp/bench/topo"
	"xwarp/engine/xdp"
)

// ShareConfig configures the competing flows and the link that they share. Zero fields mean the defaults in brackets.
type ShareConfig struct {
	Ours, Kernel int           // flows of each kind [8, if both are 0]
	MTU          int           // [1500]
	RTT          time.Duration // of the empty path
	Rate         int64         // bits per second of the bottleneck, frames with their Ethernet header; 0: none
	Queue        int           // length of the bottleneck's queue in bytes [one RTT at Rate, at least 64 KiB]
	Loss         float64       // fraction of the packets from A to B that the path drops
	MarkAbove    int           // bytes in the queue above which ECN-capable packets are marked; 0: never
	Congestion   string        // of the kernel's sockets [cubic, as the engine's]
	Warmup       time.Duration // not measured [3 s]
	Duration     time.Duration // [10 s]
	Rounds       int           // each with fresh connections and another seed [1]
	Seed         uint64
	// Progress, if set, is called before each round.
	Progress func(round, of int)
}

// maxFlows and maxShareRounds limit ShareConfig, so that a typing error does not open ten thousand sockets or run for a
// day. minQueue is the minimum of the default Queue.
const (
	maxFlows       = 1024
	maxShareRounds = 1000
	minQueue       = 64 << 10
)

// errShareConfig is wrapped by errors of a ShareConfig.
var errShareConfig = errors.New("invalid configuration")

// Complete sets defaults and validates c.
func (c *ShareConfig) Complete() error {
	if c.Ours == 0 && c.Kernel == 0 {
		c.Ours, c.Kernel = 8, 8
	}
	c.MTU = cmp.Or(c.MTU, 1500)
	c.Congestion = cmp.Or(c.Congestion, "cubic")
	c.Warmup = cmp.Or(c.Warmup, 3*time.Second)
	c.Duration = cmp.Or(c.Duration, 10*time.Second)
	c.Rounds = cmp.Or(c.Rounds, 1)
	if c.Queue == 0 && c.Rate > 0 {
		c.Queue = max(minQueue, int(c.RTT.Seconds()*float64(c.Rate)/8))
	}
	switch n := c.Ours + c.Kernel; {
	case c.Ours < 0 || c.Kernel < 0 || n > maxFlows:
		return fmt.Errorf("%w: %d and %d flows, at most %d in all", errShareConfig, c.Ours,
			c.Kernel,
			maxFlows)
	case c.Rounds < 0 || c.Rounds > maxShareRounds:
		return fmt.Errorf("%w: rounds of %d are not in 1 to %d", errShareConfig, c.Rounds,
			maxShareRounds)
	case c.Warmup < 0 || c.Duration < 0 || c.RTT < 0:
		return fmt.Errorf("%w: a time is negative", errShareConfig)
	}
	ab := c.forwardPath()
	if err := ab.Validate(); err != nil {
		return fmt.Errorf("%w: %w", errShareConfig, err)
	}
	return nil
}

// forwardPath and reversePath return the two directions of the path: from A to B, which has the bottleneck, and back.
func (c *ShareConfig) forwardPath() impair.Config {
	p := c.reversePath()
	p.Rate, p.Queue, p.Loss, p.MarkAbove = c.Rate, c.Queue, c.Loss, c.MarkAbove
	return p
}

func (c *ShareConfig) reversePath() impair.Config { return impair.Config{Delay: c.RTT / 2} }

// ShareRound is the result of one round. Rates are bits per second of payload, one per flow.
type ShareRound struct {
	Ours       []float64 `json:"ours_bits_per_second"`
	Kernel     []float64 `json:"kernel_bits_per_second"`
	Ratio      float64   `json:"ratio"` // mean rate of xwarp flows divided by that of kernel flows; 0 unless both exist
	JainOurs   float64   `json:"jain_ours"`
	JainKernel float64   `json:"jain_kernel"`
	Jain       float64   `json:"jain"` // of all flows
	Used       float64   `json:"used"` // payload of all flows divided by Rate; 0 without a rate
	Dropped    uint64    `json:"queue_dropped"`
	Lost       uint64    `json:"lost"`
	Marked     uint64    `json:"marked"`
}

// ShareResult is all rounds and the medians over them.
type ShareResult struct {
	Congestion string       `json:"kernel_congestion_control"` // as the kernel confirmed it
	Rounds     []ShareRound `json:"rounds"`
	Median     ShareRound   `json:"median"` // of Ratio, the indexes and Used; its other fields are zero
}

// jainIndex returns Jain's fairness index: 1 if all are equal, 1/n if one has everything, 0 for no flows.
func jainIndex(x []float64) float64 {
	var sum, squares float64
	for _, v := range x {
		sum, squares = sum+v, squares+v*v
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(x)) * squares)
}

func meanOf(x []float64) (m float64) {
	for _, v := range x {
		m += v / float64(len(x))
	}
	return m
}

// judge computes the ratios and indexes from the rates.
func (r *ShareRound) judge(rate int64) {
	if len(r.Ours) > 0 && len(r.Kernel) > 0 && meanOf(r.Kernel) > 0 {
		r.Ratio = meanOf(r.Ours) / meanOf(r.Kernel)
	}
	all := slices.Concat(r.Ours, r.Kernel)
	r.JainOurs, r.JainKernel, r.Jain = jainIndex(r.Ours), jainIndex(r.Kernel), jainIndex(all)
	if rate > 0 {
		r.Used = meanOf(all) * float64(len(all)) / float64(rate)
	}
}

// median computes r.Median.
func (r *ShareResult) median() {
	for _, figure := range []func(*ShareRound) *float64{
		func(x *ShareRound) *float64 { return &x.Ratio },
		func(x *ShareRound) *float64 { return &x.JainOurs },
		func(x *ShareRound) *float64 { return &x.JainKernel },
		func(x *ShareRound) *float64 { return &x.Jain },
		func(x *ShareRound) *float64 { return &x.Used },
	} {
		var v []float64
		for i := range r.Rounds {
			v = append(v, *figure(&r.Rounds[i]))
		}
		*figure(&r.Median), _, _ = endpoint.Spread(v)
	}
}

// shareLink creates the hosts, runs the flows and removes the hosts again. It needs root.
func shareLink(ctx context.Context, cfg ShareConfig) (res *ShareResult, err error) {
	if err := cfg.Complete(); err != nil {
		return nil, err
	}
	// Like the engine, the kernel must compute checksums and send no segment larger than the MTU.
	n, err := topo.New(topo.Options{Relay: true, MTU: cfg.MTU, IPv4Only: true,
		OffloadsA: topo.NoOffloads, OffloadsB: topo.NoOffloads})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	res = &ShareResult{}
	for i := range cfg.Rounds {
		if cfg.Progress != nil {
			cfg.Progress(i+1, cfg.Rounds)
		}
		r, err := measureShareRound(ctx, n, &cfg, cfg.Seed+uint64(i), res)
		if err != nil {
			return nil, fmt.Errorf("round %d: %w", i+1, err)
		}
		res.Rounds = append(res.Rounds, *r)
	}
	res.median()
	return res, nil
}

// measureShareRound starts both kinds of flows one by one, alternating, and measures them.
func measureShareRound(ctx context.Context, n *topo.Net, cfg *ShareConfig, seed uint64,
	res *ShareResult) (_ *ShareRound,
	err error) {
	r, err := relay.Start(n.Relay, relay.Config{AB: cfg.forwardPath(), BA: cfg.reversePath(),
		Seed: seed})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f := &shareRig{cancel: cancel}
	defer f.close()
	kinds, err := f.openStacks(n, cfg)
	if err != nil {
		return nil, err
	}
	for i := range max(cfg.Ours, cfg.Kernel) {
		for k, want := range []int{cfg.Ours, cfg.Kernel} {
			if i < want {
				if err := f.startFlow(ctx, kinds[k]); err != nil {
					return nil, fmt.Errorf("%s: %w", kinds[k].name, err)
				}
			}
		}
	}
	res.Congestion = kinds[1].congestion
	if err := sleepContext(ctx, cfg.Warmup); err != nil {
		return nil, err
	}
	from, before := time.Now(), r.Counters(relay.AToB)
	for _, k := range kinds {
		k.recordStart()
	}
	if err := sleepContext(ctx, cfg.Duration); err != nil {
		return nil, err
	}
	span, after := time.Since(from).Seconds(), r.Counters(relay.AToB)
	out := &ShareRound{
		Ours: kinds[0].rates(span), Kernel: kinds[1].rates(span),
		Dropped: after.QueueDropped - before.QueueDropped, Lost: after.Lost - before.Lost,
		Marked: after.Marked - before.Marked,
	}
	out.judge(cfg.Rate)
	return out, nil
}

func sleepContext(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// openStacks opens the engines and a listener of each kind. kinds[0] is xwarp.
func (f *shareRig) openStacks(n *topo.Net, cfg *ShareConfig) (kinds [2]*sharingStack, err error) {
	a, err := f.openDevice(n.A)
	if err != nil {
		return kinds, err
	}
	b, err := f.openDevice(n.B)
	if err != nil {
		return kinds, err
	}
	if kinds[0], err = engineStack(n, a, b); err != nil {
		return kinds, err
	}
	f.addCleanup(kinds[0].listener.Close)
	if kinds[1], err = kernelStack(n, cfg.Congestion); err != nil {
		return kinds, err
	}
	f.addCleanup(kinds[1].listener.Close)
	return kinds, nil
}

func (f *shareRig) openDevice(h *topo.Host) (d *xdp.Device, err error) {
	err = h.Do(func() (err error) {
		d, err = xdp.Open(xdp.Config{Interface: h.Link.Name, Idle: xdp.IdleSleep})
		return err
	})
	if err == nil {
		f.addCleanup(d.Close)
	}
	return d, err
}

// sharingStack is one of the two TCP stacks, xwarp or the kernel's, with its flows.
type sharingStack struct {
	name       string
	congestion string // as the kernel confirmed it
	dial       func(ctx context.Context) (net.Conn, error)
	accept     func(ctx context.Context) (net.Conn, error)
	listener   io.Closer
	flows      []*flow
}

func (k *sharingStack) recordStart() {
	for _, f := range k.flows {
		f.readAtStart = f.read.Load()
	}
}

// rates returns the bits per second of each flow since recordStart, which was seconds ago.
func (k *sharingStack) rates(seconds float64) (v []float64) {
	for _, f := range k.flows {
		v = append(v, 8*float64(f.read.Load()-f.readAtStart)/seconds)
	}
	return v
}
