// Package sockets provides devices on kernel TCP sockets. They need no privileges and no network interface of their
// own, and implement the same verbs as devices on AF_XDP.
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

// Device is a device on kernel TCP sockets.
type Device = core.Device

// Types of the configuration. They are here because programs cannot import package core.
type (
	// Options are the configuration that both kinds of device share.
	Options = core.Options
	// Keepalive says when a silent peer is probed.
	Keepalive = core.Keepalive
	// Policy decides about a peer.
	Policy = core.Policy
	// Override bounds what a connection's own configuration can change.
	Override = core.Override
)

// Config configures a device on kernel TCP sockets, with MPA fully layered (RFC 5044, 5.1).
type Config struct {
	core.Options
	// Dial, if set, creates connected sockets, which must implement syscall.Conn. Tests use it to enter a network
	// namespace.
	Dial func(ctx context.Context, local, remote netip.AddrPort) (net.Conn, error)
	// Listen, if set, creates listening sockets, whose connections must implement syscall.Conn.
	Listen func(at netip.AddrPort) (net.Listener, error)
	// EMSS is the maximum length of an FPDU in bytes. Zero means the MSS of the socket, or 64 KiB if the peer accepts
	// longer FPDUs: another device on sockets, or Linux's soft-iWARP if it offers this.
	EMSS int
}

// Driver distributes connections to a few workers.
type Driver struct {
	base       core.Base
	cfg        Config
	workers    []*worker
	nextWorker atomic.Uint32 // index of the worker to try first for the next connection
	ctx        context.Context
	cancel     context.CancelFunc    // called by Close
	Allows     func(netip.Addr) bool // reports whether listeners accept a peer; nil: all
	// Dial makes a connected socket. It calls prepare with the socket before the socket connects, unless Config.Dial is
	// set.
	Dial func(ctx context.Context, local, remote netip.AddrPort, prepare func(fd int)) (net.Conn,
		error)
}

// Open opens a device on kernel sockets. It fails if the process is out of file descriptors.
func Open(cfg Config) (*Device, error) {
	if err := cfg.Options.Check(); err != nil {
		return nil, err
	}
	if cfg.Listen == nil {
		cfg.Listen = func(at netip.AddrPort) (net.Listener, error) {
			network := "tcp6" // [::] is all of IPv6 alone, as on AF_XDP
			if at.Addr().Unmap().Is4() {
				network = "tcp4"
			}
			var c net.ListenConfig
			c.SetMultipathTCP(false) // a multipath TCP listener would take neither traffic class nor hop limit
			return c.Listen(context.Background(), network, at.String())
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

// NewDriver starts the given number of workers for b, but at most maxWorkers. It fails if the process is out of file
// descriptors.
func NewDriver(b core.Base, cfg Config, workers int) (*Driver, error) {
	k := &Driver{cfg: cfg, base: b, Dial: dial}
	if cfg.Dial != nil {
		k.Dial = func(ctx context.Context, local, remote netip.AddrPort, _ func(int)) (net.Conn,
			error) {
			return cfg.Dial(ctx, local, remote)
		}
	}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	for range min(workers, maxWorkers) {
		w, err := newWorker(k)
		if err != nil {
			for _, w := range k.workers {
				w.poll.close()
			}
			return nil, err
		}
		k.workers = append(k.workers, w)
		b.AddShard(w.shard)
	}
	for _, w := range k.workers {
		go w.workLoop()
	}
	return k, nil
}

// dial is Driver.Dial.
func dial(ctx context.Context, local, remote netip.AddrPort, prepare func(fd int)) (net.Conn,
	error) {
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { prepare(int(fd)) })
	}}
	if local.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(local)
	}
	return d.DialContext(ctx, "tcp", remote.String())
}

// maxWorkers is the maximum number of workers. Reading, checking and placing the bytes of one connection keeps a CPU
// busy, and each worker has its own buffers.
const maxWorkers = 4

