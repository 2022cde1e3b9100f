package stack

import (
	"xwarp/ring"
	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// block is segments that were polled and not sent: a run that may leave as one block of segmentation offload.
type block struct {
	mem         []byte       // for the block, nil: only frames can be sent
	slots       []ring.TxBuf // for segments that leave as frames
	first       tcp.Out      // the first segment
	n           int          // segments
	maxSegments int          // that fit
	least       int          // that are worth a block
	size        int          // bytes of payload of each, but for the last
	last        int          // of the last, which ends the run when it is shorter
	flags       wire.Flags   // of the last
}

// start makes o the first segment of b.
func (b *block) start(e *Endpoint, o *tcp.Out) {
	b.first, b.n, b.maxSegments, b.size, b.flags = *o, 1, 1, o.Payload.Len(), o.Flags
	b.last, b.least = b.size, 2
	// The kernel clears CWR in all segments but the first, as classic ECN wants it and accurate ECN does not.
	const plain = wire.PSH | wire.ECE | wire.AE
	if b.mem != nil && o.Run != tcp.RunNone && b.size > 0 && o.Flags&^plain == wire.ACK &&
		e.frame.ipAt == ip.EthernetLen {
		b.maxSegments = (len(b.mem) - e.frame.n - wire.HeaderLen - o.Opt.Len()) / b.size
		b.least = min(MinBlockShort, MinBlock+MinBlockBytes/b.size)
	}
}

// canGrow reports whether more segments may join.
func (b *block) canGrow() bool { return b.n < b.maxSegments && b.last == b.size }

// join adds o if the kernel makes the same segment of the first one's headers: with lengths, sequence number
// and checksums of its own, and PSH in the last one only (RFC 9293, 3.9.1: successive PSH may be collapsed).
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

// burstBlocks is burst on a port that takes blocks.
func (e *Endpoint) burstBlocks(src tcp.Source, now tick.Time) (n int) {
	s := e.stack
	b := &s.block
	left := false // s.out was polled and not sent
	again, ok := true, true
	for ok && (n < s.round.maxEach || left) {
		b.mem, b.n = nil, 0
		if n < s.round.maxEach {
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

// reserve gets a slot for the segment that is polled next, and for those before it while they are too few for a block.
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

// sendBlock sends the segments of the block, as frames when they are few.
func (e *Endpoint) sendBlock() {
	s := e.stack
	b := &s.block
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
	end := at
	for i := range b.n {
		b.segment(i, &o)
		e.upper.Fill(o.Payload, b.mem[end:end+o.Payload.Len()])
		end += o.Payload.Len()
	}
	s.stats.TxFrames += uint64(b.n)
	s.stats.TxPayload += uint64(end - at)
	s.stats.TxBytes += uint64(end + at*(b.n-1))
	s.port.SendBlock(b.mem[:end], ring.Shape{IPAt: e.frame.ipAt, Headers: at, Payload: b.size,
		IPv6: e.frame.v6})
}
