package overtcp

import (
	"xwarp/engine/stack"
	"xwarp/tcp/checksum"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// Prior is the byte stream that used a connection before MPA started on it (delayed start-up, RFC 5044, 7.1.4). Its
// written data that was not sent yet goes before the bytes of MPA.
type Prior interface {
	Next(room int) (n int, more bool)
	Fill(r seq.Range, dst []byte) (sum uint64, summed bool)
	Acked(to seq.Num)
}

// delayed is the upper layer from a delayed start-up until the bytes of prior are acknowledged and those that arrived
// before are processed. The Conn then takes its place.
type delayed struct {
	*Conn
	prior  Prior
	first  seq.Num // first byte that the Conn sends
	unread []byte  // received before the Conn started, and not yet processed
	at     seq.Num // sequence number of unread[0]
}

// StartAfter starts o on a connection that p has used so far, and makes o the upper layer of e. It replaces the stack's
// call of Start. p sends the bytes before snd. unread has received and acknowledged bytes from sequence number rcv on.
func (o *Conn) StartAfter(p Prior, e *stack.Endpoint, snd, rcv seq.Num, unread []byte,
	now tick.Time) {
	d := &delayed{Conn: o, prior: p, first: snd, at: rcv, unread: unread}
	e.SetUpper(d)
	o.Start(e, snd, rcv, now)
	d.reread()
}

// finish makes the Conn the upper layer if nothing of the prior stream is left.
func (d *delayed) finish() {
	if d.prior == nil && len(d.unread) == 0 {
		d.Endpoint.SetUpper(d.Conn)
	}
}

// reread offers unread bytes again.
func (d *delayed) reread() {
	for len(d.unread) > 0 {
		n := d.Conn.Offer(d.at, [][]byte{d.unread}, len(d.unread), checksum.Known{})
		if n == 0 {
			return
		}
		d.at, d.unread = d.at.Add(n), d.unread[n:]
		d.Conn.Advance(d.at)
	}
	d.finish()
}

// Offer implements stack.Upper. It takes nothing while unread has bytes: the peer retransmits the refused bytes.
func (d *delayed) Offer(at seq.Num, pieces [][]byte, n int, crc checksum.Known) int {
	if len(d.unread) > 0 {
		return 0
	}
	return d.Conn.Offer(at, pieces, n, crc)
}

// Next implements tcp.Source. The bytes of prior go first.
func (d *delayed) Next(room int) (int, bool) {
	if d.prior != nil {
		if n, more := d.prior.Next(room); n > 0 || more {
			return n, true
		}
	}
	return d.Conn.Next(room)
}

// NextRun implements tcp.RunSource. While bytes of prior are unacknowledged it takes no run, and reports that more may
// follow, so that TCP calls Next.
func (d *delayed) NextRun(size, most int) (n int, more bool) {
	if d.prior != nil {
		return 0, true
	}
	return d.Conn.NextRun(size, most)
}

// Fill implements stack.Upper. The bytes before first are those of prior.
func (d *delayed) Fill(r seq.Range, dst []byte) (sum uint64, summed bool) {
	if d.prior == nil || !r.Start.Less(d.first) {
		return d.Conn.Fill(r, dst)
	}
	own := seq.Range{Start: seq.Min(d.first, r.End), End: r.End}
	n := own.Start.Diff(r.Start)
	d.prior.Fill(seq.Of(r.Start, n), dst[:n])
	if !own.Empty() {
		d.Conn.Fill(own, dst[n:])
	}
	return 0, false
}

// Acked implements stack.Upper. Once the bytes of prior are acknowledged, prior is dropped.
func (d *delayed) Acked(to seq.Num) {
	if d.prior != nil {
		d.prior.Acked(seq.Min(to, d.first))
		if to.Less(d.first) {
			return
		}
		d.prior = nil
	}
	d.Conn.Acked(to)
	d.finish()
}

// Settle implements stack.Upper. It offers unread bytes again first.
func (d *delayed) Settle(now tick.Time) {
	d.reread()
	d.Conn.Settle(now)
}
