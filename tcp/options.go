package tcp

import (
	"xwarp/tcp/loss"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// timestamps is the state of the timestamps option (RFC 7323).
type timestamps struct {
	on       bool // requested, or, after the handshake, negotiated
	recent   uint32
	recentAt tick.Time

	at    tick.Time // time for which ticks was computed: once for a batch
	ticks uint32
}

func (c *Conn) clock() loss.Clock {
	return loss.Clock{Tick: c.cfg.TSTick, Offset: c.cfg.TSOffset}
}

// tsval returns the timestamp to send.
func (c *Conn) tsval(now tick.Time) uint32 {
	if t := &c.ts; t.at != now {
		t.at, t.ticks = now, uint32(int64(now)/int64(c.cfg.TSTick))
	}
	return c.ts.ticks + c.cfg.TSOffset
}

// failsPAWS reports whether s is an old duplicate (RFC 7323, 5.3 R1). RSTs are exempt.
func (c *Conn) failsPAWS(s *Segment, now tick.Time) bool {
	return int32(s.Opt.TSVal-c.ts.recent) < 0 && now.Sub(c.ts.recentAt) <= pawsIdle
}

// updateTimestamp applies rule R3 of RFC 7323, 5.3: the timestamp to echo is that of a segment that begins at or before
// the last acknowledgement sent, so that the peer's measurement includes the delay of our acknowledgement.
func (c *Conn) updateTimestamp(s *Segment, now tick.Time) {
	if s.Opt.Present&wire.HasTS != 0 && s.Seq.LessEq(c.lastAck) {
		c.ts.recent, c.ts.recentAt = s.Opt.TSVal, now
	}
}

// SetKeepalive replaces the values of Config; idle 0 turns probes off.
func (c *Conn) SetKeepalive(idle, interval tick.Duration, probes int) {
	c.cfg.KeepaliveIdle, c.cfg.KeepaliveInterval, c.cfg.KeepaliveProbes = idle, interval, probes
	setDefault(&c.cfg.KeepaliveInterval, 75*tick.Second)
	setDefault(&c.cfg.KeepaliveProbes, 9)
}

// SetUserTimeout replaces the value of Config; negative means never.
func (c *Conn) SetUserTimeout(d tick.Duration) { c.cfg.UserTimeout = d }

// SetLinger replaces the value of Config for a later Shutdown; 0 means no limit.
func (c *Conn) SetLinger(d tick.Duration) { c.cfg.Linger = max(d, 0) }

// SetDelayedAck replaces the value of Config; 0 or less acknowledges every segment.
func (c *Conn) SetDelayedAck(d tick.Duration) {
	c.cfg.DelayedAck = min(max(d, 0), 500*tick.Millisecond)
	if c.cfg.DelayedAck == 0 {
		c.AckNow()
	}
}
