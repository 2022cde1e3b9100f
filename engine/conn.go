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
	"xwarp/engine/host/ports"
	"xwarp/engine/iwarp"
	"xwarp/engine/tally"
	"xwarp/engine/verbs"
	"xwarp/mpa"
	"xwarp/mpa/startup"
)

// conn is one attempt at a connection, active or passive: it hears from its iwarp.Conn on the worker's thread.
type conn struct {
	dev      *Device
	qp       *QP // nil until a responder accepted
	listener *Listener
	request  *request
	mpa      verbs.MPAConfig
	startup  startup.Config
	local    netip.AddrPort // both are set before attach, and stay
	remote   netip.AddrPort

	owner     atomic.Pointer[loop] // changes at most once, while the connection is being opened
	loopIndex int
	ses       *iwarp.Conn
	counted   tally.Counted[mpa.ReceiverCounters] // what is in the loop's sums
	below     carrier                             // of ses; nil while the kernel is still connecting
	port      *ports.Reservation                  // nil where the kernel has the port, or a listener

	result chan error // one value: established, or why not
	retry  startup.Retry
	over   bool         // ended, or given up before it began
	hold   *budget.Hold // a passive connection on a socket, in the accounts of peers; the stack has the others
}

// carrier is what carries the octets of a connection: an xdpConn or a kernelConn.
type carrier interface {
	part
	tcpInfo() *verbs.TCPInfo // nil for a socket
	established()            // MPA's start-up is done: the accounts of peers want to know
}

// begin ties c to a worker; it runs there.
func (c *conn) begin(l *loop, i int, s *iwarp.Conn, below carrier) error {
	c.owner.Store(l)
	c.loopIndex, c.ses, c.below = i, s, below
	if c.qp != nil {
		return c.qp.attach(c)
	}
	return nil
}

// attach makes c the connection of q. A queue pair has one connection in its life; only an attempt that never got
// established, and let go of q by release, may be followed by another.
func (q *QP) attach(c *conn) error {
	switch {
	case q.is(lifeAttached):
		return verbs.ErrHasConn
	case q.closing:
		return verbs.ErrClosed
	}
	q.conn.Store(c)
	q.ses = c.ses
	q.life.Store(uint32(lifeAttached))
	return q.bind(c.owner.Load(), c.loopIndex)
}

// abandon ends q after the last attempt to connect it failed.
func (q *QP) abandon(err error) {
	l := q.loop.Load()
	if l == nil {
		q.setGone(err)
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
	if c.below != nil {
		c.below.cutOff(why)
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
		c.ses.Wake()
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
	c.request = &request{conn: c}
	req := &verbs.ConnRequest{
		Local: c.local, Remote: c.remote, Revision: r.Revision, PrivateData: r.PrivateData,
		IRD: int(r.IRD), ORD: int(r.ORD), Answerer: c.request,
	}
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
	c.below.established()
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
	c.release()
	if c.request != nil {
		c.request.lapsed = true
	}
	if c.qp != nil && c.qp.is(lifeEstablished) {
		c.qp.setGone(err)
		return
	}
	if err == nil {
		err = verbs.ErrStartup
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

// release gives back what c has outside of itself, and counts it among those that ended. It runs on the worker.
func (c *conn) release() {
	if l := c.owner.Load(); l != nil {
		l.sums.leaveConn(c)
	}
	c.hold.End(clock())
	c.port.Close()
}

func errText(err error) string {
	if err == nil {
		return "none"
	}
	return err.Error()
}

// Listener is verbs.Listener of the engine.
type Listener struct {
	dev      *Device
	cfg      verbs.ConnConfig
	asked    netip.AddrPort
	addr     netip.AddrPort
	requests chan *verbs.ConnRequest
	closed   chan struct{}
	closing  sync.Once
	drv      any // the driver's own
}

// Listen implements verbs.Device.
func (d *Device) Listen(addr netip.AddrPort, backlog int,
	cfg verbs.ConnConfig) (verbs.Listener, error) {
	if backlog <= 0 {
		backlog = verbs.DefaultBacklog
	}
	l := &Listener{dev: d, cfg: cfg, asked: addr, requests: make(chan *verbs.ConnRequest, backlog),
		closed: make(chan struct{})}
	got, err := d.drv.listen(l)
	if err != nil {
		return nil, verbs.Wrap(fmt.Sprintf("rdma_listen on %v", addr), err)
	}
	l.addr = got
	return l, nil
}

// Addr implements verbs.Listener.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// Accept implements verbs.Listener.
func (l *Listener) Accept(ctx context.Context) (*verbs.ConnRequest, error) {
	select {
	case r := <-l.requests:
		return r, nil
	case <-l.closed:
		return nil, verbs.ErrListenerClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close implements verbs.Listener.
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

// request is verbs.Answerer of the engine.
type request struct {
	conn   *conn
	lapsed bool // the worker's
}

// Accept implements verbs.Answerer.
func (r *request) Accept(ctx context.Context, qp verbs.QP, private []byte) error {
	q, err := r.conn.dev.qp(qp)
	if err == nil {
		err = r.establish(ctx, q, private)
	}
	return verbs.Wrap(fmt.Sprintf("rdma_accept of %v", r.conn.remote), err)
}

func (r *request) establish(ctx context.Context, q *QP, private []byte) (err error) {
	c := r.conn
	if e := c.call(func() { err = r.accept(q, private) }); e != nil || err != nil {
		return errors.Join(e, err)
	}
	if err = q.established(ctx); err != nil && ctx.Err() != nil {
		c.call(c.abort)
	}
	return err
}

func (r *request) accept(qp *QP, private []byte) error {
	c := r.conn
	if r.lapsed || c.qp != nil {
		return verbs.ErrLapsed
	}
	c.qp = qp
	if err := qp.attach(c); err != nil {
		c.qp = nil
		return err
	}
	defer c.ses.Wake()
	return c.ses.Accept(&qp.core, startup.Answer{PrivateData: private, IRD: uint16(qp.cfg.IRD),
		ORD: uint16(qp.cfg.ORD)})
}

// Reject implements verbs.Answerer.
func (r *request) Reject(private []byte) error {
	c := r.conn
	var err error
	e := c.call(func() {
		if r.lapsed || c.qp != nil {
			err = verbs.ErrLapsed
			return
		}
		err = c.ses.Reject(startup.Answer{PrivateData: private})
		c.ses.Wake()
	})
	return verbs.Wrap(fmt.Sprintf("rdma_reject of %v", c.remote), errors.Join(e, err))
}

var _ iwarp.Handler = (*conn)(nil)
var _ rdmap.Completer = (*QP)(nil)

var (
	_ verbs.Device   = (*Device)(nil)
	_ verbs.PD       = (*PD)(nil)
	_ verbs.MR       = (*MR)(nil)
	_ verbs.CQ       = (*CQ)(nil)
	_ verbs.QP       = (*QP)(nil)
	_ verbs.Listener = (*Listener)(nil)
	_ verbs.Answerer = (*request)(nil)
)
