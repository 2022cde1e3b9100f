// Package sockets opens devices over the kernel's TCP sockets. They need no privilege and no network interface of their
// own.
package sockets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"xwarp/engine/budget"
	"xwarp/engine/internal/core"
	"xwarp/engine/verbs"
	"xwarp/mpa"
)

// Device is a device over sockets.
type Device = core.Device

// Config describes a device on the kernel's TCP sockets: MPA fully layered (RFC 5044, 5.1). It needs no
// privilege.
type Config struct {
	core.Options
	// Dial and Listen, when set, make the sockets, which must be a syscall.Conn; a test gives ones that enter a network
	// namespace.
	Dial   func(ctx context.Context, local, remote netip.AddrPort) (net.Conn, error)
	Listen func(at netip.AddrPort) (net.Listener, error)
	// EMSS is the octets of one FPDU at most [what the socket says that a segment carries, or 64 KiB with a peer
	// that takes FPDUs longer than that: another device of this kind, and Linux's soft-iWARP where it does].
	EMSS int
}

// Driver deals its connections out to a few workers.
type Driver struct {
	base    core.Base
	cfg     Config
	workers []*worker
	turn    atomic.Uint32 // of the workers, to have the next connection
	open    context.Context
	stop    context.CancelFunc    // by close
	Allows  func(netip.Addr) bool // the peers whom listeners serve; nil: all
}

// Open makes a device on the kernel's sockets. It fails when the process has no file descriptors left.
func Open(cfg Config) (*Device, error) {
	if cfg.Dial == nil {
		cfg.Dial = func(ctx context.Context, local, remote netip.AddrPort) (net.Conn, error) {
			d := net.Dialer{}
			if local.IsValid() {
				d.LocalAddr = net.TCPAddrFromAddrPort(local)
			}
			return d.DialContext(ctx, "tcp", remote.String())
		}
	}
	if cfg.Listen == nil {
		cfg.Listen = func(at netip.AddrPort) (net.Listener, error) {
			network := "tcp6" // [::] is all of IPv6 alone, as on AF_XDP
			if at.Addr().Unmap().Is4() {
				network = "tcp4"
			}
			return net.ListenTCP(network, net.TCPAddrFromAddrPort(at))
		}
	}
	b := core.NewBase(cfg.Options)
	k, err := NewDriver(b, cfg, min(runtime.GOMAXPROCS(0), runtime.NumCPU()))
	if err != nil {
		return nil, err
	}
	d := b.Start(k)
	go b.WatchLoop()
	return d, nil
}

// newKernelDriver starts workers for b, at most maxKernelWorkers.
func NewDriver(b core.Base, cfg Config, workers int) (*Driver, error) {
	k := &Driver{cfg: cfg, base: b}
	k.open, k.stop = context.WithCancel(context.Background())
	for range min(workers, maxKernelWorkers) {
		w, err := newWorker(k)
		if err != nil {
			for _, w := range k.workers {
				w.poll.close()
			}
			return nil, err
		}
		k.workers = append(k.workers, w)
		b.AddLoop(w.loop)
	}
	for _, w := range k.workers {
		go w.run()
	}
	return k, nil
}

// maxKernelWorkers is how many processors sockets are worth: reading, checking and placing the octets of one
// connection keeps a processor busy, and each worker has its own blocks.
const maxKernelWorkers = 4

// deal returns the worker with the fewest connections; the workers take turns where several have.
func (k *Driver) deal() *worker {
	first := int(k.turn.Add(1) - 1)
	var least *worker
	for i := range k.workers {
		w := k.workers[(first+i)%len(k.workers)]
		if least == nil || w.conns.Load() < least.conns.Load() {
			least = w
		}
	}
	return least
}

