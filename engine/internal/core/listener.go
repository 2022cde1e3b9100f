package core

import (
	"cmp"
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
	mpa      *verbs.MPAConfig // of its connections; nil: the device's
	dscp     int              // as verbs.ListenConfig.DSCP
	At       netip.AddrPort   // the argument of Listen, and after Listen the address with the port in use
	requests chan *verbs.ConnRequest
	waiting  atomic.Int32 // number of requests that are in the channel, or about to be sent to it
	closed   chan struct{}
	closing  sync.Once
	stop     io.Closer // ends the driver's listening; nil for Base.Respond
}

// Listen implements verbs.Device.
func (d *Device) Listen(addr netip.AddrPort, cfg verbs.ListenConfig) (verbs.Listener, error) {
	backlog := verbs.DefaultBacklog
	if cfg.Backlog > 0 {
		backlog = cfg.Backlog
	}
	l := &Listener{dev: d, mpa: cfg.MPA, dscp: cfg.DSCP, At: addr, closed: make(chan struct{}),
		requests: make(chan *verbs.ConnRequest, backlog)}
	err := verbs.CheckDSCP(cfg.DSCP)
	if err == nil {
		l.At, l.stop, err = d.drv.Listen(l)
	}
	if err == nil {
		err = d.addListener(l)
	}
	if err != nil {
		return nil, verbs.Wrap(fmt.Sprintf("rdma_listen on %v", addr), err)
	}
	return l, nil
}

// TOS returns the TOS byte, without ECN, of the listener's connections whose queue pair has no DSCP of its own.
func (l *Listener) TOS() uint8 { return tosOf(l.dscp, l.dev.opt.DSCP) }

// tosOf returns the TOS byte for the first DSCP that is not zero.
func tosOf(dscp ...int) uint8 { return uint8(max(0, cmp.Or(dscp...))) << 2 }

// Addr implements verbs.Listener.
func (l *Listener) Addr() netip.AddrPort { return l.At }

// Accept implements verbs.Listener.
func (l *Listener) Accept(ctx context.Context) (*verbs.ConnRequest, error) {
	if isClosed(l.closed) { // checked first: the channel may hold a request, too
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

// Listens reports whether a listener of the device accepts connections to at: one for this address, or for all
// addresses of its family, with the same port.
func (d *Device) Listens(at netip.AddrPort) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for l := range d.listeners {
		l, ok := l.(*Listener)
		if ok && l.At.Port() == at.Port() && covers(l.At.Addr(), at.Addr()) {
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
		l.dev.removeListener(l)
		l.stop.Close()
		close(l.closed)
	})
	l.rejectAll()
	return nil
}

// deliver sends a request to Accept. The caller has counted it in waiting.
func (l *Listener) deliver(r *verbs.ConnRequest) {
	l.requests <- r
	if isClosed(l.closed) { // Close may have drained the channel before r was sent
		go l.rejectAll()
	}
}

// rejectAll rejects the requests that Accept has not taken.
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
