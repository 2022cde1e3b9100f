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

// Prior is the byte stream that used a connection before MPA started on it (delayed start-up, RFC 5044, 7.1.4). Its
// unsent data goes first.
type Prior interface {
	Next(room int) (n int, more bool)
	Fill(r seq.Range, dst []byte) (sum uint64, summed bool)
	Acked(to seq.Num)
}

// Conn is an iwarp.Conn on the engine's own TCP: it is the stack.Upper of an Endpoint.
type Conn struct {
	iwarp.Conn
	Endpoint *stack.Endpoint

	prior  Prior
	first  seq.Num // first byte that the Conn sends
	unread []byte  // received before the Conn started, and not yet processed
	at     seq.Num // of unread[0]

	fins tcp.Events // of PeerClosed and FINAcked
}

var _ interface {
	stack.Upper
	stack.CRCOfferer
	stack.Recoverer
	stack.Timed
} = (*Conn)(nil)

// Start implements stack.Upper.
func (o *Conn) Start(e *stack.Endpoint, snd, rcv seq.Num, now tick.Time) {
	o.Endpoint = e
	o.first = snd
	e.Conn().KeepBoundaries(true)
	o.Begin(e, snd, rcv, now)
}

// StartAfter is Start on a connection used by p so far. p sends the bytes before snd. unread has received and
// acknowledged bytes from sequence number rcv on.
func (o *Conn) StartAfter(p Prior, e *stack.Endpoint, snd, rcv seq.Num, unread []byte,
	now tick.Time) {
	o.prior, o.at, o.unread = p, rcv, unread
	o.Start(e, snd, rcv, now)
	o.reread()
}

// reread offers unread bytes again.
func (o *Conn) reread() {
	for len(o.unread) > 0 {
		n := o.Conn.Offer(o.at, [][]byte{o.unread}, len(o.unread))
		if n == 0 {
			return
		}
		o.at, o.unread = o.at.Add(n), o.unread[n:]
		o.Conn.Advance(o.at)
	}
}

// Offer implements stack.Upper.
func (o *Conn) Offer(at seq.Num, pieces [][]byte, n int) int {
	if len(o.unread) > 0 {
		return 0 // earlier bytes must be processed first; TCP retransmits this
	}
	return o.Conn.Offer(at, pieces, n)
}

// Audit is iwarp.Conn.Audit. Unread bytes are held here.
func (o *Conn) Audit(to seq.Num) error {
	if len(o.unread) > 0 {
		to = o.at
	}
	return o.Conn.Audit(to)
}

// Next implements tcp.Source.
func (o *Conn) Next(room int) (int, bool) {
	if o.prior != nil {
		if n, more := o.prior.Next(room); n > 0 || more {
			return n, true
		}
	}
	return o.Conn.Next(room)
}

// Fill implements stack.Upper.
func (o *Conn) Fill(r seq.Range, dst []byte) (sum uint64, summed bool) {
	if o.prior != nil && r.Start.Less(o.first) {
		o.prior.Fill(r, dst)
		return 0, false
	}
	return o.Conn.Fill(r, dst)
}

// Acked implements stack.Upper.
func (o *Conn) Acked(to seq.Num) {
	if o.prior != nil {
		o.prior.Acked(seq.Min(to, o.first))
		if o.first.LessEq(to) {
			o.prior = nil
		}
	}
	if o.prior == nil {
		o.Conn.Acked(to)
	}
}

// Settle implements stack.Upper.
func (o *Conn) Settle(now tick.Time) {
	if len(o.unread) > 0 {
		o.reread()
	}
	o.Conn.Settle(now)
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
		o.Ended(nil) // TIME-WAIT is up to TCP and the network
	}
	if ev&tcp.Ended != 0 {
		o.Ended(o.Endpoint.Err())
	}
}

// Attach implements stack.Upper. It is called before Start, so that o can be aborted.
func (o *Conn) Attach(e *stack.Endpoint) {
	o.Endpoint = e
	o.Conn.Attach(e)
}

// WantsCRC implements stack.CRCOfferer.
func (o *Conn) WantsCRC(at seq.Num, pieces [][]byte, n int) bool {
	return len(o.unread) == 0 && o.Conn.WantsCRC(at, pieces, n)
}
