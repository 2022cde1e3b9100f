package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine/iwarp"
	"xwarp/engine/overtcp"
	"xwarp/engine/stack"
	"xwarp/mpa"
	"xwarp/mpa/startup"
	"xwarp/tcp"
	"xwarp/tcp/tick"
)

const (
	rdmaPort  = 7174
	recvDepth = 64
)

// rdmaEnd is one end of a connection, with a program to run.
type rdmaEnd struct {
	name   string
	c      *rdmaConn
	host   *Host
	life   uint64
	peer   *rdmaEnd
	table  *ddp.Table
	pool   *mpa.Pool
	pd     *ddp.PD
	mr     *ddp.MR
	qp     rdmap.QP
	share  *share // objects shared with other connections of the host; nil: none
	extra  []*ddp.MR
	window *ddp.Window

	binding bool     // the program has an operation that binds window
	bound   ddp.STag // STag of window once its binding is complete

	vanished bool // mem cannot be accessed
	dials    bool // it is side a
	number   int  // index in share.ends
	iw       *overtcp.Conn
	mem      []byte
	base     []byte // the initial content of mem
	ops      []op
	next     int
	recvs    []recvBuf

	sent         uint64 // bytes, counted when a repeated program ends
	recvPosted   int
	recvDone     int
	lateDue      bool // postLate has scheduled the next receive, or no more are accepted
	acks         int  // completions of ops
	up           bool
	down, closed int
	err          error
	disconnected bool
}

// rdmaConfig is the free parameters of one connection.
type rdmaConfig struct {
	ini, rsp    startup.Config
	pack        bool
	window      int
	depth       int
	ops         int // maximum number of operations of each end
	maxOp       int // maximum length of an operation in bytes
	tcpA, tcpB  tcp.Config
	acceptDelay tick.Duration
	answer      startup.Answer // default: IRD and ORD 8
	badOp       bool           // one operation uses an STag that the peer does not have
	verbs       bool           // all verbs, not only those of a simple program
	sockets     bool           // over sockets, not over the engine's TCP
	anyCRC      bool           // the first FPDU with a bad CRC is an error
	halvings    int            // how often the programs are halved
	windows     bool           // the peer accesses memory through a window, once it is bound
	byteCount   uint64         // bytes to move each way, for which the programs repeat; 0: they run once
	bulk        bool           // operations of all sizes, not mostly small ones
	early       earlyEnd
	late        tick.Duration // pause between two receives, with endLate
	noPeerCRC   bool          // neither side requests CRCs
	srq         bool          // receives come from a shared receive queue
	port        uint16        // of the dialing side; default 30000
	shares      [2]*share     // the shared objects of a's and of b's connections; nil: none
	v6          int           // 1 when over IPv6
	poolBytes   int           // limit of the hold pool of an end without share, in bytes
	poolRecords int
}

// poolBound is the maximum number of bytes in a hold pool: its limit, plus the rest of one FPDU of each connection.
func (c *rdmaConfig) poolBound() int {
	most := 0
	for _, s := range c.shares {
		if s != nil {
			most = max(most, len(s.ends))
		}
	}
	return c.poolBytes + (1+most)<<17
}

// rdmaConn is a connection between two hosts. a dials.
type rdmaConn struct {
	s    *scenario
	cfg  rdmaConfig
	a, b *rdmaEnd
	lost bool // a host rebooted before the connection was dialled
}

func (c *rdmaConfig) localPort() uint16 {
	if c.port == 0 {
		return 30000
	}
	return c.port
}

// newRDMA creates both ends and their programs.
func newRDMA(s *scenario, cfg rdmaConfig, a, b *Host) *rdmaConn {
	if cfg.answer.IRD+cfg.answer.ORD == 0 {
		cfg.answer = startup.Answer{IRD: 8, ORD: 8}
	}
	if cfg.poolBytes == 0 {
		cfg.poolBytes, cfg.poolRecords = 4<<20, 1<<12
	}
	c := &rdmaConn{s: s, cfg: cfg}
	c.a, c.b = c.end("a", a), c.end("b", b)
	c.a.peer, c.b.peer = c.b, c.a
	c.a.dials = true
	r := rand.New(rand.NewPCG(s.seed, 77+uint64(cfg.port)<<8))
	na, nb := 1+r.IntN(cfg.ops), r.IntN(cfg.ops+1)
	var la, lb layout
	c.a.plan(r, na, &la, &lb)
	c.b.plan(r, nb, &lb, &la)
	c.a.fill(r, &la)
	c.b.fill(r, &lb)
	return c
}

