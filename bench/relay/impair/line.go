package impair

import (
	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
)

// FrameOverhead is the Ethernet header with two VLAN tags, in bytes.
const FrameOverhead = ip.EthernetLen + 2*ip.VLANTagLen

// line is the bottleneck with its queue, and the delay behind it. Frames stay in order.
type line struct {
	frames fifo
	gone   int       // the first so many frames have left the bottleneck and are in flight
	queued int       // bytes of the others
	busy   tick.Time // the bottleneck sends until then
	last   tick.Time // the latest due time given
}

// deadline returns when the first frame arrives at the far end.
func (l *line) deadline() tick.Time {
	if l.frames.n == 0 {
		return tick.Never
	}
	return l.frames.at(0).due
}

// arrived returns the next frame that has arrived at the far end, nil when there is none.
func (l *line) arrived(now tick.Time) *Buf {
	l.drain(now)
	if l.frames.n == 0 || l.frames.at(0).due > now {
		return nil
	}
	l.gone--
	return l.frames.pop()
}

// drain moves frames out of the bottleneck.
func (l *line) drain(now tick.Time) {
	for l.gone < l.frames.n && l.frames.at(l.gone).depart <= now {
		l.queued -= len(l.frames.at(l.gone).Data)
		l.gone++
	}
}

// enqueue puts a frame into the queue of the bottleneck, or drops it.
func (p *Path) enqueue(b *Buf, now tick.Time) {
	l, n := &p.line, len(b.Data)
	l.drain(now)
	full := p.cfg.Rate > 0 && l.queued > 0 && l.queued+n > p.cfg.Queue
	if full || l.frames.n >= p.maxFrames {
		p.c.QueueDropped++
		p.pool.Put(b)
		return
	}
	if p.cfg.MarkAbove > 0 && l.queued > p.cfg.MarkAbove && b.view.ecn(b.Data) != 0 {
		if b.view.ecn(b.Data) != ecnCE {
			b.view.setCE(b.Data)
		}
		p.c.Marked++
	}
	l.busy = max(l.busy, now)
	if p.cfg.Rate > 0 {
		l.busy = l.busy.Add(tick.Duration(int64(n) * 8 * int64(tick.Second) / p.cfg.Rate))
	}
	b.depart = l.busy
	b.due = max(l.last, b.depart.Add(p.cfg.Delay))
	l.last = b.due
	l.frames.push(b)
	l.queued += n
	if p.cfg.Rate > 0 {
		p.c.MaxQueue = max(p.c.MaxQueue, l.queued)
	}
	if b.due <= now {
		// No rate and no delay: let it through at once, so that Pop needs no later time.
		for b := l.arrived(now); b != nil; b = l.arrived(now) {
			p.shuffle(b)
		}
	}
}
