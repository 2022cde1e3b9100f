package engine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"xwarp/ddp/rdmap"
	"xwarp/engine/budget"
	"xwarp/engine/iwarp"
	"xwarp/mpa/startup"
	"xwarp/tcp"
)

// TCPInfo is the state and the counters of the engine's own TCP for one connection.
type TCPInfo struct {
	tcp.Info
	tcp.Counters
}

// conn is one attempt at a connection, active or passive: it hears from its iwarp.Conn on the worker's thread.
type conn struct {
	dev      *Device
	qp       *QP // nil until a responder accepted
	listener *Listener
	request  *ConnRequest
	mpa      MPAConfig
	startup  startup.Config
	local    netip.AddrPort // both are set before attach, and stay
	remote   netip.AddrPort

	owner     atomic.Pointer[loop] // changes at most once, while the connection is being opened
	loopIndex int
	ses       *iwarp.Conn
	wake      func()
	info      func() *TCPInfo
	cut       func(why error) // ends the connection after a panic

	result chan error // one value: established, or why not
	retry  startup.Retry
	up     bool
	over   bool
	done   func() // the driver's, when the connection is gone
	// confirm, when set, tells the driver that the start-up is done; hold is a passive connection in the
	// accounts of peers, nil when the driver keeps that itself.
	confirm func()
	hold    *budget.Hold
}

// begin ties c to a worker; it runs there.
func (c *conn) begin(l *loop, i int, s *iwarp.Conn, wake func()) error {
	c.owner.Store(l)
	c.loopIndex, c.ses, c.wake = i, s, wake
	if c.qp != nil {
		return c.qp.attach(c)
	}
	return nil
}

// errTaken is a second connection for a queue pair; it does the first one no harm.
var errTaken = errors.New("queue pair has or had a connection already")

// attach makes c the connection of q. A queue pair has one connection in its life; only an attempt that never got
// established, and let go of q by release, may be followed by another.
func (q *QP) attach(c *conn) error {
	switch {
	case q.ses != nil, isClosed(q.gone):
		return errTaken
	case q.closing:
		return ErrClosed
	}
	q.conn.Store(c)
	q.ses, q.wakeTr = c.ses, c.wake
	return q.bind(c.owner.Load(), c.loopIndex)
}

// abandon ends q after the last attempt to connect it failed.
func (q *QP) abandon(err error) {
	l := q.loop.Load()
	if l == nil {
		q.setDown(err)
		return
	}
	l.callFor(q, func() { q.setGone(err) })
}

// call runs f on the worker that has c, wherever that moves.
func (c *conn) call(f func()) error {
	for {
		l, here := c.owner.Load(), false
		err := l.callFor(c, func() {
			if here = c.owner.Load() == l; here {
				f()
			}
		})
		if here || err != nil {
			return err
		}
	}
}

// cutOff implements part.
func (c *conn) cutOff(why error) {
	if c.cut != nil {
		c.cut(why)
	}
	c.report(why)
}

func (c *conn) abort() {
	switch {
	case c.over:
	case c.ses == nil: // the kernel is still connecting
		c.over = true
	default:
		c.ses.Abort(clock())
		c.wake()
	}
}

func (c *conn) report(err error) {
	select {
	case c.result <- err:
	default:
	}
}

// Request implements iwarp.Handler.
func (c *conn) Request(s *iwarp.Conn, r *startup.Request) {
	req := &ConnRequest{conn: c, PrivateData: r.PrivateData, IRD: int(r.IRD), ORD: int(r.ORD),
		Revision: r.Revision, Local: c.local, Remote: c.remote}
	c.request = req
	select {
	case c.listener.requests <- req:
		c.dev.log.Info("RDMA_CM_EVENT_CONNECT_REQUEST", "local", c.local, "remote", c.remote,
			"private_data", len(r.PrivateData))
	default:
		c.dev.log.Warn("connection rejected: the consumer accepts too slowly", "remote", c.remote,
			"backlog", cap(c.listener.requests))
		s.Reject(startup.Answer{})
	}
}

// Established implements iwarp.Handler.
func (c *conn) Established(s *iwarp.Conn, p *startup.Params) {
	c.up = true
	c.hold.Established()
	if c.confirm != nil {
		c.confirm()
	}
	c.dev.log.Info("RDMA_CM_EVENT_ESTABLISHED", "local", c.local, "remote", c.remote, "revision",
		p.Revision,
		"markers_out", p.Send.Markers, "markers_in", p.Receive.Markers, "crc", p.Send.CRC, "ird",
		p.IRD, "ord", p.ORD)
	c.qp.setUp(p)
	c.report(nil)
}

