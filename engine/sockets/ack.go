package sockets

import (
	"golang.org/x/sys/unix"

	"xwarp/tcp"
	"xwarp/tcp/tick"
)

// promptAck makes the kernel acknowledge received bytes that no reply has acknowledged. A peer on the engine's own TCP
// completes a Send when it is acknowledged. Once this end has sent a reply, the kernel delays acknowledgements by 40 ms
// in the hope of another reply.
type promptAck struct {
	tcp.PromptAck
	since  tick.Time // time of arrival of the bytes
	by     tick.Time // time at which the worker checks it at the latest
	listed bool      // it is in worker.unacked
}

// ackWait is how long an acknowledgement waits for outgoing bytes that can carry it. The worker checks at multiples of
// ackWait, so that a ping-pong does not set the poller's deadline for each message.
const ackWait = tick.Millisecond

// noteReceived records that bytes arrived.
func (c *conn) noteReceived(now tick.Time) {
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

// acknowledge sends the acknowledgements that are due, and returns when it must be called again. It delays an
// acknowledgement while the worker is not idle, or if this end usually replies soon: outgoing bytes may make it
// unnecessary.
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

// quickAck sets TCP_QUICKACK. Sockets other than TCP's refuse it and have no acknowledgements.
func quickAck(fd uintptr) { unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1) }