func (k *Driver) Start(ctx context.Context, c *core.Conn, local, remote netip.AddrPort) error {
	w := k.deal()
	c.Owner.Store(w.loop)
	go func() {
		dialing, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		defer context.AfterFunc(k.open, cancel)()
		sock, err := k.cfg.Dial(dialing, local, remote)
		switch {
		case err == nil && budget.IsKept(sock, budget.KeptForOperator):
			sock.Close()
			err = errFewDescriptors
		case err == nil:
		case k.open.Err() != nil:
			err = verbs.ErrClosed
		case isOver(ctx):
			err = context.Cause(ctx)
		}
		if w.loop.Post(func() { w.connected(c, sock, err) }) {
			return
		}
		if err == nil {
			sock.Close()
		}
		c.Report(verbs.ErrClosed)
	}()
	return nil
}

// isOver reports whether ctx is done, or as good as that: a net.Dialer has a clock of its own for the deadline of a
// context, which may be first by a little.
func isOver(ctx context.Context) bool {
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		<-ctx.Done()
	}
	return ctx.Err() != nil
}

// connectTimeout bounds the kernel's handshake, which would go on for minutes.
const connectTimeout = 30 * time.Second

func (k *Driver) Listen(l *core.Listener) (netip.AddrPort, io.Closer, error) {
	ln, err := k.cfg.Listen(l.Want)
	if err != nil {
		return netip.AddrPort{}, nil, err
	}
	go k.AcceptLoop(ln, l)
	return core.AddrPort(ln.Addr()), ln, nil
}

// acceptLoop accepts connections for l until ln is closed.
func (k *Driver) AcceptLoop(ln net.Listener, l *core.Listener) {
	for {
		sock, err := ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			k.base.Log().Warn("accept", "error", err)
			time.Sleep(acceptPause) // out of descriptors: the kernel keeps the connection for us
			continue
		}
		c, err := k.admit(l, sock)
		if err != nil {
			k.base.Log().Info("connection refused", "remote", sock.RemoteAddr(), "error", err)
			sock.Close()
			continue
		}
		w := k.deal()
		if !w.loop.Post(func() { w.connected(c, sock, nil) }) {
			sock.Close()
			c.Charge.End(core.Now())
			return
		}
	}
}

// admit returns the attempt of a peer, which the rules of the device allow.
func (k *Driver) admit(l *core.Listener, sock net.Conn) (*core.Conn, error) {
	remote := core.AddrPort(sock.RemoteAddr())
	if k.Allows != nil && !k.Allows(remote.Addr()) {
		return nil, verbs.ErrPeerDenied
	}
	c, err := l.Passive(netip.AddrPort{}, remote)
	if err == nil && budget.IsKept(sock, budget.KeptForPrograms) {
		err = errFewDescriptors
	}
	if err == nil {
		c.Charge, err = k.base.Options().Peers.Begin(remote.Addr(), core.Now())
		err = core.PeerDenied(err)
	}
	return c, err
}

// errFewDescriptors refuses a connection in favour of programs and of the operator.
var errFewDescriptors = fmt.Errorf("too few descriptors are left (ulimit -n, LimitNOFILE of a "+
	"unit): %w", syscall.EMFILE)

// acceptPause keeps a failing accept from spinning.
const acceptPause = 20 * time.Millisecond

func (k *Driver) Describe() verbs.Transport { return verbs.Transport{Name: "kernel"} }

// footprint is what waits to be written, an FPDU that is not complete, and 64 KiB for a connection's state and FPDUs
// under way.
func (k *Driver) Footprint(accepted bool) int {
	if !accepted {
		return firstBlock + 64<<10
	}
	return writeBlock + mpa.MaxFPDU + 64<<10
}

func (k *Driver) Resolve(context.Context, netip.Addr) error { return nil }

func (k *Driver) Do(f func() error) error { return f() }

func (k *Driver) Detach() error { return nil }

func (k *Driver) Close() error {
	k.stop()
	for _, w := range k.workers {
		w.stop.Store(true)
		w.Wake()
	}
	for _, w := range k.workers {
		<-w.ended
	}
	return nil
}
