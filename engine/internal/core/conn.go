package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"

	"xwarp/engine/budget"
	"xwarp/engine/host/ports"
	"xwarp/engine/iwarp"
	"xwarp/engine/tally"
	"xwarp/engine/verbs"
	"xwarp/mpa"
	"xwarp/mpa/startup"
	"xwarp/tcp"
	"xwarp/tcp/ip"
)

// Conn is one attempt to connect, active or passive. It is the iwarp.Handler of its iwarp.Conn, which calls it on
// the worker's thread, and answers the peer's request (verbs.Answerer).
type Conn struct {
	dev      *Device
	qp       *QP // nil until a responder accepted
	listener *Listener
	mpa      verbs.MPAConfig
	Startup  startup.Config
	Local    netip.AddrPort // Local and Remote are set before attach and do not change
	Remote   netip.AddrPort

	Owner   atomic.Pointer[Shard] // changes at most once, before the connection is established
	iw      *iwarp.Conn
	counted tally.Counted[mpa.ReceiverCounters] // counters that the shard's sums already contain
	carrier Carrier                             // carries the bytes of iw; nil while the kernel is still connecting
	Port    *ports.Reservation                  // nil if the kernel or a listener has the port

	result   chan error // one value: nil once established, or the error
	retry    startup.Retry
	Ended    bool           // the connection ended, or the attempt was abandoned
	rejected bool           // this end rejected the request, so its end is not logged as a failure
	Charge   *budget.Charge // of a passive connection on a socket; the stack holds the charges of the others
}

// Carrier transports the bytes of one connection: an xdp.conn or a sockets.conn.
type Carrier interface {
	panicTarget
	Transport() string       // the value of verbs.ConnInfo.Transport
	TCPInfo() *verbs.TCPInfo // nil for a socket
	// OnEstablished is called when MPA's start-up is done. The peer is then charged for an established connection. From
	// then on the connection takes its turns in s, the share of its owner.
	OnEstablished(s *Share)
	// Obstacle returns what keeps segments from being sent, or nil.
	Obstacle() error
	// SetTOS sets the TOS byte or traffic class of packets, without the ECN bits.
	SetTOS(tos uint8)
	// Reclaim makes the carrier stop reading memory that the queue pair lent to it.
	Reclaim()
}

// NewPassiveConn returns a connection initiated by the peer. It fails if the policy denies the peer.
func (l *Listener) NewPassiveConn(local, remote netip.AddrPort) (*Conn, error) {
	m, err := l.dev.mpaConfig(l.mpa, remote.Addr())
	if err != nil {
		return nil, err
	}
	return &Conn{dev: l.dev, listener: l, mpa: m, Startup: responder(&m), Local: local,
		Remote: remote, result: make(chan error, 1)}, nil
}

// newActiveConn returns an attempt to connect q to remote.
func (q *QP) newActiveConn(remote netip.AddrPort, m *verbs.MPAConfig, private []byte) *Conn {
	return &Conn{dev: q.dev, qp: q, mpa: *m, Startup: initiator(m, private, q.ird, q.ord),
		Remote: remote, result: make(chan error, 1)}
}

// TOS returns the TOS byte of c's packets, without ECN. It is that of the queue pair, else that of the listener, else
// that of the device: the first whose DSCP is set.
func (c *Conn) TOS() uint8 {
	own, listener := 0, 0
	if c.qp != nil {
		own = int(c.qp.dscp.Load())
	}
	if c.listener != nil {
		listener = c.listener.dscp
	}
	return tosOf(own, listener, c.dev.opt.DSCP)
}

// Bind binds c to the worker of shard, and attaches its queue pair if it has one. It runs on that worker. It fails if
// the queue pair is closed, or has or had another connection.
func (c *Conn) Bind(shard *Shard, s *iwarp.Conn, below Carrier) error {
	c.Owner.Store(shard)
	c.iw, c.carrier = s, below
	if c.qp != nil {
		return c.qp.attach(c)
	}
	return nil
}

