package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"xwarp/engine/bytestream"
)

// NetConn is a Stream with the blocking methods of net.Conn. Its errors are those of Stream but EAGAIN, and
// os.ErrDeadlineExceeded.
type NetConn struct {
	*socket
	s           *Stream
	read, write deadline
	rd, wr      sync.Mutex
	changed     *broadcast
}

var _ net.Conn = (*NetConn)(nil)

// NewNetConn wraps s, which must not be read, written or polled by anybody else afterwards.
func NewNetConn(s *Stream) *NetConn {
	c := &NetConn{socket: s.socket, s: s, changed: newBroadcast()}
	c.read.init()
	c.write.init()
	go func() {
		for range s.Changed() {
			c.changed.send()
			if s.Poll()&Ended != 0 {
				return
			}
		}
	}()
	return c
}

// Stream returns the stream, for Device.Upgrade and Device.AwaitRequest.
func (c *NetConn) Stream() *Stream { return c.s }

// DialStream connects to remote and waits until that is done. It fails as ConnectStream does, as Err of Stream says,
// and with the context's error; the attempt is over then.
func (d *Device) DialStream(ctx context.Context, remote netip.AddrPort, cfg StreamConfig) (*NetConn,
	error) {
	s, err := d.ConnectStream(netip.AddrPort{}, remote, cfg)
	if err != nil {
		return nil, err
	}
	c := NewNetConn(s)
	if c.await(ctx.Done(), func() bool { return s.Poll()&(Connected|Ended) != 0 }) != nil {
		err = context.Cause(ctx)
	} else {
		err = s.Err()
	}
	if err != nil {
		s.Abort()
		s.Close()
		return nil, fmt.Errorf("connect to %v: %w", remote, err)
	}
	return c, nil
}

// await blocks until ready reports true or stop is closed.
func (c *NetConn) await(stop <-chan struct{}, ready func() bool) error {
	for {
		changed := c.changed.wait()
		if ready() {
			return nil
		}
		select {
		case <-changed:
		case <-stop:
			return os.ErrDeadlineExceeded
		}
	}
}

// Read implements net.Conn.
func (c *NetConn) Read(p []byte) (int, error) {
	c.rd.Lock()
	defer c.rd.Unlock()
	for {
		n, err := c.s.Read(p)
		if !errors.Is(err, bytestream.ErrAgain) {
			return n, err
		}
		if err := c.await(c.read.done(), func() bool {
			return c.s.Poll()&Readable != 0
		}); err != nil {
			return 0, err
		}
	}
}

// Write implements net.Conn.
func (c *NetConn) Write(p []byte) (int, error) {
	c.wr.Lock()
	defer c.wr.Unlock()
	done := 0
	for done < len(p) {
		n, err := c.s.Write(p[done:])
		done += n
		if err == nil {
			continue
		}
		if !errors.Is(err, bytestream.ErrAgain) {
			return done, err
		}
		if err := c.await(c.write.done(), func() bool {
			return c.s.Poll()&Writable != 0
		}); err != nil {
			return done, err
		}
	}
	return done, nil
}

// CloseWrite sends FIN after what was written.
func (c *NetConn) CloseWrite() error { c.Shutdown(true, false); return nil }

// LocalAddr implements net.Conn.
func (c *NetConn) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(c.s.LocalAddr()) }

// RemoteAddr implements net.Conn.
func (c *NetConn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.s.RemoteAddr()) }

// SetDeadline implements net.Conn.
func (c *NetConn) SetDeadline(t time.Time) error {
	c.read.set(t)
	c.write.set(t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *NetConn) SetReadDeadline(t time.Time) error { c.read.set(t); return nil }

// SetWriteDeadline implements net.Conn.
func (c *NetConn) SetWriteDeadline(t time.Time) error { c.write.set(t); return nil }

// broadcast wakes everybody who waits.
type broadcast struct {
	mu sync.Mutex
	c  chan struct{}
}

func newBroadcast() *broadcast { return &broadcast{c: make(chan struct{})} }

func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.c
}

func (b *broadcast) send() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.c)
	b.c = make(chan struct{})
}

// deadline is a channel that a timer closes.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	c     chan struct{}
}

func (d *deadline) init() { d.c = make(chan struct{}) }

func (d *deadline) done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.c
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if isClosed(d.c) {
		d.c = make(chan struct{})
	}
	if t.IsZero() {
		return
	}
	c := d.c
	d.timer = time.AfterFunc(time.Until(t), func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.c == c && !isClosed(c) {
			close(c)
		}
	})
}
