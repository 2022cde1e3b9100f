package tcp

import (
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// PromptAck learns whether the acknowledgements of bytes that ended with PSH are to leave at once. The peer has nothing
// more to send then (RFC 9293, 3.9.1.2) and may wait for the acknowledgement before it goes on. Where bytes of this
// side answer the peer's regularly, they carry it instead. The zero value is ready.
type PromptAck struct {
	held      bool      // an acknowledgement is held back
	brief     bool      // for pushWait at most
	sentAlone bool      // the last one left without bytes, and no bytes have left since
	sentAt    tick.Time // when it left
	// replies is how many in a row bytes of this side carried, or would have carried; at most pushReplies.
	replies uint8
}

// NoteHeld notes that an acknowledgement is held back. When the one before left alone and no bytes followed, the peer
// may have waited for it.
func (p *PromptAck) NoteHeld() {
	if p.sentAlone {
		p.sentAlone, p.replies = false, 0
	}
	p.held = true
}

// NoteSent notes that the acknowledgement leaves without bytes.
func (p *PromptAck) NoteSent(now tick.Time) {
	if p.held {
		p.held, p.sentAlone, p.sentAt = false, true, now
	}
}

// NoteReply notes that bytes leave, which would have carried an acknowledgement that waits for up to within.
func (p *PromptAck) NoteReply(now tick.Time, within tick.Duration) {
	switch {
	case !p.held && !p.sentAlone:
		return
	case p.held || now.Sub(p.sentAt) <= within:
		p.replies = min(p.replies+1, pushReplies)
	default:
		p.replies = 0
	}
	p.held, p.sentAlone = false, false
}

// Held reports whether an acknowledgement is held back.
func (p *PromptAck) Held() bool { return p.held }

// ExpectsReply reports whether bytes are likely to carry the next one.
func (p *PromptAck) ExpectsReply() bool { return p.replies >= pushReplies }

// PushWaits reports whether the delayed ACK timer holds the acknowledgement of bytes that ended with PSH: AckPushed is
// to be called before Poll.
func (c *Conn) PushWaits() bool { return c.push.held }

// AnswersPush reports whether bytes of this side are likely to carry that acknowledgement: AckPushed lets it wait then.
func (c *Conn) AnswersPush() bool { return c.push.ExpectsReply() }

// AckPushed makes the next Poll acknowledge bytes that ended with PSH. It waits for up to pushWait where bytes of this
// side answered the last few such acknowledgements that soon, or when the owner is not idle: more segments wait to be
// received, and one acknowledgement may cover them.
func (c *Conn) AckPushed(now tick.Time, idle bool) {
	switch {
	case !c.push.held:
	case idle && !c.push.ExpectsReply():
		c.push.NoteSent(now)
		c.oweAck(seq.Range{}, false)
	default:
		c.push.brief = true
		c.timer.delack = min(c.timer.delack, now.Add(pushWait))
	}
}
