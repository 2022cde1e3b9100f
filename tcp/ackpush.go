package tcp

import (
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// PromptAck predicts whether the acknowledgement of bytes that ended with PSH should be sent at once. After PSH the
// peer has no more data (RFC 9293, 3.9.1.2) and may wait for the acknowledgement. If this side regularly answers with
// data, the data carries the acknowledgement. The zero value is ready to use.
type PromptAck struct {
	held      bool      // an acknowledgement is held back
	brief     bool      // the acknowledgement is held for pushWait at most
	sentAlone bool      // the last one was sent without data, and no data was sent since
	sentAt    tick.Time // time at which it was sent
	// replies is the number of consecutive acknowledgements that data of this side carried, or would have carried if
	// they had been held. It counts up to pushReplies.
	replies uint8
}

// NoteHeld records that an acknowledgement is held back. It resets the count of replies if the previous acknowledgement
// was sent without data and no data followed it.
func (p *PromptAck) NoteHeld() {
	if p.sentAlone {
		p.sentAlone, p.replies = false, 0
	}
	p.held = true
}

// NoteSent records that the acknowledgement is sent without data.
func (p *PromptAck) NoteSent(now tick.Time) {
	if p.held {
		p.held, p.sentAlone, p.sentAt = false, true, now
	}
}

// NoteReply records that data is sent. It counts as a reply if an acknowledgement is still held, or was sent alone at
// most within ago: had that one been held so long, this data would have carried it. Later data resets the count.
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

// ExpectsReply reports whether data of this side is likely to carry the next acknowledgement.
func (p *PromptAck) ExpectsReply() bool { return p.replies >= pushReplies }

// PushWaits reports whether the delayed ACK timer holds the acknowledgement of bytes that ended with PSH. If so, the
// caller calls AckPushed before Poll.
func (c *Conn) PushWaits() bool { return c.push.held }

// AnswersPush reports whether data of this side is likely to carry that acknowledgement. If so, AckPushed delays it.
func (c *Conn) AnswersPush() bool { return c.push.ExpectsReply() }

// AckPushed makes the next Poll acknowledge bytes that ended with PSH. In two cases it delays the acknowledgement for
// up to pushWait instead: AnswersPush is true, or the owner is not idle, because more segments wait to be received and
// one acknowledgement may cover them.
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
