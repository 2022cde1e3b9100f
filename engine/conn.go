package engine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
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

// conn is one attempt at a connection, active or passive. It is the iwarp.Handler of its iwarp.Conn, which calls it on
// the worker's thread, and answers the peer's request (verbs.Answerer).
type conn struct {
	dev      *Device
	qp       *QP // nil until a responder accepted
	listener *Listener
	mpa      verbs.MPAConfig
	startup  startup.Config
	local    netip.AddrPort // both are set before attach, and stay
	remote   netip.AddrPort

	owner   atomic.Pointer[loop] // changes at most once, while the connection is being opened
	iw      *iwarp.Conn
	counted tally.Counted[mpa.ReceiverCounters] // what is in the loop's sums
	below   carrier                             // of iw; nil while the kernel is still connecting
	port    *ports.Reservation                  // nil where the kernel has the port, or a listener

	result   chan error // one value: established, or why not
	retry    startup.Retry
	over     bool           // ended, or given up before it began
	rejected bool           // by the consumer, who knows
	charge   *budget.Charge // a passive connection on a socket, in the accounts of peers; the stack has the others
}

// carrier is what carries the octets of a connection: an xdpConn or a kernelConn.
type carrier interface {
	abandoner
	transport() string       // verbs.Transport.Name
	tcpInfo() *verbs.TCPInfo // nil for a socket
	// established says that MPA's start-up is done: the accounts of peers want to know, and from now on the connection
	// has its turns as one of the owner's.
	established(s *share)
	reclaim() // what the queue pair has lent it is not read any more
}

// passive returns a peer's attempt, with what MPA negotiates with it.
func (l *Listener) passive(local, remote netip.AddrPort) (*conn, error) {
	m, err := l.dev.mpaConfig(&l.cfg, remote.Addr())
	if err != nil {
		return nil, err
	}
	return &conn{dev: l.dev, listener: l, mpa: m, startup: responder(&m), local: local,
		remote: remote, result: make(chan error, 1)}, nil
}

// active returns an attempt of q.
func (q *QP) active(remote netip.AddrPort, m *verbs.MPAConfig, private []byte) *conn {
	return &conn{dev: q.dev, qp: q, mpa: *m, startup: initiator(m, private, q.ird, q.ord),
		remote: remote, result: make(chan error, 1)}
}

// begin ties c to a worker; it runs there.
func (c *conn) begin(l *loop, s *iwarp.Conn, below carrier) error {
	c.owner.Store(l)
	c.iw, c.below = s, below
	if c.qp != nil {
		return c.qp.attach(c)
	}
	return nil
}

