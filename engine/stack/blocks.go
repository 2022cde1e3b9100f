package stack

import (
	"xwarp/ring"
	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// block is a run of segments that were polled but not sent, and may be sent as one block of segmentation offload.
type block struct {
	mem         []byte       // buffer for the block; nil if only frames can be sent
	slots       []ring.TxBuf // for segments sent as frames
	first       tcp.Out      // first segment
	n           int          // number of segments
	maxSegments int          // maximum number of segments
	least       int          // minimum number of segments for a block
	size        int          // payload bytes of each segment but the last
	last        int          // payload bytes of the last segment; if shorter than size, no more segments may join
	flags       wire.Flags   // flags of the last segment
}

// start makes o the first segment of b.
func (b *block) start(e *Endpoint, o *tcp.Out) {
	b.first, b.n, b.maxSegments, b.size, b.flags = *o, 1, 1, o.Payload.Len(), o.Flags
	b.last, b.least = b.size, 2
	// The kernel clears CWR in all segments but the first, which fits classic ECN but not accurate ECN.
	const plain = wire.PSH | wire.ECE | wire.AE
	if b.mem != nil && o.Run != tcp.RunNone && b.size > 0 && o.Flags&^plain == wire.ACK &&
		e.frame.ipAt == ip.EthernetLen {
		b.maxSegments = (len(b.mem) - e.frame.n - wire.HeaderLen - o.Opt.Len()) / b.size
		b.least = min(MinBlockShort, MinBlock+MinBlockBytes/b.size)
	}
}

// canGrow reports whether more segments may join.
func (b *block) canGrow() bool { return b.n < b.maxSegments && b.last == b.size }

// join adds o if the kernel derives the same segment from the headers of the first one: with its own lengths, sequence
// number and checksums, and PSH only in the last segment (RFC 9293, 3.9.1: successive PSH may be collapsed).
func (b *block) join(o *tcp.Out) bool {
	n := o.Payload.Len()
	if o.Run != tcp.RunNext || n == 0 || n > b.size || (o.Flags^b.first.Flags)&^wire.PSH != 0 ||
		o.ECN != b.first.ECN {
		return false
	}
	b.n, b.last, b.flags = b.n+1, n, o.Flags
	return true
}

// segment makes o the i-th segment.
func (b *block) segment(i int, o *tcp.Out) {
	*o = b.first
	if i > 0 {
		o.Run = tcp.RunNext
	}
	o.Payload.Start = o.Payload.Start.Add(i * b.size)
	o.Seq = o.Payload.Start
	n := b.size
	if i == b.n-1 {
		n, o.Flags = b.last, b.flags
	} else if b.n > 1 {
		o.Flags &^= wire.PSH
	}
	o.Payload.End = o.Payload.Start.Add(n)
}

// burstBlocks is burst on a port that accepts blocks.
func (e *Endpoint) burstBlocks(src tcp.Source, now tick.Time) (n int) {
	s := e.stack
	b := &s.pending
	left := false // s.out was polled but not sent
	again, ok := true, true
	for ok && (n < MaxFramesPerVisit || left) {
		b.mem, b.n = nil, 0
		if n < MaxFramesPerVisit {
			b.mem = s.port.Block()
		}
		if left {
			b.start(e, &s.out)
			left = false
		}
		for ok && !left && (b.n == 0 || b.canGrow()) {
			if ok = b.reserve(s); !ok {
				break
			}
			if ok = e.conn.Poll(now, src, &s.out); !ok {
				again = false
				break
			}
			if b.n == 0 {
				b.start(e, &s.out)
			} else {
				left = !b.join(&s.out)
			}
			if !left && b.n >= b.least && b.canGrow() && src != nil && e.runs != nil {
				b.n += e.conn.PollRun(now, e.runs, &s.out, b.maxSegments-b.n)
				b.flags = s.out.Flags
			}
		}
		if b.n > 0 {
			n += b.n
			e.sendBlock()
		}
	}
	for _, buf := range b.slots {
		s.port.CancelTx(buf)
	}
	b.slots = b.slots[:0]
	if again {
		s.mark(e)
	}
	return n
}

// reserve fills b.slots with a slot for the next segment and, while the segments are too few for a block, with one for
// each segment before it. It returns false if no slot is free.
func (b *block) reserve(s *Stack) bool {
	need := b.n + 1
	if b.n > 0 && b.n >= b.least {
		need = 1
	}
	for len(b.slots) < need {
		buf, ok := s.allocTx()
		if !ok {
			return false
		}
		b.slots = append(b.slots, buf)
	}
	return true
}

// sendBlock sends the segments of the block: as one block if there are at least b.least, otherwise as frames.
func (e *Endpoint) sendBlock() {
	s := e.stack
	b := &s.pending
	var o tcp.Out
	if b.n < b.least {
		for i := range b.n {
			b.segment(i, &o)
			last := len(b.slots) - 1
			e.emit(b.slots[last], &o)
			b.slots = b.slots[:last]
		}
		return
	}
	o = b.first
	o.Flags = b.flags
	at := e.frame.build(b.mem, &o, e.hop.mac)
	n := (b.n-1)*b.size + b.last
	end := at + n
	e.upper.Fill(seq.Of(o.Payload.Start, n), b.mem[at:end])
	s.stats.TxFrames += uint64(b.n)
	s.stats.TxPayload += uint64(n)
	s.stats.TxBytes += uint64(end + at*(b.n-1))
	s.port.SendBlock(b.mem[:end], ring.Shape{IPAt: e.frame.ipAt, Headers: at, Payload: b.size,
		IPv6: e.frame.v6})
}