func (c *rdmaConn) end(name string, h *Host) *rdmaEnd {
	if s := c.cfg.shares[name[0]-'a']; s != nil {
		return s.end(c, name, h)
	}
	return &rdmaEnd{
		name: name, c: c, host: h, life: h.incarnations,
		table: ddp.NewTable(seededRandom{rand.New(rand.NewPCG(c.s.seed, uint64(h.index)+5))}),
		pool:  mpa.NewPool(c.cfg.poolBytes, c.cfg.poolRecords),
	}
}

func (e *rdmaEnd) fail(format string, args ...any) {
	e.c.s.world.Fail(fmt.Errorf("rdma end %s: %s", e.name, fmt.Sprintf(format, args...)))
}

// alive reports whether the host of e has not rebooted since e started.
func (e *rdmaEnd) alive() bool { return e.host.incarnations == e.life }

func (e *rdmaEnd) config(responder bool) iwarp.Config {
	c := iwarp.Config{
		Responder: responder, Startup: e.c.cfg.ini, QP: &e.qp, Pool: e.pool, Handler: e,
		Pack: e.c.cfg.pack, Window: e.c.cfg.window, AnyCRCError: e.c.cfg.anyCRC,
		FPDUTimeout: restTime,
	}
	if responder {
		c.Startup, c.QP = e.c.cfg.rsp, nil
	}
	return c
}

// start listens at b and dials from a.
func (c *rdmaConn) start() {
	r := rand.New(rand.NewPCG(c.s.seed, 78))
	for range c.cfg.halvings {
		c.a.halve()
		c.b.halve()
	}
	c.a.ready(r)
	c.b.ready(r)
	c.a.host.Each(c.a.pump)
	c.b.host.Each(c.b.pump)
	accepted := false
	if c.cfg.shares[1] != nil {
		c.dial()
		return
	}
	lc := stack.ListenConfig{Conn: c.cfg.tcpB, Backlog: 4, Accept: func(t *tcp.Tuple) (stack.Upper,
		error) {
		if accepted {
			return nil, errors.New("one connection only")
		}
		accepted = true
		c.b.iw = &overtcp.Conn{}
		return c.b.iw, c.b.iw.Init(c.b.config(true))
	}}
	w := c.s.world
	if _, err := c.b.host.Stack().Listen(c.b.host.Addr(c.cfg.v6), rdmaPort, &lc,
		w.Now()); err != nil {
		panic(err)
	}
	c.dial()
}

// dial connects a to the listener at b.
func (c *rdmaConn) dial() {
	c.a.iw = &overtcp.Conn{}
	if err := c.a.iw.Init(c.a.config(false)); err != nil {
		panic(err)
	}
	t := tcp.Tuple{Local: c.a.host.Addr(c.cfg.v6), Remote: c.b.host.Addr(c.cfg.v6),
		LocalPort: c.cfg.localPort(), RemotePort: rdmaPort}
	e, err := c.a.host.Stack().Connect(t, &c.cfg.tcpA, c.a.iw, c.s.world.Now())
	if err != nil {
		panic(err)
	}
	c.a.iw.Endpoint = e
	c.a.host.Wake()
}

// Request implements iwarp.Handler.
func (e *rdmaEnd) Request(s *iwarp.Conn, _ *startup.Request) {
	accept := func() {
		if !e.alive() || e.closed > 0 || e.c.cfg.early.declines(e, s) {
			return
		}
		if err := s.Accept(&e.qp, e.c.cfg.answer); err != nil &&
			!errors.Is(err, iwarp.ErrNotAsked) {
			e.fail("Accept: %v", err)
		}
		e.wake()
	}
	if e.c.cfg.acceptDelay == 0 {
		accept()
		return
	}
	e.c.s.world.After(e.c.cfg.acceptDelay, accept)
}

