package impair

import (
	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
)

// FrameOverhead is the Ethernet header with two VLAN tags, in bytes.
const FrameOverhead = ip.EthernetLen + 2*ip.VLANTagLen

// line is the bottleneck with its queue, and the delay behind it. Frames stay in order.
type line struct {
	frames   fifo
	inFlight int       // number of frames at the head that have left the bottleneck
	queued   int       // bytes of the frames that have not left the bottleneck
	busy     tick.Time // when the bottleneck will have sent all queued frames
	last     tick.Time // due time of the newest frame: no later frame may be due before it
}

// deadline returns when the first frame arrives at the far end, tick.Never if there is none.
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
	l.inFlight--
	return l.frames.pop()
}

// drain accounts for the frames that have left the bottleneck by now.
func (l *line) drain(now tick.Time) {
	for l.inFlight < l.frames.n && l.frames.at(l.inFlight).depart <= now {
		l.queued -= len(l.frames.at(l.inFlight).Data)
		l.inFlight++
	}
}

// enqueue puts a frame into the queue of the bottleneck, and marks it if the queue is above MarkAbove. It drops the
// frame if the queue is full, or if too many frames are in the line.
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
		// Without rate and delay the frame is due now. Pass it on, so that a Pop at the same time returns it.
		for b := l.arrived(now); b != nil; b = l.arrived(now) {
			p.shuffle(b)
		}
	}
}

// fifo is a queue of buffers in a ring that grows when it is full.
type fifo struct {
	ring []*Buf // length zero or a power of two
	head int
	n    int
}

func (q *fifo) at(i int) *Buf { return q.ring[(q.head+i)&(len(q.ring)-1)] }

func (q *fifo) push(b *Buf) {
	if q.n == len(q.ring) {
		bigger := make([]*Buf, max(64, 2*len(q.ring)))
		for i := range q.n {
			bigger[i] = q.at(i)
		}
		q.ring, q.head = bigger, 0
	}
	q.ring[(q.head+q.n)&(len(q.ring)-1)] = b
	q.n++
}

// pop returns the oldest buffer, nil when there is none.
func (q *fifo) pop() *Buf {
	if q.n == 0 {
		return nil
	}
	b := q.at(0)
	q.ring[q.head] = nil
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.n--
	return b
}
