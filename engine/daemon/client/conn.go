package client

import (
	"context"
	"net/netip"
	"sync"

	"xwarp/engine"
	"xwarp/engine/daemon/control"
	"xwarp/mpa/startup"
)

// ConnConfig describes one connection or the connections of one listener. A nil MPA means what the daemon's
// configuration says about the peer, and another one counts as far as mpa.override of that allows.
type ConnConfig = engine.ConnConfig

// MPAConfig is what MPA negotiates.
type MPAConfig = engine.MPAConfig

// Errors of connections.
var (
	ErrListenerClosed = engine.ErrListenerClosed
	ErrLapsed         = engine.ErrLapsed
	ErrClosed         = engine.ErrClosed
)

// DefaultBacklog is how many connection requests wait for Accept.
const DefaultBacklog = engine.DefaultBacklog

// Dial connects qp to remote and returns when it can be used. errors.Is(err, session.ErrRejected) tells that
// the peer's consumer said no.
func (d *Device) Dial(ctx context.Context, remote netip.AddrPort, qp *QP, cfg ConnConfig) error {
	var r control.Connected
	args := control.ConnectArgs{QP: qp.handle, Local: cfg.Local, Remote: remote,
		PrivateData: cfg.PrivateData, MPA: cfg.MPA}
	if _, err := d.call(ctx, control.OpConnect, args, &r); err != nil {
		return err
	}
	qp.setConnected(&r)
	return nil
}

// Listener waits for connections.
type Listener struct {
	dev    *Device
	handle control.Handle
	addr   netip.AddrPort
	once   sync.Once
	closed chan struct{}
}

// Listen waits for connections at addr: one of the host's addresses, or the unspecified one for all; port 0
// takes a free one.
func (d *Device) Listen(addr netip.AddrPort, backlog int, cfg ConnConfig) (*Listener, error) {
	var r control.ListenResult
	if err := d.ask(control.OpListen, control.ListenArgs{Addr: addr, Backlog: backlog,
		MPA: cfg.MPA}, &r); err != nil {
		return nil, err
	}
	return &Listener{dev: d, handle: r.Handle, addr: r.Addr, closed: make(chan struct{})}, nil
}

// Addr returns where l listens.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// Accept returns the next connection request.
func (l *Listener) Accept(ctx context.Context) (*ConnRequest, error) {
	select {
	case <-l.closed:
		return nil, ErrListenerClosed
	default:
	}
	var r control.RequestResult
	if _, err := l.dev.call(ctx, control.OpGetRequest, control.Object{Handle: l.handle},
		&r); err != nil {
		return nil, err
	}
	return &ConnRequest{
		dev: l.dev, handle: r.Handle, Local: r.Local, Remote: r.Remote, Revision: r.Revision,
		PrivateData: r.PrivateData, IRD: r.IRD, ORD: r.ORD,
	}, nil
}

// Close stops listening; connections stay.
func (l *Listener) Close() (err error) {
	l.once.Do(func() {
		close(l.closed)
		err = l.dev.ask(control.OpCloseListener, control.Object{Handle: l.handle}, nil)
	})
	return err
}

// ConnRequest is a peer's wish to connect. It must be answered with Accept or Reject, before the start-up timeout.
type ConnRequest struct {
	dev           *Device
	handle        control.Handle
	Local, Remote netip.AddrPort
	Revision      startup.Revision
	PrivateData   []byte
	IRD, ORD      int // the peer's; startup.NotNegotiated when it said nothing
}

// Accept makes qp the end of the connection and returns when it can be used.
func (r *ConnRequest) Accept(ctx context.Context, qp *QP, private []byte) error {
	var c control.Connected
	if _, err := r.dev.call(ctx, control.OpAccept, control.AcceptArgs{Handle: r.handle,
		QP: qp.handle, PrivateData: private}, &c); err != nil {
		return err
	}
	qp.setConnected(&c)
	return nil
}

// Reject answers no.
func (r *ConnRequest) Reject(private []byte) error {
	return r.dev.ask(control.OpReject, control.AcceptArgs{Handle: r.handle, PrivateData: private},
		nil)
}
