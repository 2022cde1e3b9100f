package tcp

import (
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// pushAck is the acknowledgement of bytes that ended with PSH. The peer has nothing more to send then (RFC 9293,
// 3.9.1.2) and may wait for the acknowledgement before it goes on: the owner calls AckPushed to have it leave without
// the delayed ACK timer. Where bytes of this side answer the peer's regularly, they carry it instead.
type pushAck struct {
	waits bool      // the delayed ACK timer holds the acknowledgement of a PSH
	brief bool      // for pushWait at most
	alone bool      // the last one left without bytes, and no bytes have left since
	at    tick.Time // when it left
	// replies is how many in a row bytes of this side carried, or would have if they had waited; at most pushReplies.
	replies uint8
}

// arrived notes that an acknowledgement of a PSH is delayed. When the one before left alone and no bytes followed, the
// peer may have waited for it.
func (p *pushAck) arrived() {
	if p.alone {
		p.alone, p.replies = false, 0
	}
	p.waits = true
}

// left notes that the acknowledgement leaves without bytes.
func (p *pushAck) left(now tick.Time) {
	if p.waits {
		p.alone, p.at = true, now
	}
}

// answered notes that bytes leave.
func (p *pushAck) answered(now tick.Time) {
	switch {
	case p.waits || now.Sub(p.at) <= pushWait:
		p.replies = min(p.replies+1, pushReplies)
	default:
		p.replies = 0
	}
	p.alone = false
}

// PushWaits reports whether the delayed ACK timer holds the acknowledgement of bytes that ended with PSH: AckPushed is
// to be called before Poll.
func (c *Conn) PushWaits() bool { return c.push.waits }

// AckPushed makes the next Poll acknowledge bytes that ended with PSH. It waits for up to pushWait where bytes of this
// side answered the last few such acknowledgements that soon, or when the owner is not idle: more segments wait to be
// received, and one acknowledgement may cover them.
func (c *Conn) AckPushed(now tick.Time, idle bool) {
	switch {
	case !c.push.waits:
	case idle && c.push.replies < pushReplies:
		c.push.left(now)
		c.owe(seq.Range{}, false)
	default:
		c.push.brief = true
		c.timer.delack = min(c.timer.delack, now.Add(pushWait))
	}
}
