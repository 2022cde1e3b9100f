package sim

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"

	"xwarp/engine/iwarp"
	"xwarp/engine/overtcp"
	"xwarp/engine/stack"
	"xwarp/mpa"
	"xwarp/mpa/startup"
	"xwarp/tcp"
	"xwarp/tcp/cc"
	"xwarp/tcp/loss"
	"xwarp/tcp/tick"
)

const (
	// wideTime is how long after the last fault every connection of a wide scenario must have ended, unless it is ended
	// early: the longest start-up and close, keepalive, and some round trips. If one side has gone, the other may wait
	// longer: a listener that has sent cookies does not reply at once for an unknown connection.
	wideTime = 30 * tick.Second
	// restTime is how long the rest of an FPDU may be in flight.
	restTime = 25 * tick.Second
	// crawlAfter is how long after the last fault a retransmission timeout may still exceed crawlRTO.
	crawlAfter = 10 * tick.Second
	crawlRTO   = 5 * tick.Second
	// blackHoleTime extends wideTime and crawlAfter on a path that drops long packets silently: only repeated timeouts
	// reveal it, and MPA receives a cut record twice. It does so with IPsec, too: all packets are lost while an SA is
	// missing.
	blackHoleTime = 15 * tick.Second
)

// earlyEnd is how the scenario makes a connection end: gracefully, or in one of the ways below.
type earlyEnd uint8

const (
	endGraceful   earlyEnd = iota
	endDisconnect          // one side closes in the middle of the program
	endAbort               // one side resets in the middle of the program
	endReject              // the responder's consumer rejects
	endSilent              // the responder's consumer does not respond
	endRefused             // the listener's backlog is full
	endInvalidate          // a region is invalidated while in use
	earlyEnds
	endMismatch // the ends cannot agree in the start-up; see kinds
	endVanish   // memory becomes inaccessible
	endLate     // gracefully, unless a receive was posted too late
)

func (e earlyEnd) String() string {
	return [...]string{"graceful", "disconnect", "abort", "reject", "silent", "refused",
		"invalidate", "", "mismatch", "vanish", "late receives"}[e]
}

// declines reports whether the responder refuses the connection, and how.
func (e earlyEnd) declines(end *rdmaEnd, s *iwarp.Conn) bool {
	if e == endReject {
		if err := s.Reject(startup.Answer{PrivateData: []byte("no")}); err != nil {
			end.fail("Reject: %v", err)
		}
		end.wake()
	}
	return e == endReject || e == endSilent
}

// wide is a scenario like production: several RDMA connections between hosts whose connections share the objects of a
// worker, streams beside them, and foreign faults. Each feature has its own random numbers, so that one can be left out
// without changing the others.
type wide struct {
	*scenario
	shares  map[*Host]*share
	conns   []*rdmaConn
	tcp     tcp.Config // configuration of accepted connections
	lc      stack.ListenConfig
	mtu     int
	v6      int
	port    uint16          // local port of the latest connection
	wraps   map[uint16]bool // other local ports in use, with sequence numbers that wrap soon
	noCRC   bool            // no CRCs, which alone detect errors that TCP misses
	mangled bool            // foreign faults change windows and acknowledgements
	blocky  bool            // a host sends blocks
	strict  bool            // a CRC error ends a connection
	watched bool            // frames are described, as in a trace
	vanish  bool            // memory of some connections becomes inaccessible
	mapped  [][]byte        // the memory of vanish
	ike     *ike            // nil: frames are in the clear
}

// drawWide creates the wide scenario of a seed without the features left out.
func drawWide(seed uint64, left map[string]bool) *scenario { return drawWideOr(seed, left, false) }

// drawWideOr is drawWide, or the same with IPsec between the hosts.
func drawWideOr(seed uint64, left map[string]bool, protected bool) *scenario {
	s := &scenario{seed: seed, world: NewWorld(seed), judge: newJudge(), left: left}
	w := &wide{scenario: s, shares: map[*Host]*share{}, port: 20000, wraps: map[uint16]bool{}}
	s.wide = w
	s.draws("general")
	s.pause = pick(s.rnd, 0, 0, ms, 300*ms)
	s.until = s.shorter(tick.Duration(s.rnd.Int64N(int64(2 * tick.Second))))
	w.mtu = pick(s.rnd, 1500, 1500, 9000, 1280)
	w.v6 = s.rnd.IntN(2)
	if protected {
		w.protect()
	}
	s.draws("network")
	s.network(w.mtu)
	s.draws("faults")
	s.faults(w.mtu)
	if protected {
		w.ike.begin()
	} else {
		w.foreign()
	}
	w.neighbours()
	w.rdma()
	if w.draws("sealed corruption"); w.one(5) && !protected && !w.noCRC &&
		!w.off("sealed corruption") {
		w.severe = w.severe || w.mangled || w.recut || w.strict
		w.sealed(w.rnd.IntN(len(w.hosts)))
	}
	w.storm()
	w.watch()
	w.retune()
	s.world.Tap = func(h *Host, d Direction, frame []byte, now tick.Time) {
		if w.watched && Describe(frame) == "" {
			w.world.Fail(errors.New("a frame without a description"))
		}
		if w.ike != nil {
			frame = w.ike.see(h, d, frame, now)
		}
		if d == Out {
			s.judge.see(frame, now)
		}
	}
	s.world.Check = s.check
	return s
}

