package core

import (
	"cmp"
	"net"
	"time"
)

// Keepalive says when a peer that is silent is asked whether it is still there, and when it is given up: else
// a connection whose peer was switched off would stay for ever, with all that it holds. Zero fields are those
// of DefaultKeepalive.
type Keepalive struct {
	Idle     time.Duration // of silence; negative: it is never asked
	Interval time.Duration // between questions without an answer
	Probes   int           // how many there are before it is given up
}

// DefaultKeepalive gives a peer up after two minutes. It is for RDMA, whose consumers have no other sign of
// life; byte streams begin with the two hours of RFC 9293 (MUST-28).
var DefaultKeepalive = Keepalive{Idle: time.Minute, Interval: 10 * time.Second, Probes: 6}

func (k *Keepalive) complete() {
	k.Idle = cmp.Or(k.Idle, DefaultKeepalive.Idle)
	k.Interval = cmp.Or(k.Interval, DefaultKeepalive.Interval)
	k.Probes = cmp.Or(k.Probes, DefaultKeepalive.Probes)
}

// kernel is the form for sockets: SO_KEEPALIVE, TCP_KEEPIDLE, TCP_KEEPINTVL and TCP_KEEPCNT.
func (k *Keepalive) SocketConfig() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: k.Idle > 0, Idle: max(k.Idle, 0), Interval: k.Interval,
		Count: k.Probes}
}