func (e *rdmaEnd) wake() {
	if e.iw != nil && e.iw.Endpoint != nil {
		e.iw.Endpoint.Schedule()
	}
	e.host.Wake()
}

// Established implements iwarp.Handler.
func (e *rdmaEnd) Established(*iwarp.Conn, *startup.Params) {
	if e.up {
		e.fail("Established twice")
	}
	e.up = true
	if !e.dials && e.iw.Endpoint != nil {
		e.iw.Endpoint.Confirm()
	}
}

// Disconnected implements iwarp.Handler.
func (e *rdmaEnd) Disconnected(_ *iwarp.Conn, err error) {
	e.down++
	if e.down > 1 || !e.up || e.closed > 0 {
		e.fail("Disconnected %d times, up %v, closed %d", e.down, e.up, e.closed)
	}
}

// TakePosted implements iwarp.Handler. It is a no-op, since pump posts to the queue pair itself.
func (e *rdmaEnd) TakePosted() {}

// Closed implements iwarp.Handler.
func (e *rdmaEnd) Closed(_ *iwarp.Conn, err error) {
	e.closed++
	e.err = err
	if e.closed > 1 {
		e.fail("Closed twice")
	}
	if !e.up {
		e.qp.Abort()
	}
	if r := e.iw.Retry(); e.dials && e.up && r != startup.RetryNone {
		e.fail("%v, although it was established", r)
	}
}

// Complete implements rdmap.Completer. It checks that each work request completes once, the send queue in order, with
// the expected memory.
func (e *rdmaEnd) Complete(c *rdmap.Completion) {
	if c.Op == rdmap.WRRecv {
		e.received(c)
		return
	}
	for e.acks < len(e.ops) && uint64(e.acks) < c.ID && !e.ops[e.acks].signaled() {
		e.silent() // unsignaled ones before it are done
	}
	if c.ID >= uint64(len(e.ops)) || !e.ops[c.ID].posted || e.ops[c.ID].done {
		e.fail("completion of %v %d, which is not outstanding", c.Op, c.ID)
		return
	}
	if c.ID != uint64(e.acks) {
		e.fail("completion of %v %d before %d", c.Op, c.ID, e.acks)
	}
	e.acks++
	o := &e.ops[c.ID]
	o.done, o.status = true, c.Status
	if c.Status != rdmap.Success {
		return
	}
	if o.wr.Op == rdmap.WRBindMW {
		e.bound = o.wr.RemoteSTag
	}
	what := fmt.Sprintf("%v %d of %s is complete", o.wr.Op, c.ID, e.name)
	// TCP has acknowledged all of it, so the peer must have placed it. Exceptions: the peer gave up the stream, or it
	// waits for more bytes because a changed length made an FPDU look longer. A socket has only accepted the bytes.
	peerUp := !e.c.cfg.sockets && e.peer.alive() && e.peer.closed == 0 && e.peer.down == 0 &&
		e.peer.qp.Err() == nil && !(e.c.s.spoils && e.peer.holds())
	if (o.effect.end == e || peerUp) && !e.revocable(o) {
		e.c.s.world.Fail(o.effect.check(what))
	}
	if peerUp {
		e.c.s.world.Fail(o.second.check(what))
	}
}

// revocable reports whether the data of a Read may be zero, because its source is being revoked. A Terminate follows.
func (e *rdmaEnd) revocable(o *op) bool {
	return e.c.cfg.early == endInvalidate && o.wr.Op == rdmap.WRRead
}

func (e *rdmaEnd) received(c *rdmap.Completion) {
	if e.share != nil && e.share.srq != nil {
		e.fromShared(c)
		return
	}
	if c.ID != uint64(e.recvDone) || e.recvDone >= len(e.recvs) {
		e.fail("completion of receive %d, want %d", c.ID, e.recvDone)
		return
	}
	b := &e.recvs[e.recvDone]
	e.recvDone++
	if c.Status != rdmap.Success {
		return
	}
	b.done = true
	e.special(c, b)
	if int(c.ByteLen) != len(b.want) && c.Flags&rdmap.WithImm == 0 {
		e.fail("receive %d has %d bytes, want %d", c.ID, c.ByteLen, len(b.want))
	}
	e.c.s.world.Fail(b.check(fmt.Sprintf("receive %d of %s", c.ID, e.name)))
}

