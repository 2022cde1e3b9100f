package endpoint

import (
	"context"
	"errors"
	"time"

	"xwarp/engine/verbs"
)

// dialer measures how many connections per second are made and ended, MPA start-up included, one after the other.
type dialer struct{ rdma }

func (d *dialer) pair(ctx context.Context, dial func(q verbs.QP) error) error {
	q, err := d.dev.CreateQP(verbs.QPConfig{PD: d.pd, SendCQ: d.cq, RecvCQ: d.cq, SendDepth: 16,
		RecvDepth: 16, MaxSGE: 1})
	if err != nil {
		return err
	}
	return errors.Join(dial(q), q.Close())
}

func (d *dialer) run(ctx context.Context, server Ready) (*Result, error) {
	return d.spec.connections(ctx, func() error {
		return d.pair(ctx, func(q verbs.QP) error {
			return d.dev.Dial(ctx, server.Addr, q, d.conn(nil))
		})
	})
}

// connections measures how long one connection after the other takes, from its beginning to its end.
func (s *Spec) connections(ctx context.Context, one func() error) (*Result, error) {
	h, w := newHistogram(false), window{spec: s}
	w.start(time.Now())
	for n := uint64(1); ; n++ {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		from := time.Now()
		if err := one(); err != nil {
			return nil, err
		}
		now := time.Now()
		h.record(now.Sub(from))
		if s.Iterations > 0 && n >= uint64(s.Iterations) {
			w.finish(now, n)
		}
		if !w.tick(now, n) {
			r := w.result()
			r.Octets, r.Latency = 0, h.result()
			return r, nil
		}
	}
}

func (d *dialer) serve(ctx context.Context, client Ready, stop <-chan struct{}) (*Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		<-stop
		cancel()
	}()
	for {
		r, err := d.l.Accept(ctx)
		if err != nil {
			return &Result{Seconds: 1}, nil
		}
		q, err := d.dev.CreateQP(verbs.QPConfig{PD: d.pd, SendCQ: d.cq, RecvCQ: d.cq,
			SendDepth: 16, RecvDepth: 16, MaxSGE: 1})
		if err != nil {
			return nil, err
		}
		go func() {
			if r.Accept(ctx, q, nil) == nil {
				<-q.Down()
			}
			q.Close()
		}()
	}
}
