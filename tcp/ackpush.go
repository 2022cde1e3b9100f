package tcp

import (
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// PromptAck learns whether the acknowledgements of bytes that ended with PSH are to leave at once. The peer has nothing
// more to send then (RFC 9293, 3.9.1.2) and may wait for the acknowledgement before it goes on. Where bytes of this
// side answer the peer's regularly, they carry it instead. The zero value is ready.
type PromptAck struct {
	waits bool      // an acknowledgement is held back
	brief bool      // for pushWait at most
	alone bool      // the last one left without bytes, and no bytes have left since
	at    tick.Time // when it left
	// replies is how many in a row bytes of this side carried, or would have carried; at most pushReplies.
	replies uint8
}

// Arrived notes that an acknowledgement is held back. When the one before left alone and no bytes followed, the peer
// may have waited for it.
func (p *PromptAck) Arrived() {
	if p.alone {
		p.alone, p.replies = false, 0
	}
	p.waits = true
}

// Left notes that the acknowledgement leaves without bytes.
func (p *PromptAck) Left(now tick.Time) {
	if p.waits {
		p.waits, p.alone, p.at = false, true, now
	}
}

// Answered notes that bytes leave, which would have carried an acknowledgement that waits for up to within.
func (p *PromptAck) Answered(now tick.Time, within tick.Duration) {
	switch {
	case !p.waits && !p.alone:
		return
	case p.waits || now.Sub(p.at) <= within:
		p.replies = min(p.replies+1, pushReplies)
	default:
		p.replies = 0
	}
	p.waits, p.alone = false, false
}

// Waits reports whether an acknowledgement is held back.
func (p *PromptAck) Waits() bool { return p.waits }

// Expects reports whether bytes are likely to carry the next one.
func (p *PromptAck) Expects() bool { return p.replies >= pushReplies }

// PushWaits reports whether the delayed ACK timer holds the acknowledgement of bytes that ended with PSH: AckPushed is
// to be called before Poll.
func (c *Conn) PushWaits() bool { return c.push.waits }

// AnswersPush reports whether bytes of this side are likely to carry that acknowledgement: AckPushed lets it wait then.
func (c *Conn) AnswersPush() bool { return c.push.Expects() }

// AckPushed makes the next Poll acknowledge bytes that ended with PSH. It waits for up to pushWait where bytes of this
// side answered the last few such acknowledgements that soon, or when the owner is not idle: more segments wait to be
// received, and one acknowledgement may cover them.
func (c *Conn) AckPushed(now tick.Time, idle bool) {
	switch {
	case !c.push.waits:
	case idle && !c.push.Expects():
		c.push.Left(now)
		c.owe(seq.Range{}, false)
	default:
		c.push.brief = true
		c.timer.delack = min(c.timer.delack, now.Add(pushWait))
	}
}
