package xdp

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

// NetConn is a Stream with the blocking methods of net.Conn. Its errors are those of Stream without EAGAIN, and
// os.ErrDeadlineExceeded.
type NetConn struct {
	*socket
	s           *Stream
	rd, wr      sync.Mutex
	mu          sync.Mutex // guards the fields below
	changed     sync.Cond
	read, write deadline
}

var _ net.Conn = (*NetConn)(nil)

// NewNetConn wraps s, which must not be read, written or polled directly afterwards.
func NewNetConn(s *Stream) *NetConn {
	c := &NetConn{socket: s.socket, s: s}
	c.changed.L = &c.mu
	go func() {
		for range s.Changed() {
			c.mu.Lock()
			c.changed.Broadcast()
			c.mu.Unlock()
			if s.Poll()&Ended != 0 {
				return
			}
		}
	}()
	return c
}

// Stream returns the stream, for Device.Upgrade and Device.AwaitRequest.
func (c *NetConn) Stream() *Stream { return c.s }

// DialStream connects to remote and waits for the end of the handshake. It fails with the errors of ConnectStream and
// Stream.Err. When ctx is done, it aborts the attempt and returns the context's cause.
func (d *Device) DialStream(ctx context.Context, remote netip.AddrPort, cfg StreamConfig) (*NetConn,
	error) {
	s, err := d.ConnectStream(netip.AddrPort{}, remote, cfg)
	if err != nil {
		return nil, err
	}
	c := NewNetConn(s)
	var done deadline
	stop := context.AfterFunc(ctx, func() { c.set(&done, time.Now()) })
	defer stop()
	if c.await(&done, Connected|Ended) != nil {
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

// await blocks until one of the conditions holds or the deadline has passed.
func (c *NetConn) await(d *deadline, any Ready) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.s.Poll()&any == 0 {
		if d.passed {
			return os.ErrDeadlineExceeded
		}
		c.changed.Wait()
	}
	return nil
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
		if err := c.await(&c.read, Readable); err != nil {
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
		if err := c.await(&c.write, Writable); err != nil {
			return done, err
		}
	}
	return done, nil
}

// CloseWrite sends FIN after all written bytes.
func (c *NetConn) CloseWrite() error { c.Shutdown(true, false); return nil }

// LocalAddr implements net.Conn.
func (c *NetConn) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(c.s.LocalAddr()) }

// RemoteAddr implements net.Conn.
func (c *NetConn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.s.RemoteAddr()) }

// SetDeadline implements net.Conn.
func (c *NetConn) SetDeadline(t time.Time) error {
	c.set(&c.read, t)
	c.set(&c.write, t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *NetConn) SetReadDeadline(t time.Time) error { c.set(&c.read, t); return nil }

// SetWriteDeadline implements net.Conn.
func (c *NetConn) SetWriteDeadline(t time.Time) error { c.set(&c.write, t); return nil }

// deadline is the time until which calls block.
type deadline struct {
	timer  *time.Timer // sets passed; nil: no deadline
	passed bool
}

// set sets d, which must be a deadline of c, to t. The zero time means no deadline.
func (c *NetConn) set(d *deadline, t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	d.timer, d.passed = nil, false
	if t.IsZero() {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(time.Until(t), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if d.timer == timer { // otherwise it was replaced in the meantime
			d.passed = true
			c.changed.Broadcast()
		}
	})
	d.timer = timer
}
