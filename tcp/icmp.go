package tcp

import (
	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
)

// ICMP processes an ICMP error that quotes a segment of this connection. It is ignored unless it quotes a sequence
// number in flight (RFC 5927, 4.1). Packet too big lowers the path MTU after validation. Hard errors end an active open
// that is not established yet. All others are reported as SoftError (RFC 1122, 4.2.3.9; RFC 9293, 3.9.2.2; RFC 5461).
func (c *Conn) ICMP(e *ip.ICMPError, now tick.Time) {
	inFlight := c.una.LessEq(e.Seq) && e.Seq.Less(c.nxt)
	switch {
	case c.state == Closed || c.state == TimeWait || !inFlight:
		c.n.ICMPIgnored++
	case e.Kind == ip.PacketTooBig:
		c.packetTooBig(e, now)
	case c.state <= SynReceived && !c.passive && hard(e.Kind):
		c.softError = e.Kind
		c.enterClosed(CauseUnreachable)
	default:
		c.softError = e.Kind
		c.events |= SoftError
	}
}

// hard reports whether RFC 1122, 4.2.3.9 calls k a hard error.
func hard(k ip.ICMPKind) bool {
	return k == ip.ProtoUnreachable || k == ip.PortUnreachable || k == ip.Prohibited
}

// packetTooBig handles a claim about the path MTU. A claim below the size of an acknowledged packet waits for
// confirmation, unless it quotes the oldest unacknowledged segment. So a forged message does not affect a connection
// that makes progress (RFC 5927, 7.2).
func (c *Conn) packetTooBig(e *ip.ICMPError, now tick.Time) {
	p := &c.pmtu
	mtu := e.MTU
	if mtu == 0 {
		mtu = plateau(min(p.mtu, max(e.Len, c.cfg.MinPathMTU+1)))
	}
	mtu = max(mtu, c.cfg.MinPathMTU)
	if mtu >= p.mtu {
		if p.probe.on && e.Seq == p.probe.r.Start { // the MTU probe was too big: p.mtu is unaffected
			p.failed = min(p.probe.size, mtu+1)
		}
		c.n.PTBIgnored++
		return
	}
	if p.proven > mtu && e.Seq != c.una {
		p.claim.mtu, p.claim.quoted = mtu, e.Seq
		return
	}
	c.n.PTBAccepted++
	c.setMTU(mtu, now)
}

// plateau returns the largest of RFC 1191's plateau sizes below n. It is the guess for routers that report no MTU.
func plateau(n int) int {
	for _, p := range [...]int{32000, 17914, 8166, 4352, 2002, 1492, 1006, 508, 296} {
		if p < n {
			return p
		}
	}
	return minMTU
}