// iwarpConfig returns the configuration of c's iwarp.Conn on shard.
func (d *Device) iwarpConfig(c *Conn, shard *Shard, reliable bool) iwarp.Config {
	s := iwarp.Config{
		Responder: c.listener != nil, Startup: c.Startup, Pool: shard.pool, Handler: c,
		Pack:     !d.opt.NoPack,
		Reliable: reliable, AnyCRCError: c.mpa.AnyCRCError, Window: d.opt.Window,
		StartupTimeout:   d.opt.StartupTimeout,
		FirstFPDUTimeout: d.opt.FirstFPDUTimeout,
		FPDUTimeout:      d.opt.FPDUTimeout,
		CloseTimeout:     d.opt.CloseTimeout,
	}
	if c.qp != nil {
		s.QP = &c.qp.rdma
	}
	return s
}

// call runs f on the worker that owns c, even if c moves to another worker meanwhile.
func (c *Conn) call(f func()) error {
	for {
		s, here := c.Owner.Load(), false
		err := s.CallFor(c, func() {
			if here = c.Owner.Load() == s; here {
				f()
			}
		})
		if here || err != nil {
			return err
		}
	}
}

// EndAfterPanic implements panicTarget.
func (c *Conn) EndAfterPanic(why error) {
	if c.carrier != nil {
		c.carrier.EndAfterPanic(why)
	}
	c.Report(why)
}

// abort resets the connection, or abandons an attempt that has none yet.
func (c *Conn) abort() {
	switch {
	case c.Ended:
	case c.iw == nil: // the kernel is still connecting
		c.Ended = true
	default:
		c.iw.Abort(Now())
		c.iw.Schedule()
	}
}

// await waits for the result of the attempt. When ctx is done, it aborts the attempt and returns the context's cause,
// with what kept segments from being sent, if anything did.
func (c *Conn) await(ctx context.Context) error {
	select {
	case err := <-c.result:
		return err
	case <-ctx.Done():
		var obstacle error
		c.call(func() {
			if c.carrier != nil {
				obstacle = c.carrier.Obstacle()
			}
			c.abort()
		})
		if obstacle != nil {
			return fmt.Errorf("%w; %w", context.Cause(ctx), obstacle)
		}
		return context.Cause(ctx)
	}
}

// Report ends the attempt with err, or with success when err is nil. Later calls have no effect.
func (c *Conn) Report(err error) {
	c.Owner.Load().Notify(func() {
		select {
		case c.result <- err:
		default:
		}
	})
}

// Request implements iwarp.Handler. It rejects the peer if the listener's backlog is full.
func (c *Conn) Request(s *iwarp.Conn, r *startup.Request) {
	req := &verbs.ConnRequest{
		Local: c.Local, Remote: c.Remote, Revision: r.Revision, PrivateData: r.PrivateData,
		IRD: int(r.IRD), ORD: int(r.ORD), Answerer: c,
	}
	l := c.listener
	if l.waiting.Add(1) <= int32(cap(l.requests)) {
		c.Owner.Load().Notify(func() { l.deliver(req) })
		c.dev.log.Debug("RDMA_CM_EVENT_CONNECT_REQUEST", "local", c.Local, "remote", c.Remote,
			"private_data", len(r.PrivateData))
		return
	}
	l.waiting.Add(-1)
	c.dev.log.Warn("connection rejected: listen backlog is full", "remote", c.Remote,
		"backlog", cap(l.requests))
	c.rejected = s.Reject(startup.Answer{}) == nil
}

// Logger may be implemented by the UserData of a queue pair. Log lines about its connection then go to this Logger.
type Logger interface{ Logger() *slog.Logger }

// log returns the log for lines about the connection.
func (c *Conn) log() *slog.Logger {
	if c.qp != nil {
		if v, ok := c.qp.cfg.UserData.(Logger); ok {
			return v.Logger()
		}
	}
	return c.dev.log
}

// Established implements iwarp.Handler.
func (c *Conn) Established(s *iwarp.Conn, p *startup.Params) {
	c.carrier.OnEstablished(c.qp.share)
	c.log().Info("RDMA_CM_EVENT_ESTABLISHED", "local", c.Local, "remote", c.Remote, "revision",
		p.Revision,
		"markers_out", p.Send.Markers, "markers_in", p.Receive.Markers, "crc", p.Send.CRC, "ird",
		p.IRD, "ord", p.ORD)
	c.qp.markEstablished(p)
	c.Report(nil)
}

