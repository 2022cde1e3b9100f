package xdp

import (
	"io"
	"net/netip"

	"xwarp/engine/internal/core"
	"xwarp/engine/stack"
	"xwarp/tcp"
)

func (x *driver) Listen(l *core.Listener) (at netip.AddrPort, stop io.Closer, err error) {
	port, err := x.listenLocal(l.At)
	if err != nil {
		return at, nil, err
	}
	x.loopback.Mark(port.ln, l.TOS())
	stop = port
	if !port.at.Addr().IsLoopback() {
		stop, err = x.listenAt(port, &stack.ListenConfig{Conn: x.rdmaConfig(), TOS: l.TOS()},
			func(w *worker, local, remote netip.AddrPort) (stack.Upper, error) {
				c, err := l.NewPassiveConn(local, remote)
				if err != nil {
					return nil, err
				}
				return x.newUpper(w, c)
			})
	}
	if err != nil {
		return at, nil, err
	}
	go x.loopback.AcceptLoop(port.ln, l)
	return port.at, stop, nil
}

// heldPort is a port reserved in the kernel for a listener.
type heldPort interface {
	Addr() netip.AddrPort
	Close() error
}

// listener is a local address and port at which the stacks of all workers listen.
type listener struct {
	heldPort
	x *driver
}

// listenAt listens on port on every worker and adds port to the steering. accept creates the upper layer of a
// connection after its handshake. If listenAt fails it closes port.
func (x *driver) listenAt(port heldPort, cfg *stack.ListenConfig,
	accept func(w *worker, local, remote netip.AddrPort) (stack.Upper, error)) (l *listener,
	err error) {
	l = &listener{port, x}
	at := port.Addr()
	cfg.Refused = x.logRefused
	for _, w := range x.workers {
		cfg.Accept = func(t *tcp.Tuple) (stack.Upper, error) {
			local, remote := core.TupleAddrs(t)
			return accept(w, local, remote)
		}
		if err = w.Do(func() error {
			_, err := w.stk.Listen(core.FromNetip(at.Addr()), at.Port(), cfg, core.Now())
			return err
		}); err != nil {
			break
		}
	}
	if err == nil {
		err = x.claims.AddListener(at)
	}
	if err != nil {
		l.stop()
		return nil, err
	}
	return l, nil
}

// stop stops listening on the workers.
func (l *listener) stop() error {
	at := l.Addr()
	for _, w := range l.x.workers {
		w.Call(func() { w.stk.Unlisten(core.FromNetip(at.Addr()), at.Port()) })
	}
	return l.heldPort.Close()
}

// Close stops listening: it undoes listenAt.
func (l *listener) Close() error {
	if l.x.closing.Load() { // the device's workers end, and another device may already use the steering program
		return l.heldPort.Close()
	}
	if err := l.x.claims.RemoveListener(l.Addr()); err != nil && !l.x.detached.Load() {
		l.x.base.Log().Warn("cannot remove a closed port from the XDP program: its frames go to xwarp until the device closes",
			"local", l.Addr(), "error", err)
	}
	return l.stop()
}

// logRefused logs a connection that was reset after its handshake.
func (x *driver) logRefused(t *tcp.Tuple, err error) {
	_, remote := core.TupleAddrs(t)
	x.base.Log().Info("refused a connection", "remote", remote, "error", err)
}
