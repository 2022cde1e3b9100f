package core

import (
	"cmp"
	"net"
	"time"
)

// Keepalive says when a silent peer is probed and when its connection is given up. Without it, a connection whose peer
// was switched off would keep its resources for ever. Zero fields mean those of DefaultKeepalive.
type Keepalive struct {
	Idle     time.Duration // silence before the first probe; negative: no probes
	Interval time.Duration // between two probes without an answer
	Probes   int           // number of unanswered probes that end the connection
}

// DefaultKeepalive gives a peer up after two minutes. It is for RDMA, whose consumers have no other sign of a dead
// peer; byte streams start with the two hours of RFC 9293 (MUST-28).
var DefaultKeepalive = Keepalive{Idle: time.Minute, Interval: 10 * time.Second, Probes: 6}

func (k *Keepalive) complete() {
	k.Idle = cmp.Or(k.Idle, DefaultKeepalive.Idle)
	k.Interval = cmp.Or(k.Interval, DefaultKeepalive.Interval)
	k.Probes = cmp.Or(k.Probes, DefaultKeepalive.Probes)
}

// SocketConfig returns k as socket options: SO_KEEPALIVE, TCP_KEEPIDLE, TCP_KEEPINTVL and TCP_KEEPCNT.
func (k *Keepalive) SocketConfig() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: k.Idle > 0, Idle: max(k.Idle, 0), Interval: k.Interval,
		Count: k.Probes}
}