// iwarpConfig is the configuration of c's iwarp.Conn on loop l.
func (d *Device) iwarpConfig(c *conn, l *loop, reliable bool) iwarp.Config {
	s := iwarp.Config{
		Responder: c.listener != nil, Startup: c.startup, Pool: l.pool, Handler: c,
		Pack:     !d.opt.NoPack,
		Reliable: reliable, AnyCRCError: c.mpa.AnyCRCError, Window: d.opt.Window,
		StartupTimeout:   d.opt.StartupTimeout,
		FirstFPDUTimeout: d.opt.FirstFPDUTimeout,
		FPDUTimeout:      d.opt.FPDUTimeout,
		CloseTimeout:     d.opt.CloseTimeout,
	}
	if c.qp != nil {
		s.QP = &c.qp.core
	}
	return s
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

// abandon implements abandoner.
func (c *conn) abandon(why error) {
	if c.below != nil {
		c.below.abandon(why)
	}
	c.report(why)
}

func (c *conn) abort() {
	switch {
	case c.over:
	case c.iw == nil: // the kernel is still connecting
		c.over = true
	default:
		c.iw.Abort(clock())
		c.iw.Wake()
	}
}

// await returns what was reported; a context that is done ends the attempt.
func (c *conn) await(ctx context.Context) error {
	select {
	case err := <-c.result:
		return err
	case <-ctx.Done():
		c.call(c.abort)
		return context.Cause(ctx)
	}
}

func (c *conn) report(err error) {
	c.owner.Load().tell(func() {
		select {
		case c.result <- err:
		default:
		}
	})
}

// Request implements iwarp.Handler.
func (c *conn) Request(s *iwarp.Conn, r *startup.Request) {
	req := &verbs.ConnRequest{
		Local: c.local, Remote: c.remote, Revision: r.Revision, PrivateData: r.PrivateData,
		IRD: int(r.IRD), ORD: int(r.ORD), Answerer: c,
	}
	l := c.listener
	if l.waiting.Add(1) <= int32(cap(l.requests)) {
		c.owner.Load().tell(func() { l.show(req) })
		c.dev.log.Info("RDMA_CM_EVENT_CONNECT_REQUEST", "local", c.local, "remote", c.remote,
			"private_data", len(r.PrivateData))
		return
	}
	l.waiting.Add(-1)
	c.dev.log.Warn("connection rejected: the consumer accepts too slowly", "remote", c.remote,
		"backlog", cap(l.requests))
	c.rejected = s.Reject(startup.Answer{}) == nil
}

// Established implements iwarp.Handler.
func (c *conn) Established(s *iwarp.Conn, p *startup.Params) {
	c.below.established(c.qp.share)
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
	if !c.rejected {
		c.dev.log.Info("connection not established", "local", c.local, "remote", c.remote, "error",
			err)
	}
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
	c.charge.End(clock())
	c.port.Close()
}

// isActive reports whether c belongs to a queue pair.
func (c *conn) isActive() bool { return c.qp != nil }

// leave takes c, which is still being opened, from the worker of l. It runs there.
func (c *conn) leave(l *loop) {
	c.qp.release()
	l.sums.leaveConn(c)
}

func errText(err error) string {
	if err == nil {
		return "none"
	}
	return err.Error()
}

// Accept implements verbs.Answerer.
func (c *conn) Accept(ctx context.Context, qp verbs.QP, private []byte) error {
	q, err := c.dev.qp(qp)
	if err == nil {
		err = c.acceptWait(ctx, q, private)
	}
	return verbs.Wrap(fmt.Sprintf("rdma_accept of %v", c.remote), err)
}

func (c *conn) acceptWait(ctx context.Context, q *QP, private []byte) (err error) {
	if ctx.Err() != nil {
		c.call(c.abort)
		return context.Cause(ctx)
	}
	if e := c.call(func() { err = c.accept(q, private) }); e != nil || err != nil {
		return errors.Join(e, err)
	}
	if err = q.established(ctx); err != nil && ctx.Err() != nil {
		c.call(c.abort)
	}
	return err
}

func (c *conn) accept(qp *QP, private []byte) error {
	if c.answered() {
		return verbs.ErrLapsed
	}
	c.qp = qp
	if err := qp.attach(c); err != nil {
		c.qp = nil
		return err
	}
	defer c.iw.Wake()
	return lapsed(c.iw.Accept(&qp.core, startup.Answer{PrivateData: private,
		IRD: uint16(qp.ird), ORD: uint16(qp.ord)}))
}

// lapsed is the word of the verbs for an answer that comes too late.
func lapsed(err error) error {
	if errors.Is(err, iwarp.ErrNotAsked) {
		return verbs.ErrLapsed
	}
	return err
}

// answered reports whether it is too late to answer the peer's request.
func (c *conn) answered() bool { return c.over || c.qp != nil }

// Reject implements verbs.Answerer.
func (c *conn) Reject(private []byte) error {
	var err error
	e := c.call(func() {
		if c.answered() {
			err = verbs.ErrLapsed
			return
		}
		err = lapsed(c.iw.Reject(startup.Answer{PrivateData: private}))
		c.rejected = err == nil
		c.iw.Wake()
	})
	return verbs.Wrap(fmt.Sprintf("rdma_reject of %v", c.remote), errors.Join(e, err))
}

var _ iwarp.Handler = (*conn)(nil)
var _ rdmap.Completer = (*QP)(nil)

var (
	_ verbs.Device   = (*Device)(nil)
	_ verbs.PD       = (*PD)(nil)
	_ verbs.MR       = (*MR)(nil)
	_ verbs.MW       = (*MW)(nil)
	_ verbs.CQ       = (*CQ)(nil)
	_ verbs.SRQ      = (*SRQ)(nil)
	_ verbs.QP       = (*QP)(nil)
	_ verbs.Listener = (*Listener)(nil)
	_ verbs.Answerer = (*conn)(nil)
)
