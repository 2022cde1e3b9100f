package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/verbs"
	"xwarp/tcp/tick"
)

// KernelConfig describes a device on the kernel's TCP sockets: MPA fully layered (RFC 5044, 5.1). It needs no
// privilege.
type KernelConfig struct {
	Options
	// Dial and Listen, when set, make the sockets; a test gives ones that enter a network namespace.
	Dial   func(ctx context.Context, local, remote netip.AddrPort) (net.Conn, error)
	Listen func(at netip.AddrPort) (net.Listener, error)
	// EMSS is the octets of one FPDU at most [what the socket says that a segment carries, or 64 KiB with a peer
	// that takes FPDUs longer than that: another device of this kind, and Linux's soft-iWARP where it does].
	EMSS int
}

// kernelDriver runs all its connections on one goroutine; each has two more that block in read and write.
type kernelDriver struct {
	dev  *Device
	cfg  KernelConfig
	loop *loop

	woken   chan struct{}
	stop    chan struct{}
	ended   chan struct{}
	conns   map[*kernelConn]bool
	closing sync.Once
}

// OpenKernel makes a device on the kernel's sockets. It does not fail.
func OpenKernel(cfg KernelConfig) (*Device, error) {
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
	k := &kernelDriver{
		cfg: cfg, woken: make(chan struct{}, 1), stop: make(chan struct{}),
		ended: make(chan struct{}),
		conns: map[*kernelConn]bool{},
	}
	k.dev = newDevice(cfg.Options)
	k.dev.drv = k
	k.loop = newLoop(k)
	k.dev.own(k.loop)
	go k.run()
	go k.dev.watch()
	return k.dev, nil
}

func (k *kernelDriver) wake() {
	select {
	case k.woken <- struct{}{}:
	default:
	}
}

// tell implements waker.
func (k *kernelDriver) tell(f func()) { f() }

// run is the life of the one goroutine that owns every connection.
func (k *kernelDriver) run() {
	defer close(k.ended)
	debug.SetPanicOnFault(true) // see regionLost
	k.loop.name()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := clock()
		k.loop.beat(now)
		k.loop.work()
		now = clock()
		k.loop.enter(atTimers)
		next, whole := k.steps(now)
		if !whole || k.loop.pending() {
			continue
		}
		k.loop.rest()
		wait := time.Hour
		if next != tick.Never {
			wait = max(0, next.Sub(now))
		}
		timer.Reset(wait)
		select {
		case <-k.woken:
		case <-timer.C:
		case <-k.stop:
			k.abortAll()
			k.loop.end() // which may bring one more connection
			k.abortAll()
			return
		}
	}
}

// steps lets each connection do what it can, and returns when the next one wants to; not whole: there was a panic.
func (k *kernelDriver) steps(now tick.Time) (next tick.Time, whole bool) {
	defer k.loop.contain()
	next = tick.Never
	for c := range k.conns {
		k.loop.doing = c
		c.step(now)
		if c.dead() {
			delete(k.conns, c)
			continue
		}
		next = min(next, c.deadline())
	}
	return next, true
}

func (k *kernelDriver) abortAll() {
	for c := range k.conns {
		c.iw.Abort(clock())
		c.end(verbs.ErrClosed)
	}
}

func (k *kernelDriver) start(_ context.Context, c *conn, local, remote netip.AddrPort) error {
	c.owner.Store(k.loop)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
		defer cancel()
		sock, err := k.cfg.Dial(ctx, local, remote)
		if k.loop.post(func() { k.connected(c, sock, err) }) {
			return
		}
		if err == nil {
			sock.Close()
		}
		c.report(verbs.ErrClosed)
	}()
	return nil
}

// connectTimeout bounds the kernel's handshake, which would go on for minutes.
const connectTimeout = 30 * time.Second

