package endpoint

import (
	"context"
	"errors"
	"time"
)

// dialer measures how many RDMA connections per second can be made and closed, one after the other. Each includes the
// MPA start-up.
type dialer struct{ rdma }

func (d *dialer) runClient(ctx context.Context, server Ready) (*Result, error) {
	return d.spec.connections(ctx, func() error {
		e, err := d.endpoint(0, 0)
		if err != nil {
			return err
		}
		return errors.Join(e.Dial(ctx, server.Addr, d.conn(nil)), e.Close())
	})
}

// connections calls one again and again until the window is over, and measures how long each call takes. Each call
// makes and closes a connection. A round stands for one connection; no message bytes are counted.
func (s *Spec) connections(ctx context.Context, one func() error) (*Result, error) {
	r := newRounds(s)
	r.openAt(time.Now())
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		from := time.Now()
		if err := one(); err != nil {
			return nil, err
		}
		if !r.addRound(from, time.Now()) {
			res := r.result()
			res.Bytes = 0
			return res, nil
		}
	}
}

func (d *dialer) runServer(ctx context.Context, client Ready, stop <-chan struct{}) (*Result,
	error) {
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
		e, err := d.endpoint(0, 0)
		if err != nil {
			return nil, err
		}
		go func() {
			if r.Accept(ctx, e.QP, nil) == nil {
				<-e.QP.Done()
			}
			e.Close()
		}()
	}
}
