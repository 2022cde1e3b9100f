package client

import (
	"context"
	"net/netip"
	"sync"

	"xwarp/engine/daemon/control"
	"xwarp/engine/verbs"
)

// Dial implements verbs.Device. A configuration's MPA counts as far as mpa.override of the daemon's file allows.
func (d *Device) Dial(ctx context.Context, remote netip.AddrPort, v verbs.QP,
	cfg verbs.ConnConfig) error {
	qp, err := d.own(v)
	if err != nil {
		return verbs.Wrap("rdma_connect", err)
	}
	var r control.Connected
	args := control.ConnectArgs{QP: qp.handle, Local: cfg.Local, Remote: remote,
		PrivateData: cfg.PrivateData, MPA: cfg.MPA, Patience: int(cfg.Patience.Milliseconds())}
	if _, err := d.call(ctx, control.OpConnect, args, &r); err != nil {
		return err
	}
	qp.setConnected(&r)
	return nil
}

// Listener is verbs.Listener of a daemon.
type Listener struct {
	dev    *Device
	handle control.Handle
	addr   netip.AddrPort
	once   sync.Once
	closed chan struct{}
}

// Listen implements verbs.Device.
func (d *Device) Listen(addr netip.AddrPort, backlog int,
	cfg verbs.ConnConfig) (verbs.Listener, error) {
	var r control.ListenResult
	if err := d.ask(control.OpListen, control.ListenArgs{Addr: addr, Backlog: backlog,
		MPA: cfg.MPA}, &r); err != nil {
		return nil, err
	}
	return &Listener{dev: d, handle: r.Handle, addr: r.Addr, closed: make(chan struct{})}, nil
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
	if _, err := l.dev.call(ctx, control.OpGetRequest, control.Object{Handle: l.handle},
		&r); err != nil {
		return nil, err
	}
	return &verbs.ConnRequest{
		Local: r.Local, Remote: r.Remote, Revision: r.Revision, PrivateData: r.PrivateData,
		IRD: r.IRD, ORD: r.ORD, Answerer: &request{l.dev, r.Handle},
	}, nil
}

// Close implements verbs.Listener.
func (l *Listener) Close() (err error) {
	l.once.Do(func() {
		close(l.closed)
		err = l.dev.ask(control.OpCloseListener, control.Object{Handle: l.handle}, nil)
	})
	return err
}

// request is verbs.Answerer of a daemon.
type request struct {
	dev    *Device
	handle control.Handle
}

// Accept implements verbs.Answerer.
func (r *request) Accept(ctx context.Context, v verbs.QP, private []byte) error {
	qp, err := r.dev.own(v)
	if err != nil {
		return verbs.Wrap("rdma_accept", err)
	}
	if ctx.Err() != nil { // the daemon might be faster than the cancellation
		r.Reject(nil)
		return context.Cause(ctx)
	}
	var c control.Connected
	if _, err := r.dev.call(ctx, control.OpAccept, control.AcceptArgs{Handle: r.handle,
		QP: qp.handle, PrivateData: private}, &c); err != nil {
		return err
	}
	qp.setConnected(&c)
	return nil
}

// Reject implements verbs.Answerer.
func (r *request) Reject(private []byte) error {
	return r.dev.ask(control.OpReject, control.AcceptArgs{Handle: r.handle, PrivateData: private},
		nil)
}

var (
	_ verbs.Device   = (*Device)(nil)
	_ verbs.PD       = (*PD)(nil)
	_ verbs.MR       = (*MR)(nil)
	_ verbs.CQ       = (*CQ)(nil)
	_ verbs.SRQ      = (*SRQ)(nil)
	_ verbs.QP       = (*QP)(nil)
	_ verbs.Listener = (*Listener)(nil)
	_ verbs.Answerer = (*request)(nil)
)
