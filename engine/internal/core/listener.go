package core

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"sync/atomic"

	"xwarp/engine/budget"
	"xwarp/engine/verbs"
)

// Listener is verbs.Listener of the engine.
type Listener struct {
	dev      *Device
	cfg      verbs.ConnConfig
	Want     netip.AddrPort // what Listen was called with, then where that is
	requests chan *verbs.ConnRequest
	waiting  atomic.Int32 // in requests, or about to be
	closed   chan struct{}
	closing  sync.Once
	below    io.Closer // stops the driver's listening; nil of AwaitRequest
}

// Listen implements verbs.Device.
func (d *Device) Listen(addr netip.AddrPort, backlog int,
	cfg verbs.ConnConfig) (verbs.Listener, error) {
	if backlog <= 0 {
		backlog = verbs.DefaultBacklog
	}
	l := &Listener{dev: d, cfg: cfg, Want: addr, requests: make(chan *verbs.ConnRequest, backlog),
		closed: make(chan struct{})}
	var err error
	if l.Want, l.below, err = d.drv.Listen(l); err == nil {
		err = d.opened(l)
	}
	if err != nil {
		return nil, verbs.Wrap(fmt.Sprintf("rdma_listen on %v", addr), err)
	}
	return l, nil
}

// Addr implements verbs.Listener.
func (l *Listener) Addr() netip.AddrPort { return l.Want }

// Accept implements verbs.Listener.
func (l *Listener) Accept(ctx context.Context) (*verbs.ConnRequest, error) {
	if isClosed(l.closed) { // a request may have come meanwhile
		return nil, verbs.ErrListenerClosed
	}
	select {
	case r := <-l.requests:
		l.waiting.Add(-1)
		return r, nil
	case <-l.closed:
		return nil, verbs.ErrListenerClosed
	case <-l.dev.failed:
		return nil, l.dev.failure
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Listens reports whether a listener of the device has the address, alone or with all others of its family.
func (d *Device) Listens(at netip.AddrPort) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for l := range d.listeners {
		l, ok := l.(*Listener)
		if ok && l.Want.Port() == at.Port() && covers(l.Want.Addr(), at.Addr()) {
			return true
		}
	}
	return false
}

func covers(l, a netip.Addr) bool {
	l = budget.Bare(l)
	return l == a || l.IsUnspecified() && l.Is4() == a.Is4()
}

// Close implements verbs.Listener.
func (l *Listener) Close() error {
	l.closing.Do(func() {
		l.dev.forget(l)
		l.below.Close()
		close(l.closed)
	})
	l.rejectAll()
	return nil
}

// show gives Accept a request that waiting counts.
func (l *Listener) show(r *verbs.ConnRequest) {
	l.requests <- r
	if isClosed(l.closed) { // after Close looked
		go l.rejectAll()
	}
}

// rejectAll rejects the requests that wait.
func (l *Listener) rejectAll() {
	for {
		select {
		case r := <-l.requests:
			l.waiting.Add(-1)
			r.Reject(nil)
		default:
			return
		}
	}
}