// Disconnected implements iwarp.Handler.
func (c *Conn) Disconnected(s *iwarp.Conn, err error) {
	log := c.log()
	if err != nil {
		log = log.With("error", err)
	}
	log.Info("RDMA_CM_EVENT_DISCONNECTED", "local", c.Local, "remote", c.Remote)
	c.qp.markDisconnected(err)
}

// TakePosted implements iwarp.Handler.
func (c *Conn) TakePosted() {
	if c.qp != nil {
		c.qp.takeUnrung()
	}
}

// Closed implements iwarp.Handler.
func (c *Conn) Closed(s *iwarp.Conn, err error) {
	c.Ended = true
	c.Release()
	if c.qp != nil && c.qp.hasReached(lifeEstablished) {
		c.qp.markGone(err)
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
		c.log().Info("connection not established", "local", c.Local, "remote", c.Remote, "error",
			err)
	}
	if c.listener != nil && c.qp != nil {
		c.qp.markGone(err)
	}
	c.Report(err)
}

// Release returns the port and the charge of c, and adds its counters to the sums. It runs on the worker.
func (c *Conn) Release() {
	if s := c.Owner.Load(); s != nil {
		s.Sums.removeConn(c)
	}
	c.Charge.End(Now())
	c.Port.Close()
}

// IsActive reports whether c has a queue pair, as every attempt of this end to connect has.
func (c *Conn) IsActive() bool { return c.qp != nil }

// Unbind undoes Bind on the worker of s, before c is established. It runs on that worker.
func (c *Conn) Unbind(s *Shard) {
	c.qp.release()
	s.Sums.removeConn(c)
}

// Accept implements verbs.Answerer.
func (c *Conn) Accept(ctx context.Context, qp verbs.QP, private []byte) error {
	q, err := c.dev.qp(qp)
	if err == nil {
		err = c.acceptWait(ctx, q, private)
	}
	return verbs.Wrap(fmt.Sprintf("rdma_accept of %v", c.Remote), err)
}

func (c *Conn) acceptWait(ctx context.Context, q *QP, private []byte) (err error) {
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

func (c *Conn) accept(qp *QP, private []byte) error {
	if c.answered() {
		return verbs.ErrLapsed
	}
	c.qp = qp
	if err := qp.attach(c); err != nil {
		c.qp = nil
		return err
	}
	if qp.dscp.Load() != 0 {
		c.carrier.SetTOS(c.TOS())
	}
	defer c.iw.Schedule()
	return lapsed(c.iw.Accept(&qp.rdma, startup.Answer{PrivateData: private,
		IRD: uint16(qp.ird), ORD: uint16(qp.ord)}))
}

// lapsed returns the verbs' error for an answer that comes too late.
func lapsed(err error) error {
	if errors.Is(err, iwarp.ErrNotAsked) {
		return verbs.ErrLapsed
	}
	return err
}

// answered reports whether it is too late to answer the peer's request: the connection has ended or was accepted.
func (c *Conn) answered() bool { return c.Ended || c.qp != nil }

// Reject implements verbs.Answerer.
func (c *Conn) Reject(private []byte) error {
	var err error
	e := c.call(func() {
		if c.answered() {
			err = verbs.ErrLapsed
			return
		}
		err = lapsed(c.iw.Reject(startup.Answer{PrivateData: private}))
		c.rejected = err == nil
		c.iw.Schedule()
	})
	return verbs.Wrap(fmt.Sprintf("rdma_reject of %v", c.Remote), errors.Join(e, err))
}

var _ verbs.Device = (*Device)(nil)

// ToNetip returns a as a netip.Addr, IPv4 addresses in their 4-byte form.
func ToNetip(a ip.Addr) netip.Addr { return netip.AddrFrom16(a).Unmap() }

// FromNetip is the inverse of ToNetip.
func FromNetip(a netip.Addr) ip.Addr { return ip.Addr(a.As16()) }

// TupleAddrs returns the two ends of a connection.
func TupleAddrs(t *tcp.Tuple) (local, remote netip.AddrPort) {
	return netip.AddrPortFrom(ToNetip(t.Local), t.LocalPort), netip.AddrPortFrom(ToNetip(t.Remote),
		t.RemotePort)
}

// AddrPort returns the address of a TCP socket, the zero AddrPort for other sockets.
func AddrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		p := t.AddrPort()
		return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
	}
	return netip.AddrPort{}
}
