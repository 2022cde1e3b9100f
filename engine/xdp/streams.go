package xdp

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"xwarp/engine/bytestream"
	"xwarp/engine/internal/core"
	"xwarp/engine/stack"
	"xwarp/engine/verbs"
	"xwarp/engine/wake"
	"xwarp/tcp"
)

// StreamConfig configures a plain TCP byte stream.
type StreamConfig struct {
	bytestream.Config
	TCP *TCPConfig // nil means Config.TCP of the device
}

func (x *driver) streamConfig(cfg *StreamConfig) tcp.Config {
	c := x.tcpConfig(cfg.TCP)
	c.RcvSpaceMax = cmp.Or(cfg.RecvBuffer, bytestream.DefaultBuffer)
	c.RcvSpace = min(bytestream.FirstWindow, c.RcvSpaceMax)
	return c
}

// ConnectStream starts an active open and returns without waiting for the peer. Poll reports Connected or Ended later.
// It fails with EADDRINUSE, ENETUNREACH and other errors of the route.
func (d *Device) ConnectStream(local, remote netip.AddrPort, cfg StreamConfig) (*Stream, error) {
	if d.x.base.IsClosed() {
		return nil, verbs.ErrClosed
	}
	remote = netip.AddrPortFrom(remote.Addr().Unmap(), remote.Port())
	for ports := 1; ; ports++ {
		s, err := d.x.connectStream(local, remote, &cfg)
		if !core.TryAnotherPort(err, local) || ports == core.MaxPorts {
			return s, err
		}
	}
}

func (x *driver) connectStream(local, remote netip.AddrPort, cfg *StreamConfig) (*Stream,
	error) {
	port, mtu, err := x.reserveSource(local, remote.Addr())
	if err != nil {
		return nil, err
	}
	w := x.firstWorker(port.Addr().Addr(), remote.Addr())
	s := newStream(w, cfg.Config, port.Addr(), remote)
	s.port.Store(port)
	c := x.streamConfig(cfg)
	c.PathMTU = mtu
	err = w.Do(func() error {
		_, err := w.stk.Connect(tupleOf(s.local, remote), &c, s.bytes, core.Now())
		return err
	})
	if err != nil {
		port.Close()
		return nil, fmt.Errorf("connect to %v: %w", remote, err)
	}
	return s, nil
}

// StreamListener accepts plain TCP byte streams.
type StreamListener struct {
	port    *listener
	backlog int

	mu      sync.Mutex
	waiting []*Stream
	closed  bool
	changed wake.Flag
}

// ListenStream listens for connections at addr. It fails with the errors of Listen.
func (d *Device) ListenStream(addr netip.AddrPort, backlog int, cfg StreamConfig) (*StreamListener,
	error) {
	if d.x.base.IsClosed() {
		return nil, verbs.ErrClosed
	}
	if backlog <= 0 {
		backlog = verbs.DefaultBacklog
	}
	l := &StreamListener{backlog: backlog, changed: wake.New()}
	lc := &stack.ListenConfig{Conn: d.x.streamConfig(&cfg), TOS: d.x.tos(), Startup: -1}
	port, err := d.x.reserve(addr)
	if err == nil {
		l.port, err = d.x.listenAt(port, lc,
			func(w *worker, local, remote netip.AddrPort) (stack.Upper, error) {
				return l.accepted(newStream(w, cfg.Config, local, remote))
			})
	}
	if err == nil {
		err = d.x.base.AddListener(l)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %v: %w", addr, err)
	}
	return l, nil
}

var errBacklog = errors.New("accept backlog is full")

func (l *StreamListener) accepted(s *Stream) (stack.Upper, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.waiting) >= l.backlog {
		return nil, errBacklog
	}
	l.waiting = append(l.waiting, s)
	l.changed.Set()
	return s.bytes, nil
}

// Accept returns the next connection. It fails with EAGAIN if there is none, and with net.ErrClosed after Close.
func (l *StreamListener) Accept() (*Stream, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case len(l.waiting) > 0:
		s := l.waiting[0]
		l.waiting = l.waiting[1:]
		return s, nil
	case l.closed:
		return nil, verbs.ErrListenerClosed
	}
	return nil, bytestream.ErrAgain
}

// Changed returns a channel that receives a value when Accept may return a connection. Close closes the channel.
func (l *StreamListener) Changed() <-chan struct{} { return l.changed }

// Addr returns the address at which l listens.
func (l *StreamListener) Addr() netip.AddrPort { return l.port.Addr() }

// Close stops listening and resets connections that were not accepted.
func (l *StreamListener) Close() error {
	l.mu.Lock()
	was := l.closed
	l.closed = true
	left := l.waiting
	l.waiting = nil
	l.mu.Unlock()
	if was {
		return nil
	}
	l.port.x.base.RemoveListener(l)
	for _, s := range left {
		s.Abort()
	}
	close(l.changed)
	return l.port.Close()
}

// Barrier waits until every frame that the device had received before the call is processed, and the resulting frames
// are sent.
func (d *Device) Barrier() error {
	if d.x.base.IsClosed() {
		return verbs.ErrClosed
	}
	for _, w := range d.x.workers {
		if err := w.Call(func() {
			for i := 0; i < barrierSteps && w.stk.Step(core.Now()); i++ {
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// barrierSteps is the maximum number of steps of a Barrier on a worker, so that endless traffic does not prolong it. It
// exceeds the number of batches that a ring can hold.
const barrierSteps = 1 << 12