// draws selects the random numbers of a feature for the following draws.
func (s *scenario) draws(feature string) {
	h := fnv.New64a()
	h.Write([]byte(feature))
	s.rnd = rand.New(rand.NewPCG(s.seed, h.Sum64()))
}

// off records that a feature was drawn, and reports whether it is left out.
func (s *scenario) off(feature string) bool {
	s.tried = append(s.tried, feature)
	return s.left[feature]
}

// options draws the TCP options of an end: half the time those of production.
func (w *wide) options(window int) tcp.Config {
	c := w.scenario.tcp(window)
	if w.one(2) {
		w.cuts, w.judge.cuts = true, true // loss may look like a narrow path
		c = tcp.Config{RcvSpace: window, RcvSpaceMax: window, StretchAck: 8, AckDelay: 20 * us,
			ProbeMTU: true, ECN: tcp.ECNPassive, Loss: loss.Config{CC: cc.Config{}},
			SYNRetries: 6, TimeWait: 10 * tick.Second,
			KeepaliveIdle: 10 * tick.Second, KeepaliveInterval: tick.Second, KeepaliveProbes: 5}
	}
	c.AnnounceUTO, c.AdoptUTO = w.one(4), w.one(4)
	c.MaxHoles = pick(w.rnd, 0, 0, 4, 64)
	// After 300 ms, keepalive probes are sent during the transfer.
	c.KeepaliveIdle = pick(w.rnd, 10*tick.Second, 10*tick.Second, 300*ms)
	if w.one(4) {
		c.Linger = 20 * tick.Second
	}
	return c
}

// rdma draws the RDMA connections, between host B and host A or, if present, C. Either end may dial.
func (w *wide) rdma() {
	w.draws("rdma")
	r := w.rnd
	base := rdmaConfig{
		window: pick(r, 24<<10, 64<<10, 1<<20), depth: pick(r, 1, 4, 64),
		ops: pick(r, 3, 8, 20), maxOp: pick(r, 200, 3000, 20000), verbs: true, v6: w.v6,
		pack: w.one(2), noPeerCRC: w.one(8),
	}
	base.poolBytes, base.poolRecords = pick(r, 16<<10, 256<<10, 4<<20), pick(r, 16, 1<<12)
	w.noCRC = base.noPeerCRC
	n := pick(r, 1, 2, 3, 5, 9)
	if w.draws("bulk"); w.blocky && w.one(2) && !w.off("bulk") { // full blocks need many segments at a time
		base.window, base.maxOp, base.depth, base.bulk = 1<<20, 120_000, 64, true
		base.ops = min(base.ops, 8)
		n = min(n, 3)
	}
	w.draws("listener")
	w.tcp = w.options(base.window)
	w.lc = stack.ListenConfig{Conn: w.tcp, Backlog: pick(w.rnd, 2, 16),
		Cookies: pick(w.rnd, tcp.CookiesUnderPressure, tcp.CookiesAlways)}
	buffers, slot := 0, 0
	if w.one(3) {
		buffers, slot = 2*n*(base.ops+1), max(base.maxOp, 1700)
		base.srq = true
	}
	set := func(h *Host) {
		w.shares[h] = newShare(w.scenario, h, mpa.NewPool(base.poolBytes, base.poolRecords),
			buffers, slot)
	}
	for _, h := range w.hosts {
		set(h)
	}
	w.say("%d RDMA connections %s, listener %s, %d shared buffers", n, brief(base),
		brief(w.lc.Conn), buffers)
	w.world.At(Epoch, func() {
		for _, h := range w.hosts {
			w.listen(h)
		}
	})
	for i := range n {
		name := fmt.Sprintf("connection %d", i)
		w.draws(name)
		cfg := base
		cfg.acceptDelay = pick(w.rnd, 0, 0, ms, 400*ms)
		cfg.badOp = w.one(15)
		cfg.early = earlyEnd(w.rnd.IntN(2 * int(earlyEnds)))
		if cfg.early >= earlyEnds {
			cfg.early = endGraceful
		}
		cfg.ini = startup.Config{Markers: w.one(2), IRD: 8, ORD: 8, NoCRC: base.noPeerCRC,
			RTRs:        pick(w.rnd, startup.RTRSend, startup.RTRWrite, startup.RTRRead, 0),
			PrivateData: make([]byte, w.rnd.IntN(30))}
		cfg.rsp = startup.Config{Markers: w.one(2), NoCRC: base.noPeerCRC}
		if w.one(4) {
			cfg.ini.Revision, cfg.ini.RTRs = startup.RevIETF, 0
		}
		cfg.tcpA = w.options(cfg.window)
		w.kinds(&cfg, name)
		w.lateReceives(&cfg, name)
		from, to := w.hosts[0], w.hosts[1]
		if len(w.hosts) > 2 {
			from = w.hosts[2*w.rnd.IntN(2)]
		}
		if w.one(3) {
			from, to = to, from
		}
		at := tick.Duration(w.rnd.Int64N(int64(300 * ms)))
		if !w.off(name) {
			w.connect(cfg, from, to, at)
		}
	}
	w.redial = func(h *Host) {
		set(h)
		w.listen(h)
		for _, c := range w.conns[:len(w.conns):len(w.conns)] {
			if c.a.host == h || c.b.host == h {
				w.connect(c.cfg, c.a.host, c.b.host, 100*ms)
			}
		}
	}
}

