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
	h := newHistogram(false)
	w := window{spec: d.spec}
	w.start(time.Now())
	n := uint64(0)
	for ctx.Err() == nil {
		from := time.Now()
		err := d.pair(ctx, func(q verbs.QP) error {
			return d.dev.Dial(ctx, server.Addr, q, d.conn(nil))
		})
		if err != nil {
			return nil, err
		}
		now := time.Now()
		n++
		h.record(now.Sub(from))
		if d.spec.Iterations > 0 && n >= uint64(d.spec.Iterations) {
			w.finish(now, n)
		}
		if !w.tick(now, n) {
			break
		}
	}
	r := w.result()
	r.Octets, r.Latency = 0, h.result()
	return r, ctx.Err()
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
