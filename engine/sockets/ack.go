package sockets

import (
	"golang.org/x/sys/unix"

	"xwarp/tcp"
	"xwarp/tcp/tick"
)

// promptAck has the kernel acknowledge what a connection received and did not answer. A peer on the engine's own TCP
// completes a Send when it is acknowledged, and once this end has answered the kernel waits 40 ms for another answer.
type promptAck struct {
	tcp.PromptAck
	since  tick.Time // when the bytes came
	by     tick.Time // when the worker looks at it at the latest
	listed bool      // among those of the worker
}

// ackWait is how long an acknowledgement waits for bytes that may carry it. The worker looks at multiples of it, so
// that a ping-pong does not set its alarm for each message.
const ackWait = tick.Millisecond

// arrived notes that bytes came.
func (c *conn) arrived(now tick.Time) {
	p := &c.ack
	p.NoteHeld()
	if p.since = now; !p.listed {
		p.listed = true
		p.setBy(now)
		c.worker.unacked = append(c.worker.unacked, c)
	}
}

func (p *promptAck) setBy(now tick.Time) {
	const step = tick.Time(ackWait)
	p.by = (now/step + 2) * step
}

// acknowledge acknowledges what is due, and returns when more may be. Unless the worker is idle, bytes that arrive or
// leave may make an acknowledgement needless.
func (w *worker) acknowledge(now tick.Time, idle bool) (next tick.Time) {
	next, kept := tick.Never, w.unacked[:0]
	for _, c := range w.unacked {
		p := &c.ack
		late := now >= p.by
		if late && p.Held() && p.ExpectsReply() && now.Sub(p.since) < ackWait {
			p.setBy(now)
			late = false
		}
		if !c.ended && !late && (!idle || p.ExpectsReply()) {
			kept, next = append(kept, c), min(next, p.by)
			continue
		}
		p.listed = false
		if p.Held() && !c.ended {
			p.NoteSent(now)
			c.raw.Control(quickAck)
		}
	}
	clear(w.unacked[len(kept):])
	w.unacked = kept
	return next
}

// quickAck fails on sockets that are no TCP's, which have no acknowledgements.
func quickAck(fd uintptr) { unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1) }
