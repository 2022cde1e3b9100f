package client

import (
	"context"
	"net/netip"
	"sync"

	"xwarp/engine/daemon/control"
	"xwarp/engine/verbs"
)

// Dial implements verbs.Device. mpa.override in the daemon's configuration limits what cfg.MPA may change.
func (d *Device) Dial(ctx context.Context, remote netip.AddrPort, v verbs.QP,
	cfg verbs.DialConfig) error {
	qp := own[*QP](d, v)
	if qp == nil {
		return verbs.Wrap("rdma_connect", verbs.ErrForeign)
	}
	var r control.Connected
	args := control.ConnectArgs{QP: qp.handle, Local: cfg.Local, Remote: remote,
		PrivateData: cfg.PrivateData, MPA: cfg.MPA, Patience: int(cfg.Patience.Milliseconds()),
		DSCP: cfg.DSCP}
	err := d.call(ctx, control.OpConnect, args, &r)
	if err == nil {
		qp.ends.Store(&r)
	}
	return err
}

// Listener is verbs.Listener of a daemon.
type Listener struct {
	object
	addr   netip.AddrPort
	once   sync.Once
	closed chan struct{}
}

// Listen implements verbs.Device.
func (d *Device) Listen(addr netip.AddrPort, cfg verbs.ListenConfig) (verbs.Listener, error) {
	var r control.ListenResult
	args := control.ListenArgs{Addr: addr, ListenConfig: cfg}
	if err := d.ask(control.OpListen, args, &r); err != nil {
		return nil, err
	}
	return &Listener{object: object{dev: d, handle: r.Handle}, addr: r.Addr,
		closed: make(chan struct{})}, nil
}

// Addr implements verbs.Listener.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// Accept implements verbs.Listener.
func (l *Listener) Accept(ctx context.Context) (*verbs.ConnRequest, error) {
	select {
	case <-l.closed:
		return nil, verbs.ErrListenerClosed
	default:
	}
	var r control.RequestResult
	if err := l.call(ctx, control.OpGetRequest, &r); err != nil {
		return nil, err
	}
	r.Answerer = &request{object{dev: l.dev, handle: r.Handle}}
	return &r.ConnRequest, nil
}

// Close implements verbs.Listener.
func (l *Listener) Close() (err error) {
	l.once.Do(func() {
		close(l.closed)
		err = l.ask(control.OpCloseListener, nil)
	})
	return err
}

// request is verbs.Answerer of a daemon.
type request struct{ object }

// Accept implements verbs.Answerer.
func (r *request) Accept(ctx context.Context, v verbs.QP, private []byte) error {
	qp := own[*QP](r.dev, v)
	if qp == nil {
		return verbs.Wrap("rdma_accept", verbs.ErrForeign)
	}
	if ctx.Err() != nil { // the daemon could reply before it sees the cancellation
		r.Reject(nil)
		return context.Cause(ctx)
	}
	var c control.Connected
	err := r.dev.call(ctx, control.OpAccept, control.AcceptArgs{Handle: r.handle, QP: qp.handle,
		PrivateData: private}, &c)
	if err == nil {
		qp.ends.Store(&c)
	}
	return err
}

// Reject implements verbs.Answerer.
func (r *request) Reject(private []byte) error {
	return r.dev.ask(control.OpReject, control.AcceptArgs{Handle: r.handle, PrivateData: private},
		nil)
}

var _ verbs.Device = (*Device)(nil)
