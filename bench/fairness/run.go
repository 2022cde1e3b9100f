package fairness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"xwarp/bench/relay"
	"xwarp/bench/topo"
	"xwarp/engine/xdp"
)

// Run makes the hosts, lets the flows compete and takes everything away again. It needs root.
func Run(ctx context.Context, cfg Config) (res *Result, err error) {
	if err := cfg.Complete(); err != nil {
		return nil, err
	}
	// The engine's frames carry whole checksums and no segment is larger than the MTU: the kernel's are the same.
	n, err := topo.New(topo.Options{Relay: true, MTU: cfg.MTU, IPv4Only: true,
		OffloadsA: topo.NoOffloads, OffloadsB: topo.NoOffloads})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	res = &Result{}
	for i := range cfg.Rounds {
		if cfg.Progress != nil {
			cfg.Progress(i+1, cfg.Rounds)
		}
		r, err := round(ctx, n, &cfg, cfg.Seed+uint64(i), res)
		if err != nil {
			return nil, fmt.Errorf("round %d: %w", i+1, err)
		}
		res.Rounds = append(res.Rounds, *r)
	}
	res.median()
	return res, nil
}

// round starts both kinds of flows one by one, alternating, and measures them.
func round(ctx context.Context, n *topo.Net, cfg *Config, seed uint64, res *Result) (_ *Round,
	err error) {
	r, err := relay.Start(n.Relay, relay.Config{AB: cfg.there(), BA: cfg.back(), Seed: seed})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f := &field{cancel: cancel}
	defer f.close()
	kinds, err := f.open(n, cfg)
	if err != nil {
		return nil, err
	}
	for i := range max(cfg.Ours, cfg.Kernel) {
		for k, want := range []int{cfg.Ours, cfg.Kernel} {
			if i < want {
				if err := f.start(ctx, kinds[k]); err != nil {
					return nil, fmt.Errorf("%s: %w", kinds[k].name, err)
				}
			}
		}
	}
	res.Congestion = kinds[1].congestion
	if err := pause(ctx, cfg.Warmup); err != nil {
		return nil, err
	}
	from, before := time.Now(), r.Counters(relay.AToB)
	for _, k := range kinds {
		k.mark()
	}
	if err := pause(ctx, cfg.Duration); err != nil {
		return nil, err
	}
	span, after := time.Since(from).Seconds(), r.Counters(relay.AToB)
	out := &Round{
		Ours: kinds[0].rates(span), Kernel: kinds[1].rates(span),
		Dropped: after.QueueDropped - before.QueueDropped, Lost: after.Lost - before.Lost,
		Marked: after.Marked - before.Marked,
	}
	out.judge(cfg.Rate)
	return out, nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// open makes the engines and a listener of each kind. Ours is kinds[0].
func (f *field) open(n *topo.Net, cfg *Config) (kinds [2]*kind, err error) {
	a, err := f.engine(n.A)
	if err != nil {
		return kinds, err
	}
	b, err := f.engine(n.B)
	if err != nil {
		return kinds, err
	}
	if kinds[0], err = ours(n, a, b); err != nil {
		return kinds, err
	}
	f.later(kinds[0].listener.Close)
	if kinds[1], err = kernel(n, cfg.Congestion); err != nil {
		return kinds, err
	}
	f.later(kinds[1].listener.Close)
	return kinds, nil
}

func (f *field) engine(h *topo.Host) (d *xdp.Device, err error) {
	err = h.Do(func() (err error) {
		d, err = xdp.Open(xdp.Config{Interface: h.Link.Name, Idle: xdp.IdleSleep})
		return err
	})
	if err == nil {
		f.later(d.Close)
	}
	return d, err
}

// kind is one of the two stacks.
type kind struct {
	name       string
	congestion string // as the kernel confirmed it
	dial       func(ctx context.Context) (net.Conn, error)
	accept     func(ctx context.Context) (net.Conn, error)
	listener   io.Closer
	flows      []*flow
}

func (k *kind) mark() {
	for _, f := range k.flows {
		f.before = f.read.Load()
	}
}

// rates returns bits per second since mark.
func (k *kind) rates(seconds float64) (v []float64) {
	for _, f := range k.flows {
		v = append(v, 8*float64(f.read.Load()-f.before)/seconds)
	}
	return v
}
