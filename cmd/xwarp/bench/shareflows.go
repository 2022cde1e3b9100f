package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
	"xwarp/engine/xdp"
)

// Ports of the listeners.
const (
	enginePort = 5001
	kernelPort = 5002
)

// flowChunk is the size of the writes and reads of a flow.
const flowChunk = 64 << 10

// flow is one connection from A to B.
type flow struct {
	read        atomic.Int64 // bytes received so far
	readAtStart int64
}

// shareRig holds the resources of a round.
type shareRig struct {
	cancel   context.CancelCauseFunc
	cleanups []func() error
	wg       sync.WaitGroup
	closed   atomic.Bool
}

func (f *shareRig) addCleanup(undo func() error) { f.cleanups = append(f.cleanups, undo) }

// close ends connections, listeners and engines, in this order.
func (f *shareRig) close() {
	f.closed.Store(true)
	for i := len(f.cleanups) - 1; i >= 0; i-- {
		f.cleanups[i]() // errors do not matter: closing is best effort
	}
	f.wg.Wait()
}

// startFlow opens one connection and runs its writer and its reader.
func (f *shareRig) startFlow(ctx context.Context, k *sharingStack) error {
	type accepted struct {
		c   net.Conn
		err error
	}
	in := make(chan accepted, 1)
	go func() {
		c, err := k.accept(ctx)
		in <- accepted{c, err}
	}()
	out, err := k.dial(ctx)
	if err != nil {
		return err
	}
	f.addCleanup(out.Close)
	a := <-in
	if a.err != nil {
		return a.err
	}
	f.addCleanup(a.c.Close)
	w := &flow{}
	k.flows = append(k.flows, w)
	f.wg.Go(func() {
		f.runFlow(k.name+": write", func(b []byte) error { _, err := out.Write(b); return err })
	})
	f.wg.Go(func() {
		f.runFlow(k.name+": read", func(b []byte) error {
			n, err := a.c.Read(b)
			w.read.Add(int64(n))
			return err
		})
	})
	return nil
}

// runFlow repeats step until the round is over; an error before that ends the round.
func (f *shareRig) runFlow(what string, step func(b []byte) error) {
	b := make([]byte, flowChunk)
	for !f.closed.Load() {
		if err := step(b); err != nil {
			if !f.closed.Load() {
				f.cancel(fmt.Errorf("%s: %w", what, err))
			}
			return
		}
	}
}

// engineStack returns the engine's TCP: it dials from A to a listener on B.
func engineStack(n *topo.Net, a, b *xdp.Device) (*sharingStack, error) {
	at := netip.AddrPortFrom(n.B.Addr4.Addr(), enginePort)
	l, err := b.ListenStream(at, maxFlows, xdp.StreamConfig{})
	if err != nil {
		return nil, err
	}
	accept := func(ctx context.Context) (net.Conn, error) {
		for {
			s, err := l.Accept()
			if err == nil {
				return xdp.NewNetConn(s), nil
			}
			if !errors.Is(err, syscall.EAGAIN) {
				return nil, err
			}
			select {
			case <-l.Changed():
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
	}
	dial := func(ctx context.Context) (net.Conn, error) {
		return a.DialStream(ctx, at, xdp.StreamConfig{})
	}
	return &sharingStack{name: "xwarp", dial: dial, accept: accept, listener: l}, nil
}

// kernelStack returns kernel TCP with the given congestion control: it dials from A to a listener on B.
func kernelStack(n *topo.Net, congestion string) (*sharingStack, error) {
	k := &sharingStack{name: "kernel TCP"}
	control := func(_, _ string, c syscall.RawConn) (err error) {
		e := c.Control(func(fd uintptr) {
			if err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION,
				congestion); err != nil {
				err = fmt.Errorf("TCP_CONGESTION %s: %w (is the module loaded?)", congestion, err)
				return
			}
			k.congestion, err = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP,
				unix.TCP_CONGESTION)
		})
		return errors.Join(e, err)
	}
	at := netip.AddrPortFrom(n.B.Addr4.Addr(), kernelPort).String()
	var l net.Listener
	err := n.B.Do(func() (err error) {
		l, err = (&net.ListenConfig{Control: control}).Listen(context.Background(), "tcp4", at)
		return err
	})
	if err != nil {
		return nil, err
	}
	k.listener = l
	k.accept = func(context.Context) (net.Conn, error) { return l.Accept() }
	k.dial = func(ctx context.Context) (c net.Conn, err error) {
		err = n.A.Do(func() (err error) {
			c, err = (&net.Dialer{Control: control}).DialContext(ctx, "tcp4", at)
			return err
		})
		return c, err
	}
	return k, nil
}