func (k *kernelDriver) connected(c *conn, sock net.Conn, err error) {
	if c.over { // Dial gave up meanwhile
		if err == nil {
			sock.Close()
		}
		return
	}
	if err == nil {
		err = k.adopt(c, sock)
		if err != nil {
			sock.Close()
		}
	}
	if err != nil {
		c.release()
		c.report(err)
	}
}

// adopt makes an iwarp.Conn for a connected socket. It runs on the loop.
func (k *kernelDriver) adopt(c *conn, sock net.Conn) error {
	c.local, c.remote = addrPort(sock.LocalAddr()), addrPort(sock.RemoteAddr())
	if t, ok := sock.(*net.TCPConn); ok {
		if err := t.SetKeepAliveConfig(k.dev.opt.Keepalive.kernel()); err != nil {
			return fmt.Errorf("SO_KEEPALIVE: %w", err)
		}
	}
	kc := newKernelConn(k, c, sock)
	if err := c.begin(k.loop, &kc.iw, kc); err != nil {
		return err
	}
	c.startup.LongFPDUs = k.cfg.EMSS == 0
	if err := kc.iw.Init(k.dev.iwarpConfig(c, k.loop, true)); err != nil {
		return err
	}
	k.loop.sums.enterConn(c)
	k.conns[kc] = true
	kc.begin(clock())
	return nil
}

func (k *kernelDriver) listen(l *Listener) (netip.AddrPort, io.Closer, error) {
	ln, err := k.cfg.Listen(l.addr)
	if err != nil {
		return netip.AddrPort{}, nil, err
	}
	go func() {
		for {
			sock, err := ln.Accept()
			if err != nil {
				if errors.Is(err, net.ErrClosed) {
					return
				}
				k.dev.log.Warn("accept", "error", err)
				time.Sleep(acceptPause) // out of descriptors: the kernel keeps the connection for us
				continue
			}
			remote := addrPort(sock.RemoteAddr())
			c, err := l.passive(netip.AddrPort{}, remote)
			if err == nil {
				c.charge, err = k.dev.opt.Peers.Begin(remote.Addr(), clock())
				err = denied(err)
			}
			if err != nil {
				k.dev.log.Info("connection refused", "remote", sock.RemoteAddr(), "error", err)
				sock.Close()
				continue
			}
			if !k.loop.post(func() { k.connected(c, sock, nil) }) {
				sock.Close()
				c.charge.End(clock())
				return
			}
		}
	}()
	return addrPort(ln.Addr()), ln, nil
}

// acceptPause keeps a failing accept from spinning.
const acceptPause = 20 * time.Millisecond

func (k *kernelDriver) describe() verbs.Transport { return verbs.Transport{Name: "kernel"} }

// footprint is the blocks of a connection, and 64 KiB for its state, goroutines and FPDUs under way.
func (k *kernelDriver) footprint(accepted bool) int {
	if !accepted {
		return (readBlocks+1)*firstBlock + 64<<10
	}
	return readBlocks*readBlock + writeBlock + 64<<10
}

func (k *kernelDriver) do(f func() error) error { return f() }

func (k *kernelDriver) detach() error { return nil }

func (k *kernelDriver) close() error {
	k.closing.Do(func() { close(k.stop) })
	<-k.ended
	return nil
}

func addrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		p := t.AddrPort()
		return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
	}
	return netip.AddrPort{}
}

// segmentOctets asks the kernel what one segment of sock carries.
func segmentOctets(sock net.Conn) (int, error) {
	t, ok := sock.(*net.TCPConn)
	if !ok {
		return fallbackEMSS, nil
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return 0, err
	}
	n := 0
	e := raw.Control(func(fd uintptr) {
		n, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG)
	})
	if err = errors.Join(e, err); err != nil {
		return 0, fmt.Errorf("TCP_MAXSEG: %w", err)
	}
	return n, nil
}

// fallbackEMSS is for connections that are no TCP sockets: an Ethernet's.
const fallbackEMSS = 1448
