package sim

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine/iwarp"
	"xwarp/engine/overtcp"
	"xwarp/engine/stack"
	"xwarp/mpa"
	"xwarp/mpa/startup"
	"xwarp/ring"
	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
)

const (
	fuzzRegion = 600 // bytes of each region
	fuzzGuard  = 64  // bytes between two regions, which belong to none
	fuzzRecvs  = 8
)

// fuzzEnd is an engine in a conversation: regions of every kind, and for each connection a queue pair with posted
// receives and requests.
type fuzzEnd struct {
	c     *conversation
	host  *Host
	far   bool // it is the peer whose frames become the corpus
	table *ddp.Table
	pool  *mpa.Pool
	pd    *ddp.PD
	mem   []byte
	base  []byte
	// The regions, in the order of mayWrite, mayRead, mayAll, forRecvs and ours, the local sources and sinks.
	mrs   []*ddp.MR
	conns []*fuzzConn

	up, closed, done, received int
}

// regionAccess are the access rights of the regions.
var regionAccess = []ddp.Access{
	ddp.LocalWrite | ddp.RemoteWrite, ddp.RemoteRead,
	ddp.LocalWrite | ddp.RemoteRead | ddp.RemoteWrite | ddp.RemoteAtomic, ddp.LocalWrite,
	ddp.LocalWrite,
}

const (
	mayWrite = iota
	mayRead
	mayAll
	forRecvs
	ours
)

// fuzzConn is one connection.
type fuzzConn struct {
	e      *fuzzEnd
	qp     rdmap.QP
	iw     overtcp.Conn
	posted int // outstanding requests and receives
	open   bool
}

func newFuzzEnd(c *conversation, far bool) *fuzzEnd {
	e := &fuzzEnd{c: c, far: far, pool: mpa.NewPool(1<<20, 256)}
	name := "engine"
	if far {
		name = "peer"
	}
	var err error
	e.host, err = c.w.AddHost(HostConfig{Name: name, Addrs: []ip.Addr{c.mode.addrOf(far)},
		RxFrames: 64, TxSlots: 16, Kernel: ring.FakeConfig{Budget: 64}, Latency: us})
	if err != nil {
		panic(err)
	}
	e.table = ddp.NewTable(seededRandom{rand.New(rand.NewPCG(7, uint64(e.host.index)))})
	if e.pd, err = e.table.AllocPD(); err != nil {
		panic(err)
	}
	e.mem = make([]byte, len(regionAccess)*(fuzzRegion+fuzzGuard))
	randomize(rand.New(rand.NewPCG(8, 8)), e.mem)
	e.base = bytes.Clone(e.mem)
	for i, a := range regionAccess {
		mr, err := e.table.Register(e.pd, e.region(e.mem, i), ddp.Attr{Access: a})
		if err != nil {
			panic(err)
		}
		e.mrs = append(e.mrs, mr)
	}
	return e
}

// region returns region i of mem.
func (e *fuzzEnd) region(mem []byte, i int) []byte {
	return mem[i*(fuzzRegion+fuzzGuard):][:fuzzRegion:fuzzRegion]
}

// config is the start-up configuration of e.
func (e *fuzzEnd) config(c *fuzzConn, responder bool) iwarp.Config {
	m := &e.c.mode
	s := startup.Config{Markers: m.markers, NoCRC: m.noCRC, PrivateData: []byte("fuzz"),
		Revision: m.revision, IRD: 4, ORD: 4}
	if m.revision != startup.RevIETF && !responder {
		s.RTRs = startup.RTRSend | startup.RTRWrite | startup.RTRRead
	}
	cfg := iwarp.Config{Responder: responder, Startup: s, Pool: e.pool, Handler: c,
		Window: 32 << 10}
	if !responder {
		cfg.QP = &c.qp
	}
	return cfg
}

func (e *fuzzEnd) tcp() tcp.Config {
	return tcp.Config{RcvSpace: 32 << 10, NoTimestamps: !e.c.mode.timestamps,
		KeepaliveIdle: 10 * tick.Second, KeepaliveInterval: tick.Second, KeepaliveProbes: 3}
}

// newConn creates a connection with its queue pair.
func (e *fuzzEnd) newConn() *fuzzConn {
	c := &fuzzConn{e: e, open: true}
	err := c.qp.Init(rdmap.Config{Table: e.table, PD: e.pd, Stream: 1, SendDepth: 16,
		RecvDepth: fuzzRecvs, MaxSGE: 2, MaxInline: 64, MaxIRD: 4, MaxORD: 4, Completer: c})
	if err != nil {
		panic(err)
	}
	for i := range fuzzRecvs {
		wr := rdmap.RecvWR{ID: uint64(i), SGL: []rdmap.SGE{e.sge(forRecvs, i*fuzzRegion/fuzzRecvs,
			fuzzRegion/fuzzRecvs)}}
		if err := c.qp.PostRecv(&wr); err != nil {
			panic(err)
		}
		c.posted++
	}
	e.conns = append(e.conns, c)
	return c
}

func (e *fuzzEnd) sge(region, off, n int) rdmap.SGE {
	return rdmap.SGE{STag: e.mrs[region].STag(), TO: e.mrs[region].Base() + ddp.TO(off),
		Len: uint32(n)}
}

// start makes e listen.
func (e *fuzzEnd) start(tcp.Tuple) {
	lc := stack.ListenConfig{Conn: e.tcp(), Backlog: 2}
	lc.Accept = func(*tcp.Tuple) (stack.Upper, error) {
		if len(e.conns) >= 4 {
			return nil, errors.New("four connections only")
		}
		c := e.newConn()
		return &c.iw, c.iw.Init(e.config(c, true))
	}
	if e.c.mode.cookies {
		lc.Cookies = tcp.CookiesAlways
	}
	if _, err := e.host.Stack().Listen(e.host.Addr(0), rdmaPort, &lc, e.c.w.Now()); err != nil {
		panic(err)
	}
}

