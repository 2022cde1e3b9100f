// Package overtcp puts an iWARP connection on the engine's own TCP. Unlike a kernel socket, that TCP offers bytes out
// of order, and may have carried a byte stream before MPA started.
package overtcp

import (
	"xwarp/engine/iwarp"
	"xwarp/engine/stack"
	"xwarp/tcp"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// Conn is an iwarp.Conn on the engine's own TCP: it is the stack.Upper of an Endpoint.
type Conn struct {
	iwarp.Conn
	Endpoint *stack.Endpoint

	fins tcp.Events // which of PeerClosed and FINAcked have happened
}

var _ interface {
	stack.Upper
	stack.CRCUser
	tcp.RunSource
	stack.Recoverer
	stack.Timed
} = (*Conn)(nil)

// Attach implements stack.Upper. It is called before Start, so that o can be aborted.
func (o *Conn) Attach(e *stack.Endpoint) {
	o.Endpoint = e
	o.Conn.Attach(e)
}

// Start implements stack.Upper.
func (o *Conn) Start(e *stack.Endpoint, snd, rcv seq.Num, now tick.Time) {
	o.Endpoint = e
	e.Conn().KeepBoundaries(true)
	o.Begin(e, snd, rcv, now)
}

// Event implements stack.Upper.
func (o *Conn) Event(ev tcp.Events, now tick.Time) {
	if ev&tcp.EMSSChanged != 0 {
		o.EMSSChanged()
	}
	if ev&tcp.PeerClosed != 0 {
		o.PeerClosed(now)
	}
	o.fins |= ev & (tcp.PeerClosed | tcp.FINAcked)
	if ev&tcp.Ended == 0 && o.fins == tcp.PeerClosed|tcp.FINAcked {
		o.Ended(nil) // both directions are closed; only TCP still waits, in TIME-WAIT
	}
	if ev&tcp.Ended != 0 {
		o.Ended(o.Endpoint.Err())
	}
}
