package tcp

import (
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// header sets out to a segment without payload and without SACK blocks, with sequence number at.
func (c *Conn) header(out *Out, f wire.Flags, at, ack seq.Num, now tick.Time) {
	c.inRun = false
	*out = Out{Header: wire.Header{SrcPort: c.ports.local, DstPort: c.ports.remote, Seq: at,
		Flags: f},
		Payload: seq.Range{Start: at, End: at}}
	if f&wire.ACK != 0 {
		out.Ack = ack
		out.Window = c.windowField(f, ack)
		if c.lastAck.Less(ack) {
			c.lastAck = ack
		}
	} else {
		out.Window = uint16(min(c.space, 0xffff))
	}
	if c.ts.on && f&wire.SYN == 0 {
		out.Opt.Present, out.Opt.TSVal, out.Opt.TSEcr = wire.HasTS, c.tsval(now), c.ts.recent
	}
	c.n.SegsOut++
}

// windowField returns SEG.WND for an acknowledgement of ack. The right edge moves only if it can move by the smaller of
// half the space and a segment (RFC 9293, 3.8.6.2.2), and never to the left. Scaling rounds a new edge down and an
// unchanged edge up.
func (c *Conn) windowField(f wire.Flags, ack seq.Num) uint16 {
	if f&wire.SYN != 0 {
		w := min(c.space, 0xffff)
		c.rcvAdv = seq.Max(c.rcvAdv, ack.Add(w))
		return uint16(w)
	}
	s := c.rcvScale
	if c.mayAnnounceMore() {
		if w := min(c.limit.Diff(ack)>>s, 0xffff) << s; c.rcvAdv.Less(ack.Add(w)) {
			c.rcvAdv = ack.Add(w)
		}
	}
	w := min((c.rcvAdv.Diff(ack)+1<<s-1)>>s, 0xffff)
	c.rcvAdv = seq.Max(c.rcvAdv, ack.Add(w<<s))
	return uint16(w)
}

// mayAnnounceMore reports whether the window can grow by enough for an announcement: half the buffer or a segment. The
// buffer is the largest space that the layer above has set, at most RcvSpaceMax. Half of its free part would be too
// little: each byte read from a full buffer would cause an announcement. Half of RcvSpaceMax could be too much: the
// window over a smaller buffer would never open again.
func (c *Conn) mayAnnounceMore() bool {
	grow := c.limit.Diff(c.rcvAdv)
	return grow > 0 && grow >= min(c.cfg.RcvSpaceMax/2, c.mostSpace/2, c.rcvMSS)
}

// SetRcvSpace sets the receive space of the layer above: n bytes from RcvNxt on. The space shrinks as RCV.NXT advances,
// until the next call. The new window is announced with the next segment. It is announced at once if it grows by enough
// (see mayAnnounceMore) and the old one was smaller than a segment or at most half as large.
func (c *Conn) SetRcvSpace(n int, now tick.Time) {
	c.inRun = false
	c.space = min(max(n, 0), 0xffff<<c.rcvScale)
	if c.state < SynReceived {
		return
	}
	c.limit, c.mostSpace = c.rcvNxt.Add(c.space), max(c.mostSpace, c.space)
	if !c.state.receives() || !c.mayAnnounceMore() {
		return
	}
	if c.nOwed > 0 { // the queued acknowledgement announces it, too
		return
	}
	if left := c.rcvAdv.Diff(c.rcvNxt); left < c.rcvMSS || c.space >= 2*left {
		c.oweAck(seq.Range{}, false)
		c.n.WindowUpdates++
	}
}

// clampSpace limits the receive space to the largest window that can be announced, after a handshake without window
// scale.
func (c *Conn) clampSpace() {
	c.space = min(c.space, 0xffff<<c.rcvScale)
	c.limit = c.rcvNxt.Add(c.space)
}

// initReceiveSpace sets the receive sequence space from the peer's SYN.
func (c *Conn) initReceiveSpace(irs seq.Num) {
	c.irs, c.rcvNxt = irs, irs+1
	c.lastAck, c.ackedTo = c.rcvNxt, c.rcvNxt
	c.limit = c.rcvNxt.Add(c.space)
	c.rcvAdv = c.rcvNxt.Add(min(c.space, 0xffff))
	c.cur.keptTo = c.rcvNxt
	c.rcvMSS = min(c.cfg.MSS, c.defaultMSS())
}

// window returns the send window in bytes that s announces.
func (c *Conn) window(s *Segment) int {
	if s.Flags&wire.SYN != 0 {
		return int(s.Window)
	}
	return int(s.Window) << c.wscale
}

// windowUpdate applies the window of a segment (RFC 9293, 3.10.7.4, fifth).
func (c *Conn) windowUpdate(s *Segment, now tick.Time) {
	if !(c.wl1.Less(s.Seq) || c.wl1 == s.Seq && c.wl2.LessEq(s.Ack)) {
		return
	}
	w := c.window(s)
	right := s.Ack.Add(w)
	if right.Less(c.right) {
		c.n.WindowShrunk++
	}
	c.wl1, c.wl2 = s.Seq, s.Ack
	c.maxWnd = max(c.maxWnd, w)
	c.right = right
	if c.timer.windowProbeSent {
		c.timer.windowProbeSent = false
		if c.timer.smallReplies++; w == 0 {
			c.timer.smallReplies = 0
		}
	}
	if c.windowBlocked && c.nxt.Less(right) {
		c.windowBlocked = false
		c.events |= WindowOpen
	}
	if w > 0 {
		c.timer.clearZeroWindow()
	} else {
		c.timer.startZeroWindow(now)
	}
}

// rcvWnd returns RCV.WND in bytes.
func (c *Conn) rcvWnd() int { return max(0, c.rcvAdv.Diff(c.rcvNxt)) }
