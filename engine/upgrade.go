package engine

import (
	"context"
	"fmt"
	"syscall"

	"xwarp/engine/bytestream"
	"xwarp/engine/iwarp"
	"xwarp/engine/verbs"
	"xwarp/tcp/tick"
)

// ErrBusy is returned by Upgrade and AwaitRequest when octets beyond a gap have arrived: try again when the
// stream is in order.
var ErrBusy = fmt.Errorf(
	"%w: bytes have arrived out of order; MPA can start once the gap is closed", syscall.EBUSY)

// Upgrade starts MPA as initiator on a stream that was used before (delayed start-up, RFC 5044, 7.1.4, figure
// 9): what was written goes first, and what the peer sends from now on is MPA's. It returns when qp can be
// used; the stream itself is not usable any more, whatever the outcome. It fails as Dial does, and with ErrBusy.
func (d *XDPDevice) Upgrade(ctx context.Context, s *Stream, v verbs.QP, cfg verbs.ConnConfig) error {
	qp, err := d.qp(v)
	if err != nil {
		return err
	}
	m, err := d.mpaConfig(&cfg, s.remote.Addr())
	if err != nil {
		return fmt.Errorf("MPA start-up with %v: %w", s.remote, err)
	}
	c := qp.active(s.remote, &m, cfg.PrivateData)
	if err = d.upgrade(s, c); err == nil {
		err = c.await(ctx)
	}
	if err != nil {
		qp.giveUp(err)
		return fmt.Errorf("MPA start-up with %v: %w", s.remote, err)
	}
	return nil
}

// AwaitRequest is the responder's part: it returns the MPA Request that the peer sends on a stream that was
// used before. It fails with what ended the connection, ErrBusy, and the context's error.
func (d *XDPDevice) AwaitRequest(ctx context.Context, s *Stream,
	cfg verbs.ConnConfig) (*verbs.ConnRequest, error) {
	l := &Listener{dev: d.Device, cfg: cfg, requests: make(chan *verbs.ConnRequest, 1),
		closed: make(chan struct{})}
	c, err := l.passive(s.local, s.remote)
	if err != nil {
		return nil, fmt.Errorf("MPA start-up with %v: %w", s.remote, err)
	}
	if err := d.upgrade(s, c); err != nil {
		return nil, err
	}
	select {
	case r := <-l.requests:
		return r, nil
	case err := <-c.result:
		return nil, fmt.Errorf("MPA start-up with %v: %w", s.remote, err)
	case <-ctx.Done():
		c.call(c.abort)
		return nil, context.Cause(ctx)
	}
}

// upgrade puts an iwarp.Conn above the connection of s.
func (d *XDPDevice) upgrade(s *Stream, c *conn) error {
	if d.isClosed() {
		return verbs.ErrClosed
	}
	c.local = s.local
	return s.w.do(func() error { return d.x.replace(s, c, clock()) })
}

func (x *xdpDriver) replace(s *Stream, c *conn, now tick.Time) error {
	e := s.bytes.Endpoint()
	if e == nil {
		return verbs.ErrNotReady
	}
	if e.Conn().Info(now).HeldBytes > 0 {
		return ErrBusy
	}
	o, err := x.carry(s.w, c)
	if err != nil {
		return err
	}
	c.port = s.port.Swap(nil)
	snd, rcv, unread := s.bytes.HandOver()
	e.SetUpper(o)
	o.StartAfter(s.bytes, e, snd, rcv, unread, now)
	return nil
}

var _ iwarp.Prior = (*bytestream.Stream)(nil)
