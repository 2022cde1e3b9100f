package endpoint

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"

	"xwarp/engine/xdp"
)

// Ready is the message in which each end tells the other, before the measurement, how to reach it.
type Ready struct {
	Addr      netip.AddrPort `json:"addr,omitzero"` // from a server: the address of its listener
	STag      uint32         `json:"stag,omitempty"`
	Bytes     int            `json:"bytes,omitempty"`
	Transport string         `json:"transport,omitempty"`
}

// end is one end of a measurement over one kind of Peer. On a server, Serve calls prepare, runServer and close; on a
// client, Run calls prepare, runClient and close.
type end interface {
	prepare(server bool) (Ready, error)
	// runServer answers or measures until stop is closed, which means that the client has finished.
	runServer(ctx context.Context, client Ready, stop <-chan struct{}) (*Result, error)
	runClient(ctx context.Context, server Ready) (*Result, error)
	close()
}

// newEnd returns the end for s.Peer.
func newEnd(s *Spec, p *Place) (end, error) {
	switch s.Peer {
	case XDP, Layered, Daemon:
		if s.Mode == Connect {
			return &dialer{rdma: rdma{spec: s, place: p}}, nil
		}
		return &rdma{spec: s, place: p}, nil
	case TCP:
		if s.Conns > 1 {
			return &crowd{plainSockets: plainSockets{spec: s, place: p}}, nil
		}
		return &plainSockets{spec: s, place: p}, nil
	case Raw:
		return &frames{spec: s, place: p, open: openRing}, nil
	case GSO:
		return &frames{spec: s, place: p, open: openGSO}, nil
	case Asavie:
		return &frames{spec: s, place: p, open: openAsavie}, nil
	}
	return nil, fmt.Errorf("%w: unknown peer %q", ErrSpec, s.Peer)
}

func (e *rdma) prepare(server bool) (r Ready, err error) {
	if r, err = e.setUp(); err == nil && server {
		r.Addr, err = e.listen()
	}
	return r, err
}

// tester is a consumer that runs a test to its end and has a result.
type tester interface {
	consumer
	postReceives() error
	finished() <-chan struct{}
	failure() error
	result() *Result
}

// ending records how a consumer finished.
type ending struct {
	ended bool
	err   error
	done  chan struct{} // closed when the consumer has finished, or failed
}

func newEnding() ending { return ending{done: make(chan struct{})} }

func (e *ending) finished() <-chan struct{} { return e.done }

func (e *ending) failure() error { return e.err }

func (e *ending) fail(err error) {
	if e.err == nil {
		e.err = err
	}
	e.finish()
}

func (e *ending) finish() {
	if !e.ended {
		e.ended = true
		close(e.done)
	}
}

func (m *mover) result() *Result    { return m.win.result() }
func (p *pingpong) result() *Result { return p.rounds.result() }

func (e *rdma) runClient(ctx context.Context, server Ready) (*Result, error) {
	return e.measure(ctx, server, e.connect, true, nil)
}

func (e *rdma) runServer(ctx context.Context, client Ready, stop <-chan struct{}) (*Result, error) {
	return e.measure(ctx, client, e.acceptConnections, false, stop)
}

// measure makes the connections to peer by join and runs a tester. A client's tester runs until it has finished, a
// server's until stop is closed; either ends early if it fails. The tester of an end that measures counts allocations
// while the clock runs. For an end that only answers, measure counts all allocations after the connections are made.
func (e *rdma) measure(ctx context.Context, peer Ready, join func(context.Context) error,
	client bool, stop <-chan struct{}) (*Result, error) {
	e.peer = peer
	measures := client || e.spec.Bidirectional
	var t tester
	if e.spec.Mode == Latency {
		t = newPingpong(e, client)
	} else {
		t = newMover(e, measures)
	}
	if client {
		stop = t.finished()
	}
	if err := t.postReceives(); err != nil {
		return nil, err
	}
	if err := join(ctx); err != nil {
		return nil, err
	}
	var mem resourceUse
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
	case <-e.qps[0].Done():
		why = fmt.Errorf("the connection ended: %w", e.qps[0].Err())
	}
	select { // the other end closes the connection after the test, which may be seen before the tester's own end
	case <-t.finished():
		why = nil
	default:
	}
	if d, ok := e.dev.(*xdp.Device); ok {
		d.Barrier() // after the barrier this goroutine may read the worker's counters
	}
	r, err := &Result{Seconds: 1}, t.failure()
	if !measures {
		mem.addTo(r)
	} else if err == nil {
		r = t.result()
	}
	e.account(r)
	return r, cmp.Or(err, why)
}
