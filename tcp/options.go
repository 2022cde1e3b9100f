package tcp

import "xwarp/tcp/tick"

// SetKeepalive changes what Config began with; idle 0 turns probes off.
func (c *Conn) SetKeepalive(idle, interval tick.Duration, probes int) {
	c.cfg.KeepaliveIdle, c.cfg.KeepaliveInterval, c.cfg.KeepaliveProbes = idle, interval, probes
	setDefault(&c.cfg.KeepaliveInterval, 75*tick.Second)
	setDefault(&c.cfg.KeepaliveProbes, 9)
}

// SetUserTimeout changes what Config began with; negative means never.
func (c *Conn) SetUserTimeout(d tick.Duration) { c.cfg.UserTimeout = d }

// SetLinger bounds a later Shutdown; 0 turns the bound off.
func (c *Conn) SetLinger(d tick.Duration) { c.cfg.Linger = max(d, 0) }

// SetDelayedAck changes what Config began with; 0 or less acknowledges every segment.
func (c *Conn) SetDelayedAck(d tick.Duration) {
	c.cfg.DelayedAck = min(max(d, 0), 500*tick.Millisecond)
	if c.cfg.DelayedAck == 0 {
		c.AckNow()
	}
}