// connect creates a connection that is dialled after some time.
func (w *wide) connect(cfg rdmaConfig, from, to *Host, after tick.Duration) {
	w.port++
	cfg.port, cfg.halvings = w.port, w.fewer()
	w.numbers(&cfg, from, to, after)
	cfg.shares = [2]*share{w.shares[from], w.shares[to]}
	c := newRDMA(w.scenario, cfg, from, to)
	w.judge.revoked[cfg.port] = cfg.early == endInvalidate
	w.conns, w.loads = append(w.conns, c), append(w.loads, c)
	w.say("port %d from %s after %v: %v, %d and %d operations", cfg.port, from.Name(), after,
		cfg.early, len(c.a.ops), len(c.b.ops))
	moment := after + tick.Duration(w.rnd.Int64N(int64(400*ms)))
	side := w.rnd.IntN(2)
	w.world.After(after, func() {
		if !c.a.alive() || !c.b.alive() {
			c.lost = true
			return
		}
		c.start()
	})
	w.world.After(moment, func() { c.interrupt([]*rdmaEnd{c.a, c.b}[side]) })
}

// interrupt performs the early end of c at the side of e.
func (c *rdmaConn) interrupt(e *rdmaEnd) {
	if !e.alive() || e.closed > 0 || e.iw == nil || e.iw.Endpoint == nil {
		return
	}
	switch c.cfg.early {
	case endDisconnect:
		e.iw.Disconnect(c.s.world.Now())
	case endAbort:
		e.iw.Abort(c.s.world.Now())
	case endInvalidate:
		if err := e.table.Invalidate(e.mr); err != nil {
			e.fail("Invalidate: %v", err)
		}
	case endVanish:
		e.lose()
	default:
		return
	}
	e.wake()
}

// listen accepts any connection of the scenario at h.
func (w *wide) listen(h *Host) {
	w.locals(h)
	lc := w.lc
	lc.Accept = func(t *tcp.Tuple) (stack.Upper, error) {
		for _, c := range w.conns {
			if c.b.host == h && c.b.alive() && c.cfg.port == t.RemotePort && c.b.iw == nil {
				if c.cfg.early == endRefused {
					return nil, errors.New("no room")
				}
				c.b.iw = &overtcp.Conn{}
				return c.b.iw, c.b.iw.Init(c.b.config(true))
			}
		}
		return nil, errors.New("nobody waits for this one")
	}
	if _, err := h.Stack().Listen(h.Addr(w.v6), rdmaPort, &lc, w.world.Now()); err != nil {
		w.world.Fail(err)
	}
}

// tidy destroys the hosts: the shared objects of connections, listeners, stacks.
func (w *wide) tidy() error {
	if err := w.ike.verdict(); err != nil {
		return err
	}
	for _, h := range w.hosts {
		if x := w.shares[h]; x != nil {
			if err := x.tidy(); err != nil {
				return fmt.Errorf("host %s: %w", h.Name(), err)
			}
		}
		s := h.Stack()
		s.Unlisten(h.Addr(w.v6), rdmaPort)
		if r := h.relay; r != nil {
			waysSeen.relayed.Add(r.stk.Stats().HandedOver)
			if err := r.stk.Close(w.world.Now()); err != nil {
				return fmt.Errorf("host %s: second queue: %w", h.Name(), err)
			}
		}
		if n := s.Stats(); n.Panics > 0 || n.RxFrames == 0 && n.TxFrames > 100 && h.relay == nil {
			return fmt.Errorf("host %s: %s", h.Name(), brief(n))
		}
		if err := s.Close(w.world.Now()); err != nil {
			return fmt.Errorf("host %s: %w", h.Name(), err)
		}
	}
	return nil
}