// dial connects to the other address.
func (e *fuzzEnd) dial() {
	c := e.newConn()
	if err := c.iw.Init(e.config(c, false)); err != nil {
		panic(err)
	}
	t := tcp.Tuple{Local: e.c.mode.addrOf(e.far), Remote: e.c.mode.addrOf(!e.far), LocalPort: 30000,
		RemotePort: rdmaPort}
	cfg := e.tcp()
	p, err := e.host.Stack().Connect(t, &cfg, &c.iw, e.c.w.Now())
	if err != nil {
		panic(err)
	}
	c.iw.Endpoint = p
	e.host.Wake()
}

// Request, Established, Disconnected, TakePosted and Closed implement iwarp.Handler.
func (c *fuzzConn) Request(s *iwarp.Conn, _ *startup.Request) {
	if err := s.Accept(&c.qp, startup.Answer{IRD: 4, ORD: 4}); err != nil &&
		!errors.Is(err, iwarp.ErrNotAsked) {
		c.e.c.w.Fail(err)
	}
}

// Established posts requests of each kind. It builds the peer's region table again from its seed, to know its STags.
func (c *fuzzConn) Established(*iwarp.Conn, *startup.Params) {
	c.e.up++
	e := c.e
	peer := ddp.NewTable(seededRandom{rand.New(rand.NewPCG(7, uint64(1-e.host.index)))})
	pd, err := peer.AllocPD()
	if err != nil {
		panic(err)
	}
	var stags []ddp.STag
	for _, a := range regionAccess {
		mr, err := peer.Register(pd, make([]byte, fuzzRegion), ddp.Attr{Access: a})
		if err != nil {
			panic(err)
		}
		stags = append(stags, mr.STag())
	}
	list := []rdmap.SendWR{
		{Op: rdmap.WRWrite, SGL: []rdmap.SGE{e.sge(ours, 0, 300)}, RemoteSTag: stags[mayWrite],
			RemoteTO: 100},
		{Op: rdmap.WRSend, Inline: []byte("a message")},
		{Op: rdmap.WRRead, SGL: []rdmap.SGE{e.sge(ours, 300, 200)}, RemoteSTag: stags[mayRead]},
		{Op: rdmap.WRFetchAdd, SGL: []rdmap.SGE{e.sge(ours, 512, 8)}, RemoteSTag: stags[mayAll],
			RemoteTO: 8, Data: 5},
		{Op: rdmap.WRSendSE, SGL: []rdmap.SGE{e.sge(ours, 10, 40), e.sge(ours, 400, 20)}},
		{Op: rdmap.WRCmpSwap, SGL: []rdmap.SGE{e.sge(ours, 520, 8)}, RemoteSTag: stags[mayAll],
			RemoteTO: 16, Data: 1, Compare: 2},
		{Op: rdmap.WRSend, Inline: []byte("the last"), Flags: rdmap.Fence},
	}
	for i := range list {
		list[i].ID, list[i].Flags = uint64(100+i), list[i].Flags|rdmap.Signaled
		if err := c.qp.PostSend(&list[i]); err == nil {
			c.posted++
		}
	}
	c.iw.Schedule()
	e.c.w.After(50*ms, func() {
		if c.open && e.far == !e.c.mode.dials { // the dialing side closes
			c.iw.Disconnect(e.c.w.Now())
			c.iw.Schedule()
			e.host.Wake()
		}
	})
}

func (c *fuzzConn) Disconnected(*iwarp.Conn, error) {}
func (c *fuzzConn) TakePosted()                     {}

func (c *fuzzConn) Closed(*iwarp.Conn, error) {
	if !c.open {
		c.e.c.w.Fail(errors.New("Closed twice"))
	}
	c.open = false
	c.qp.Abort()
	c.e.closed++
}

// Complete implements rdmap.Completer.
func (c *fuzzConn) Complete(d *rdmap.Completion) {
	if c.posted--; c.posted < 0 {
		c.e.c.w.Fail(errors.New("more completions than requests"))
	}
	if d.Status != rdmap.Success {
		return
	}
	if c.e.done++; d.Op == rdmap.WRRecv {
		c.e.done--
		c.e.received++
		if int(d.ByteLen) > fuzzRegion/fuzzRecvs {
			c.e.c.w.Fail(errors.New("a receive longer than its buffer"))
		}
	}
}

// verdict checks that no state of the conversation remains and that memory changed only where permitted.
func (e *fuzzEnd) verdict(t testing.TB) {
	t.Helper()
	for i, c := range e.conns {
		if c.iw.Endpoint == nil { // it was never bound to an endpoint: the listener dropped it
			continue
		}
		if c.open || c.posted != 0 {
			t.Fatalf("%s, connection %d: open %v, %d requests have not ended; %v", e.host.Name(), i,
				c.open, c.posted, c.iw.Err())
		}
	}
	if n := e.host.Stack().Len(); n != 0 {
		t.Fatalf("%s: %d connections are left", e.host.Name(), n)
	}
	if o, n := e.pool.InUse(); o != 0 || n != 0 {
		t.Fatalf("%s: pool: %d bytes and %d records are left", e.host.Name(), o, n)
	}
	for i := range regionAccess {
		at := i * (fuzzRegion + fuzzGuard)
		size := fuzzRegion + fuzzGuard
		if i != mayRead {
			at, size = at+fuzzRegion, fuzzGuard
		}
		if !bytes.Equal(e.mem[at:at+size], e.base[at:at+size]) {
			t.Fatalf("%s: memory without write access changed, near region %d",
				e.host.Name(), i)
		}
	}
}
