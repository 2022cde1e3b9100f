package sim

import (
	"fmt"

	"xwarp/engine/bytestream"
	"xwarp/mpa/startup"
	"xwarp/tcp"
	"xwarp/tcp/cc"
	"xwarp/tcp/loss"
	"xwarp/tcp/tick"
)

// workload is a part of a scenario that transfers data.
type workload interface {
	over() bool
	step() error
	verdict() error
}

// tcp draws the TCP options of one end.
func (s *scenario) tcp(window int) tcp.Config {
	r := s.rnd
	c := tcp.Config{
		RcvSpace: window, RcvSpaceMax: window, TimeWait: pick(r, 10*tick.Second, 30*tick.Second),
		FinWait2:      5 * tick.Second,
		KeepaliveIdle: 10 * tick.Second, KeepaliveInterval: tick.Second, KeepaliveProbes: 5,
		SYNRetries: 6, // a dial ends within settleTime
		ECN:        pick(r, tcp.ECNOff, tcp.ECNPassive, tcp.ECNClassic, tcp.ECNAccurate),
	}
	c.NoTimestamps, c.NoSACK, c.NoWScale = s.one(6), s.one(6), s.one(10)
	c.DelayedAck = pick(r, 0, 0, -1, ms, 200*ms)
	c.QuickAcks = pick(r, 0, -1)
	c.StretchAck = pick(r, 0, 0, 1, 8)
	c.TSTick = pick(r, 0, 0, us*100)
	c.ProbeMTU = s.cuts
	c.Loss = loss.Config{
		CC: cc.Config{Algorithm: pick(r, cc.CUBIC, cc.CUBIC, cc.Reno, cc.DCTCP),
			NoHyStart: s.one(4)},
		Mode: pick(r, loss.RACK, loss.RACK, loss.SACK), Pacing: s.one(4),
		MinRTO: pick(r, 0, 0, 5*ms, 200*ms), NoTLP: s.one(5),
	}
	return c
}

func (s *scenario) rdma(mtu int) {
	r := s.rnd
	c := rdmaConfig{
		pack: s.one(2), window: pick(r, 24<<10, 64<<10, 256<<10, 1<<20),
		depth: pick(r, 1, 4, 16, 64),
		ops:   pick(r, 3, 8, 25), maxOp: pick(r, 200, 3000, 20000, 60000),
		acceptDelay: pick(r, 0, 0,
			ms, 400*ms),
		badOp: s.one(15), v6: r.IntN(2),
	}
	c.poolBytes, c.poolRecords = pick(r, 1, 16<<10, 64<<10, 4<<20), pick(r, 1, 64, 1<<12)
	c.ini = startup.Config{Markers: s.one(2), IRD: 8, ORD: 8, RTRs: pick(r, startup.RTRSend,
		startup.RTRWrite, startup.RTRRead, 0), PrivateData: make([]byte, r.IntN(30))}
	c.rsp = startup.Config{Markers: s.one(2)}
	if s.one(4) {
		c.ini.Revision, c.ini.RTRs = startup.RevIETF, 0
	}
	c.tcpA, c.tcpB = s.tcp(c.window), s.tcp(c.window)
	// MPA's CRC finds errors that TCP misses.
	if s.one(4) {
		for i := range 2 {
			s.sealed(i)
		}
	}
	s.say("rdma %s", brief(c))
	c.halvings = s.fewer()
	l := newRDMA(s, c, s.hosts[0], s.hosts[1])
	s.loads = append(s.loads, l)
	s.world.At(Epoch, l.start)
}

func (s *scenario) stream(n int) {
	r := s.rnd
	buf := func() int { return pick(r, 2000, 16<<10, 64<<10, 256<<10) }
	var conns []*streamConn
	v6 := r.IntN(2)
	for i := range n {
		c := streamConfig{
			a:      bytestream.Config{SendBuffer: buf(), RecvBuffer: buf(), Nagle: s.one(3)},
			b:      bytestream.Config{SendBuffer: buf(), RecvBuffer: buf(), Nagle: s.one(3)},
			totalA: r.IntN(200000 / n), totalB: r.IntN(pick(r, 1, 300000)/n + 1), abortA: -1,
			port: uint16(40000 + i), v6: v6,
			maxRead: pick(r, 100, 4000, 50000),
		}
		if s.one(8) {
			c.abortA = r.IntN(c.totalB + 1)
		}
		if s.one(2) {
			c.restOneIn, c.rest = pick(r, 3, 30), pick(r, 100*us, 5*ms, 300*ms)
			if c.rest > 5*ms {
				c.restOneIn, c.maxRead = 30, max(c.maxRead, 4000)
			}
		}
		if i > 0 {
			c.b = conns[0].cfg.b // the listener has one configuration for all
		}
		c.tcpA, c.tcpB = s.tcp(c.a.RecvBuffer), s.tcp(c.b.RecvBuffer)
		client := s.hosts[0]
		if len(s.hosts) > 2 && s.one(2) {
			client = s.hosts[2]
		}
		conns = append(conns, newStream(s, c, client, s.hosts[1], i))
		s.loads = append(s.loads, conns[i])
		if i == 0 {
			s.say("%d streams, the first %s", n, brief(c))
		}
	}
	backlog := pick(r, 2, 16, 128)
	cookies := pick(r, tcp.CookiesUnderPressure, tcp.CookiesUnderPressure, tcp.CookiesAlways,
		tcp.CookiesNever)
	if backlog == 2 && cookies == tcp.CookiesNever {
		s.severe = true // SYNs may be dropped until their retries are over
	}
	find := func(port uint16) *streamConn {
		i := int(port) - 40000
		if port == 0 {
			i = 0
		}
		if i < 0 || i >= len(conns) {
			return nil
		}
		return conns[i]
	}
	listen := func() { listenStreams(s, s.hosts[1], v6, backlog, cookies, find) }
	s.world.At(Epoch, listen)
	dial := func(c *streamConn, after tick.Duration) {
		s.world.After(after, func() {
			if c.lost {
				return
			}
			if err := c.dial(); err != nil {
				s.world.Fail(err)
			}
		})
	}
	for i, c := range conns {
		after := tick.Duration(r.Int64N(int64(100 * ms)))
		if c.lost = i > 0 && s.off(fmt.Sprintf("stream %d", i)); !c.lost {
			dial(c, after)
		}
	}
	if s.one(6) && !s.off("flood") {
		s.flood(v6)
	}
	// After a reboot, an end that lost its connection dials again from another port.
	s.redial = func(h *Host) {
		old := conns
		if h == s.hosts[1] {
			listen()
		}
		for i, c := range old {
			if h != s.hosts[1] && c.a.host != h {
				continue
			}
			c.lost = true
			cfg := c.cfg
			cfg.port = uint16(40000 + len(conns))
			n := newStream(s, cfg, c.a.host, s.hosts[1], len(s.loads))
			n.after = true
			s.loads = append(s.loads, n)
			conns = append(conns, n)
			dial(n, 100*ms+tick.Duration(i)*ms)
		}
	}
}