// leastLoaded returns the worker with the fewest connections. If several have the fewest, it takes turns among them.
func (k *Driver) leastLoaded() *worker {
	first := int(k.nextWorker.Add(1) - 1)
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
	w := k.leastLoaded()
	c.Owner.Store(w.shard)
	go func() {
		dialing, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		defer context.AfterFunc(k.ctx, cancel)()
		tos := c.TOS()
		sock, err := k.Dial(dialing, local, remote, func(fd int) { k.mark(fd, tos) })
		switch {
		case err == nil && budget.IsKept(sock, budget.KeptForOperator):
			sock.Close()
			err = errFewDescriptors
		case err == nil:
		case k.ctx.Err() != nil:
			err = verbs.ErrClosed
		case isDone(ctx):
			err = context.Cause(ctx)
		}
		if w.shard.Post(func() { w.onConnected(c, sock, err) }) {
			return
		}
		if err == nil {
			sock.Close()
		}
		c.Report(verbs.ErrClosed)
	}()
	return nil
}

// isDone reports whether ctx is done. A net.Dialer has its own timer for the deadline of a context, which may fire a
// little before ctx is done. If the deadline has passed, isDone waits for ctx.
func isDone(ctx context.Context) bool {
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		<-ctx.Done()
	}
	return ctx.Err() != nil
}

// connectTimeout limits the kernel's handshake, which otherwise takes minutes to fail.
const connectTimeout = 30 * time.Second

func (k *Driver) Listen(l *core.Listener) (netip.AddrPort, io.Closer, error) {
	ln, err := k.cfg.Listen(l.At)
	if err != nil {
		return netip.AddrPort{}, nil, err
	}
	k.Mark(ln, l.TOS())
	go k.AcceptLoop(ln, l)
	return core.AddrPort(ln.Addr()), ln, nil
}

// AcceptLoop accepts connections for l until ln is closed, or the device.
func (k *Driver) AcceptLoop(ln net.Listener, l *core.Listener) {
	for {
		sock, err := ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			k.base.Log().Warn("cannot accept a connection: retrying", "error", err)
			time.Sleep(acceptPause) // probably out of descriptors: meanwhile the kernel queues connections
			continue
		}
		c, err := k.admit(l, sock)
		if err != nil {
			k.base.Log().Info("refused a connection", "remote", sock.RemoteAddr(), "error", err)
			sock.Close()
			continue
		}
		w := k.leastLoaded()
		if !w.shard.Post(func() { w.onConnected(c, sock, nil) }) {
			sock.Close()
			c.Charge.End(core.Now())
			return
		}
	}
}

// admit returns the Conn of a peer's connection. It fails if the device's rules or limits refuse the peer.
func (k *Driver) admit(l *core.Listener, sock net.Conn) (*core.Conn, error) {
	remote := core.AddrPort(sock.RemoteAddr())
	if k.Allows != nil && !k.Allows(remote.Addr()) {
		return nil, verbs.ErrPeerDenied
	}
	c, err := l.NewPassiveConn(netip.AddrPort{}, remote)
	if err == nil && budget.IsKept(sock, budget.KeptForPrograms) {
		err = errFewDescriptors
	}
	if err == nil {
		c.Charge, err = k.base.Options().Peers.Begin(remote.Addr(), core.Now())
		err = core.PeerDenied(err)
	}
	return c, err
}

// errFewDescriptors refuses a connection to keep descriptors for programs and the operator.
var errFewDescriptors = fmt.Errorf("out of file descriptors (raise ulimit -n, or LimitNOFILE in "+
	"the unit): %w", syscall.EMFILE)

// acceptPause is the pause after a failed accept.
const acceptPause = 20 * time.Millisecond

func (k *Driver) Describe() verbs.DeviceMode { return verbs.DeviceMode{Name: "kernel"} }

// Footprint returns the memory of a connection in bytes: the write buffer, an incomplete FPDU, and 64 KiB for its state
// and FPDUs in flight. A connection that is not accepted has only the buffer of a first read and its state.
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
	k.cancel()
	for _, w := range k.workers {
		w.stop.Store(true)
		w.Wake()
	}
	for _, w := range k.workers {
		<-w.ended
	}
	return nil
}
