package endpoint

import (
	"context"
	"fmt"
	"net/netip"

	"xwarp/engine"
)

// Ready is what an end tells the other before the clock runs.
type Ready struct {
	Addr      netip.AddrPort `json:"addr,omitzero"` // of a server: where to connect
	STag      uint32         `json:"stag,omitempty"`
	Octets    int            `json:"octets,omitempty"`
	Transport string         `json:"transport,omitempty"`
}

// end is one end of a measurement by one peer. A server's calls are prepare, serve, close; a client's
// prepare, run, close.
type end interface {
	prepare(server bool) (Ready, error)
	// serve measures what comes until stop is closed.
	serve(ctx context.Context, client Ready, stop <-chan struct{}) (*Result, error)
	run(ctx context.Context, server Ready) (*Result, error)
	close()
}

// newEnd returns the end that s asks for.
func newEnd(s *Spec, p *Place) (end, error) {
	switch s.Peer {
	case XDP, Layered, Daemon:
		if s.Mode == Connect {
			return &dialer{rdma: rdma{spec: s, place: p}}, nil
		}
		return &rdma{spec: s, place: p}, nil
	case TCP:
		return &sockets{spec: s, place: p}, nil
	case Raw:
		return &frames{spec: s, place: p, open: openRing}, nil
	case GSO:
		return &frames{spec: s, place: p, open: openGSO}, nil
	case Asavie:
		return &frames{spec: s, place: p, open: openAsavie}, nil
	}
	return nil, fmt.Errorf("%w: there is no peer %q", ErrSpec, s.Peer)
}

func (e *rdma) prepare(server bool) (r Ready, err error) {
	if r, err = e.setUp(); err == nil && server {
		r.Addr, err = e.listen()
	}
	return r, err
}

// tester is a consumer that comes to an end.
type tester interface {
	consumer
	postReceives() error
	finished() <-chan struct{}
	outcome() (*Result, error)
}

func (m *mover) finished() <-chan struct{}    { return m.done }
func (p *pingpong) finished() <-chan struct{} { return p.done }

func (m *mover) outcome() (*Result, error) {
	if m.err != nil || !m.source {
		return &Result{Seconds: 1}, m.err
	}
	return m.win.result(), nil
}

func (p *pingpong) outcome() (*Result, error) {
	if p.err != nil || !p.client {
		return &Result{Seconds: 1}, p.err
	}
	return p.result(), nil
}

func (e *rdma) tester(client bool) tester {
	if e.spec.Mode == Latency {
		return newPingpong(e, client)
	}
	return newMover(e, client || e.spec.Bidirectional)
}

func (e *rdma) run(ctx context.Context, server Ready) (*Result, error) {
	e.peer = server
	t := e.tester(true)
	if err := t.postReceives(); err != nil {
		return nil, err
	}
	if err := e.connect(ctx, server.Addr); err != nil {
		return nil, err
	}
	return e.clock(ctx, t, t.finished(), true)
}

func (e *rdma) serve(ctx context.Context, client Ready, stop <-chan struct{}) (*Result, error) {
	e.peer = client
	t := e.tester(false)
	if err := t.postReceives(); err != nil {
		return nil, err
	}
	if err := e.accept(ctx); err != nil {
		return nil, err
	}
	return e.clock(ctx, t, stop, e.spec.Bidirectional)
}

// clock has t run until stop is closed, or t failed. An end that measures counts its allocations itself,
// while the clock runs; for one that only answers everything counts.
func (e *rdma) clock(ctx context.Context, t tester, stop <-chan struct{}, measures bool) (*Result,
	error) {
	var mem memory
	mem.prepare()
	e.consume(t)
	var why error
	select {
	case <-stop:
	case <-t.finished():
		if e.spec.Bidirectional {
			select {
			case <-stop:
			case <-ctx.Done():
			}
		}
	case <-ctx.Done():
		why = context.Cause(ctx)
	case <-e.qps[0].Down():
		why = fmt.Errorf("the connection ended: %w", e.qps[0].Err())
	}
	select { // a test that ended hangs up: the other end may hear that first
	case <-t.finished():
		why = nil
	default:
	}
	if d, ok := e.dev.(*engine.Device); ok {
		d.Barrier() // what the worker wrote is ours from now on
	}
	r, err := t.outcome()
	if !measures {
		mem.end(r)
	}
	e.account(r)
	if err == nil {
		err = why
	}
	return r, err
}
