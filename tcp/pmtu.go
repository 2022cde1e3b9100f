package tcp

import (
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// pathMTU is the state of path MTU discovery: from validated ICMP messages (RFC 1191, 8201, 5927) and, with
// Config.ProbeMTU, from packets that arrive or disappear (RFC 4821). Sizes are those of IP packets.
type pathMTU struct {
	mtu    int
	proven int // largest packet acknowledged
	trial  struct {
		end  seq.Num // once this is acknowledged, size is proven
		size int
	}
	claim struct { // of an ICMP message, waiting for confirmation
		mtu    int // 0: none
		quoted seq.Num
	}
	probe  mtuProbe
	failed int       // smallest size that was found or reported to be too big, 0: none
	blamed int       // consecutive timeouts for which mtu was lowered already
	steps  int       // reductions of mtu by blameSize since the last acknowledgement
	next   tick.Time // earliest time of the next MTU probe

	changed tick.Time // when mtu got its value
}

// mtuProbe is a packet larger than mtu. Its records have separate entries in the retransmission queue, so that a lost
// probe is retransmitted in whole records.
type mtuProbe struct {
	on   bool
	r    seq.Range
	size int
}

func (p *pathMTU) init(cfg *Config) { *p = pathMTU{mtu: cfg.PathMTU} }

// emssFor is min(peer's MSS, mtu less headers) less the options that every segment carries (RFC 6691; RFC 9293, 3.7.1).
// It uses at most the limit of LimitSegments for mtu.
func (c *Conn) emssFor(mtu int) int {
	return max(1, min(c.peerMSS, min(mtu, c.maxPacket)-c.cfg.headers())-c.fixedOptions())
}

// fixedOptions returns the length of the options that every segment carries.
func (c *Conn) fixedOptions() int {
	if c.ts.on {
		return 12
	}
	return 0
}

// packet returns the size of the IP packet with n bytes of payload.
func (c *Conn) packet(n int) int { return n + c.fixedOptions() + c.cfg.headers() }

// PathMTU sets the path MTU from a trusted source such as the host's routing table.
func (c *Conn) PathMTU(mtu int, now tick.Time) {
	c.pmtu.failed = 0
	c.setMTU(mtu, now)
}

// LimitMTU lowers Config.MTU of an existing connection and sets Config.Encapsulation, because the layer below TCP now
// adds that many bytes to its packets.
func (c *Conn) LimitMTU(mtu, encapsulation int, now tick.Time) {
	c.cfg.MTU = min(c.cfg.MTU, max(mtu, minMTU))
	c.cfg.MinPathMTU -= max(0, encapsulation-c.cfg.Encapsulation)
	c.cfg.MinPathMTU = min(c.cfg.MinPathMTU, c.cfg.MTU)
	c.cfg.Encapsulation = encapsulation
	c.setMTU(min(c.pmtu.mtu, c.cfg.MTU), now)
}

// LimitSegments limits the packets that are sent from now on, including MTU probes, to mtu bytes. The path MTU and the
// announced MSS do not change. Longer records in flight are cut if they are retransmitted.
func (c *Conn) LimitSegments(mtu int, now tick.Time) {
	c.maxPacket = max(mtu, minMTU)
	c.setEMSS(now)
}

func (c *Conn) setMTU(mtu int, now tick.Time) {
	p := &c.pmtu
	p.mtu = min(max(mtu, c.cfg.MinPathMTU), c.cfg.MTU)
	p.claim.mtu, p.changed = 0, now
	if p.proven > p.mtu {
		p.proven = 0
	}
	c.setEMSS(now)
}

// setEMSS updates EMSS after a change of the path MTU or of the limit of segments.
func (c *Conn) setEMSS(now tick.Time) {
	c.inRun = false
	if c.state < Established {
		return
	}
	if e := c.emssFor(c.pmtu.mtu); e != c.emss {
		c.emss = e
		c.events |= EMSSChanged
		c.tx.SetMSS(e, now)
	}
}

// onSent records that the new bytes r were sent in one packet, with n bytes of payload. If the packet is larger than
// all packets that are proven or on trial, its acknowledgement will prove its size.
func (p *pathMTU) onSent(c *Conn, r seq.Range, n int) {
	if size := c.packet(n); size > p.proven && (p.trial.size == 0 || size > p.trial.size) {
		p.trial.end, p.trial.size = r.End, size
	}
}

// onUnsent records that the packets from sequence number from on were not transmitted after all.
func (p *pathMTU) onUnsent(from seq.Num) {
	if from.Less(p.trial.end) {
		p.trial.size = 0
	}
	if p.probe.on && from.Less(p.probe.r.End) {
		p.probe.on = false
	}
}

// onResent records the retransmission of r: its acknowledgement no longer proves the size of the first packet.
func (p *pathMTU) onResent(c *Conn, r seq.Range, now tick.Time) {
	if p.trial.size > 0 && r.End.Add(-1).Less(p.trial.end) && p.trial.end.LessEq(r.End) {
		p.trial.size = 0
	}
	if p.probe.on && p.probe.r.Overlaps(r) {
		p.probe.on = false
		if p.failed == 0 || p.probe.size < p.failed { // otherwise a router already reported a smaller size
			p.failed = p.probe.size
		}
		p.next = now.Add(mtuProbeAgain)
		c.n.MTUProbesLost++
	}
}

// onAck updates proven sizes and a waiting ICMP claim after an acknowledgement.
func (p *pathMTU) onAck(c *Conn, now tick.Time) {
	p.steps = 0
	if p.trial.size > 0 && p.trial.end.LessEq(c.una) {
		p.proven, p.trial.size = max(p.proven, p.trial.size), 0
	}
	if p.probe.on && p.probe.r.End.LessEq(c.una) {
		p.probe.on = false
		c.n.MTURaised++
		c.setMTU(p.probe.size, now)
		p.proven = max(p.proven, p.probe.size)
	}
	if p.claim.mtu != 0 {
		p.decideClaim(c, now, false)
	}
}

// decideClaim decides about the waiting claim: it is refuted when the quoted segment is acknowledged, and confirmed
// when that segment is the missing one, or still unacknowledged at a timeout (RFC 5927, 7.2).
func (p *pathMTU) decideClaim(c *Conn, now tick.Time, timeout bool) {
	switch {
	case p.claim.quoted.Less(c.una):
		p.claim.mtu = 0
		c.n.PTBIgnored++
	case p.claim.quoted == c.una || timeout:
		c.n.PTBAccepted++
		c.setMTU(p.claim.mtu, now)
	}
}

// onTimeout handles a retransmission timeout. It confirms a waiting claim. Otherwise, with Config.ProbeMTU and after
// enough timeouts of one full-sized segment, it blames the size: the path is a black hole for it. Each lower size gets
// as many timeouts before it is blamed, too, because a segment can be lost for another reason, or refused once by the
// layer above the peer's TCP.
func (p *pathMTU) onTimeout(c *Conn, now tick.Time) {
	if p.claim.mtu != 0 {
		p.decideClaim(c, now, true)
		return
	}
	b := c.tx.Backoff()
	if b < p.blamed {
		p.blamed = 0
	}
	size := p.suspectSize(c)
	need := blackHoleAfter
	if size <= p.proven {
		need = blackHoleProven
	}
	if size > 0 && b-p.blamed >= need {
		p.blameSize(c, size, now)
	}
}

// suspectSize returns the size of the unacknowledged packet at the head, 0 if there is none, no lower size to try, or
// no ProbeMTU.
func (p *pathMTU) suspectSize(c *Conn) int {
	head, ok := c.tx.Head()
	if !c.cfg.ProbeMTU || !ok {
		return 0
	}
	size := c.packet(head.Len())
	if from := min(size, p.mtu); p.nextLowerSize(c, from) >= from {
		return 0
	}
	return size
}

// deadline returns when the size of the unacknowledged head is blamed without further timeouts, tick.Never if it is
// not. RFC 4821, 7.7 counts timeouts, but with back-off these take minutes. Each lower size gets twice the time of the
// previous one, so that an outage does not lead to the lowest.
func (p *pathMTU) deadline(c *Conn) tick.Time {
	if !c.cfg.ProbeMTU {
		return tick.Never
	}
	rto, sent, ok := c.tx.Overdue()
	if !ok || p.suspectSize(c) == 0 {
		return tick.Never
	}
	return max(sent, p.changed).Add(max(blackHoleWait, rto) << p.steps)
}

// expire handles the expiry of deadline.
func (p *pathMTU) expire(c *Conn, now tick.Time) {
	if p.claim.mtu != 0 {
		p.decideClaim(c, now, true)
		return
	}
	p.blameSize(c, p.suspectSize(c), now)
}

// blameSize lowers the path MTU below a packet size whose packets disappear.
func (p *pathMTU) blameSize(c *Conn, size int, now tick.Time) {
	c.n.BlackHoles++
	p.steps++
	p.blamed = c.tx.Backoff()
	p.failed = p.mtu
	p.next = now.Add(mtuProbeAgain)
	c.setMTU(p.nextLowerSize(c, min(size, p.mtu)), now)
}

// nextLowerSize returns the next size to fall back to: the largest one below size of Ethernet's MTU, IPv6's minimum MTU
// and the floor; the floor if none is below size.
func (p *pathMTU) nextLowerSize(c *Conn, size int) int {
	for _, m := range []int{1500 - c.cfg.Encapsulation, 1280 - c.cfg.Encapsulation} {
		if m < size && m >= c.cfg.MinPathMTU {
			return m
		}
	}
	return c.cfg.MinPathMTU
}

// nextMTUProbeSize returns the packet size of an MTU probe to send now, 0 for none. The first probe has the largest
// possible size; further ones bisect the sizes between mtu and failed. usable is the room in the peer's window.
func (p *pathMTU) nextMTUProbeSize(c *Conn, usable int, now tick.Time) int {
	if !c.cfg.ProbeMTU || p.probe.on || now < p.next || c.fin != finNone {
		return 0
	}
	high := min(c.cfg.MTU, c.maxPacket, c.peerMSS+c.cfg.headers())
	size := high
	if p.failed > 0 {
		high = min(high, p.failed-1)
		size = (p.mtu + high + 1) / 2
	}
	if high-p.mtu < mtuResolution {
		p.failed, p.next = 0, now.Add(mtuProbeAgain)
		return 0
	}
	n := size - c.packet(0)
	if c.tx.State() != 0 || usable < n || c.tx.Permit(now) < n {
		return 0
	}
	return size
}