// storm sends SYNs from unused and impossible addresses to one host's listener until the faults stop.
func (w *wide) storm() {
	w.draws("storm")
	if !w.one(4) || w.off("storm") {
		return
	}
	w.say("storm of SYNs")
	r, to := w.rnd, w.hosts[w.rnd.IntN(2)]
	w.draws("impossible sources")
	odd, sources := w.rnd, impossibleSources(to, w.v6)
	if w.off("impossible sources") {
		sources = nil
	}
	for _, a := range sources {
		w.judge.silent[a] = a != to.Addr(w.v6)
	}
	var send func()
	send = func() {
		for range 1 + r.IntN(20) {
			to.Inject(synFrame(r, to, w.v6, rdmaPort))
		}
		if sources != nil && odd.IntN(4) == 0 {
			to.Inject(synFrom(odd, to, w.v6, rdmaPort, sources[odd.IntN(len(sources))]))
		}
		if w.world.Since() < w.until {
			w.world.After(2*ms, send)
		}
	}
	w.world.After(0, send)
}

// neighbours draws next hops that resolve late, vanish, or change.
func (w *wide) neighbours() {
	w.draws("neighbours")
	for i, h := range w.hosts {
		if w.one(8) {
			at, n := w.sometime(), tick.Duration(w.rnd.Int64N(int64(2*tick.Second)))
			if w.off("lost neighbour") {
				continue
			}
			w.severe = w.severe || n > tick.Second
			w.say("nobody finds %s at %v for %v", h.Name(), at, n)
			w.world.After(at, func() { w.hop(h, false) })
			w.world.After(at+n, func() { w.hop(h, true) })
		}
		if w.one(8) {
			at, mac := w.sometime(), [6]byte{2, 7, 0, 0, 0, byte(i + 1)}
			if w.off("new address") {
				continue
			}
			w.say("%s gets another Ethernet address at %v", h.Name(), at)
			w.world.After(at, func() {
				h.SetMAC(mac)
				w.world.After(20*ms, func() { w.hop(h, true) })
			})
		}
	}
}

// hop sets the next hop of h at all other hosts, or reports to them that it does not answer.
func (w *wide) hop(h *Host, known bool) {
	err := errNoAnswer
	if known {
		err = nil
	}
	for _, other := range w.hosts {
		for _, a := range h.cfg.Addrs {
			if other != h {
				other.Stack().SetHop(a, h.mac, err)
				other.Wake()
			}
		}
	}
}

// waits reports whether an end of a connection waits for bytes that will never be sent: the length of an FPDU was
// changed on the path, and no more data follows that would reveal it. It may wait for restTime.
func (c *rdmaConn) waits() bool {
	return c.s.spoils && (c.a.holds() || c.b.holds())
}

func (e *rdmaEnd) holds() bool {
	return e != nil && e.iw != nil && e.alive() && e.iw.Stats().HeldBytes > 0
}

// progress checks that, some time after the last fault, connections have a bounded retransmission timeout, and those to
// be closed gracefully have ended.
func (w *wide) progress(now tick.Time) error {
	quiet := now.Sub(Epoch.Add(w.until))
	if w.swallows || w.ike != nil {
		quiet -= blackHoleTime
	}
	if quiet < crawlAfter || w.mayFail() {
		return nil
	}
	for _, c := range w.conns {
		if !c.a.alive() || !c.b.alive() || c.a.closed+c.b.closed > 0 || c.waits() {
			continue // if one end is gone, the other has nothing to wait for
		}
		if c.cfg.early == endGraceful && quiet > wideTime {
			return fmt.Errorf("port %d: not over %v after the last fault", c.cfg.port, wideTime)
		}
		for _, e := range []*rdmaEnd{c.a, c.b} {
			p := e.endpoint()
			if p == nil {
				continue
			}
			if i := p.Conn().Info(now); i.State == tcp.Established && i.Loss.RTO > crawlRTO {
				return fmt.Errorf("port %d, end %s: a timeout of %v, %v after the last fault",
					c.cfg.port, e.name, i.Loss.RTO, now.Sub(Epoch.Add(w.until)))
			}
		}
	}
	return nil
}