// Disconnected implements iwarp.Handler.
func (c *conn) Disconnected(s *iwarp.Conn, err error) {
	c.dev.log.Info("RDMA_CM_EVENT_DISCONNECTED", "local", c.local, "remote", c.remote, "error",
		errText(err))
	c.qp.setDown(err)
}

// PullPosted implements iwarp.Handler.
func (c *conn) PullPosted() {
	if c.qp != nil {
		c.qp.settle()
	}
}

// Closed implements iwarp.Handler.
func (c *conn) Closed(s *iwarp.Conn, err error) {
	c.over = true
	c.hold.End(clock())
	if c.done != nil {
		c.done()
	}
	if c.request != nil {
		c.request.lapse()
	}
	if c.up {
		c.qp.setGone(err)
		return
	}
	if err == nil {
		err = iwarp.ErrStartup
	}
	c.retry = s.Retry()
	if c.listener == nil {
		c.qp.release()
	}
	c.dev.log.Info("connection not established", "local", c.local, "remote", c.remote, "error", err)
	if c.listener != nil && c.qp != nil {
		c.qp.setGone(err)
	}
	c.report(err)
}

func errText(err error) string {
	if err == nil {
		return "none"
	}
	return err.Error()
}

// Listener waits for connections.
type Listener struct {
	dev      *Device
	cfg      ConnConfig
	asked    netip.AddrPort
	addr     netip.AddrPort
	requests chan *ConnRequest
	closed   chan struct{}
	closing  sync.Once
	drv      any // the driver's own
}

// Listen waits for connections at addr: one of the host's addresses, or the unspecified one for all; port 0
// takes a free one.
func (d *Device) Listen(addr netip.AddrPort, backlog int, cfg ConnConfig) (*Listener, error) {
	if backlog <= 0 {
		backlog = DefaultBacklog
	}
	l := &Listener{dev: d, cfg: cfg, asked: addr, requests: make(chan *ConnRequest, backlog),
		closed: make(chan struct{})}
	got, err := d.drv.listen(l)
	if err != nil {
		return nil, fmt.Errorf("rdma_listen on %v: %w", addr, err)
	}
	l.addr = got
	return l, nil
}

// DefaultBacklog is how many connection requests wait for Accept.
const DefaultBacklog = 128

// Addr returns where l listens.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// Accept returns the next connection request.
func (l *Listener) Accept(ctx context.Context) (*ConnRequest, error) {
	select {
	case r := <-l.requests:
		return r, nil
	case <-l.closed:
		return nil, ErrListenerClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close stops listening; connections stay.
func (l *Listener) Close() error {
	l.closing.Do(func() {
		l.dev.drv.unlisten(l)
		close(l.closed)
	})
	for {
		select {
		case r := <-l.requests:
			r.Reject(nil)
		default:
			return nil
		}
	}
}

// ConnRequest is a peer's wish to connect. It must be answered with Accept or Reject, before the start-up timeout.
type ConnRequest struct {
	conn          *conn
	Local, Remote netip.AddrPort
	Revision      startup.Revision
	PrivateData   []byte
	IRD, ORD      int // the peer's; startup.NotNegotiated when it said nothing
	lapsed        bool
}

func (r *ConnRequest) lapse() { r.lapsed = true }

// ErrLapsed is returned when the peer went away before its request was answered.
var ErrLapsed = errors.New(
	"the connection request lapsed: the peer closed or the start-up timed out")

// Accept makes qp the end of the connection and returns when it can be used.
func (r *ConnRequest) Accept(ctx context.Context, qp *QP, private []byte) error {
	c := r.conn
	var err error
	if e := c.call(func() { err = r.accept(qp, private) }); e != nil {
		return e
	}
	if err != nil {
		return fmt.Errorf("rdma_accept of %v: %w", r.Remote, err)
	}
	if err := qp.established(ctx); err != nil {
		return fmt.Errorf("rdma_accept of %v: %w", r.Remote, err)
	}
	return nil
}

func (r *ConnRequest) accept(qp *QP, private []byte) error {
	c := r.conn
	if r.lapsed || c.qp != nil {
		return ErrLapsed
	}
	c.qp = qp
	if err := qp.attach(c); err != nil {
		c.qp = nil
		return err
	}
	defer c.wake()
	return c.ses.Accept(&qp.core, startup.Answer{PrivateData: private, IRD: uint16(qp.cfg.IRD),
		ORD: uint16(qp.cfg.ORD)})
}

// Reject answers no.
func (r *ConnRequest) Reject(private []byte) error {
	c := r.conn
	var err error
	e := c.call(func() {
		if r.lapsed || c.qp != nil {
			err = ErrLapsed
			return
		}
		err = c.ses.Reject(startup.Answer{PrivateData: private})
		c.wake()
	})
	return errors.Join(e, err)
}

var _ iwarp.Handler = (*conn)(nil)
var _ rdmap.Completer = (*QP)(nil)