// pump posts as many requests as fit, and ends the connection when both programs are done.
func (e *rdmaEnd) pump(now tick.Time) {
	if !e.alive() || e.closed > 0 {
		return
	}
	e.postLate()
	e.postNext()
	n := e.next
	for e.up && e.next < len(e.ops) {
		o := &e.ops[e.next]
		o.posted = true
		if e.peer.bound != 0 && o.wr.RemoteSTag == e.peer.mr.STag() {
			o.wr.RemoteSTag = e.peer.bound
		}
		err := e.qp.PostSend(&o.wr)
		if err != nil {
			o.posted = false
		}
		if errors.Is(err, rdmap.ErrFull) || errors.Is(err, rdmap.ErrState) ||
			err != nil && e.c.cfg.early == endMismatch { // the negotiated protocol has no such operation
			break
		}
		if err != nil {
			e.fail("PostSend of %v: %v", o.wr.Op, err)
			return
		}
		e.next++
	}
	if e.next > n {
		e.wake()
	}
	if !e.dials && !e.peer.disconnected && e.peer.closed == 0 && e.c.finished() {
		e.peer.host.Wake() // to repeat the programs, or to end the connection
	}
	if e.dials && !e.disconnected && e.c.finished() {
		if e.c.cfg.byteCount > 0 && e.c.again() {
			e.wake()
			return
		}
		e.disconnected = true
		e.c.s.world.After(e.c.s.pause, func() {
			if e.alive() && e.closed == 0 {
				e.iw.Disconnect(e.c.s.world.Now())
				e.wake()
			}
		})
	}
}

// finished reports whether both programs ran to their ends and nothing is outstanding.
func (c *rdmaConn) finished() bool {
	for _, e := range []*rdmaEnd{c.a, c.b} {
		if !e.up || e.acks < len(e.ops) || e.recvDone < len(e.recvs) || e.qp.Busy() {
			return false
		}
	}
	return true
}

// over reports whether each end was told of the end, lost its state in a reboot, or was never connected. TCP may still
// be in TIME-WAIT.
func (c *rdmaConn) over() bool {
	if c.lost {
		return true
	}
	return (c.a.closed > 0 || !c.a.alive()) && (c.b.closed > 0 || !c.b.alive() || c.b.iw == nil ||
		c.b.iw.Endpoint == nil)
}

// verdict compares the final state with the programs.
func (c *rdmaConn) verdict() error {
	if c.lost {
		return nil
	}
	for _, e := range []*rdmaEnd{c.a, c.b} {
		if err := e.verdict(); err != nil {
			return fmt.Errorf("end %s: %w", e.name, err)
		}
	}
	if c.cfg.early == endLate {
		return c.lateVerdict()
	}
	return nil
}

// whole returns an error if an operation of e's program did not succeed.
func (e *rdmaEnd) whole() error {
	if !e.up || e.err != nil {
		return fmt.Errorf("up %v, error %v, which no fault explains", e.up,
			e.err)
	}
	for i := range e.ops {
		if o := &e.ops[i]; !o.done || o.status != rdmap.Success {
			return fmt.Errorf("%v %d: done %v, %v", o.wr.Op, i, o.done, o.status)
		}
	}
	return nil
}

func (e *rdmaEnd) verdict() error {
	if !e.alive() {
		return nil
	}
	if !e.c.mayFail() && !e.c.cfg.badOp && e.c.cfg.early == endGraceful {
		if err := e.whole(); err != nil {
			return err
		}
	}
	for i := range e.ops {
		if o := &e.ops[i]; o.posted && !o.done && o.signaled() {
			return fmt.Errorf("%v %d was posted and never completed", o.wr.Op, i)
		}
	}
	if e.closed > 0 && e.recvDone != e.recvPosted && !(e.share != nil && e.share.srq != nil) {
		return fmt.Errorf("%d of %d receives completed or flushed", e.recvDone, e.recvPosted)
	}
	if o, n := e.pool.InUse(); o != 0 || n != 0 {
		return fmt.Errorf("pool: %d bytes and %d records in use after the end", o, n)
	}
	if err := e.memory(); err != nil {
		return err
	}
	return e.alignment()
}
