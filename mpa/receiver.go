package mpa

import (
	"fmt"

	"xwarp/mpa/ulpdu"
	"xwarp/tcp/seq"
)

// Sink is the layer above as a Receiver uses it.
type Sink interface {
	// Place copies the payload of a ULPDU, whose CRC was right, to where it belongs. v is valid during the call only.
	// With inOrder, every earlier FPDU has been delivered, and an error ends the stream. Without, an error means that
	// nothing was placed: the FPDU is held, and Place is called again in order.
	Place(v *ulpdu.View, inOrder bool) *ulpdu.Error
	// Silent reports whether Deliver would have no effect for the ULPDU that begins with hdr, and that Place
	// has just placed out of order, such as a segment of an RDMA Write: such FPDUs share a record, and
	// Deliver is not called for them.
	Silent(hdr []byte, n int) bool
	// Deliver says that a placed ULPDU and all before it are complete: in stream order, once per FPDU, after
	// TCP's left edge has passed it. hdr is the first min(n, HeaderKept) octets and n the length of the
	// ULPDU. hdr is valid during the call.
	Deliver(hdr []byte, n int) *ulpdu.Error
}

// ReceiverConfig says how a Receiver reads its stream.
type ReceiverConfig struct {
	Framing
	// AnyMarkerOrigin also accepts FPDU pointers that count from the marker in front of an FPDU, as the drafts before
	// RFC 5044 may be read; it is meant for version 0 peers.
	AnyMarkerOrigin bool
	// Strict makes the first CRC failure in order an error. Otherwise the octets count as never received, and TCP
	// sends them again.
	Strict bool
	// Layered says that the transport below delivers every octet once and in order and cannot send again, as
	// a socket does: it implies Strict, and each FPDU is delivered as soon as it is placed, within Offer.
	// Advance does nothing.
	Layered bool
	// ReassemblyLimit bounds the octets held, 0 means DefaultReassemblyLimit.
	ReassemblyLimit int
	// RecordLimit bounds the FPDUs placed and not delivered, 0 means DefaultRecordLimit.
	RecordLimit int
	// Pool has the blocks and records, which connections of one worker share. It must not be nil.
	Pool *Pool
}

// Receiver reads the FPDUs of one direction of one connection. It is a value that its owner keeps; Init resets it.
//
// It sees the stream as the part in order and islands behind holes. In each it knows up to where FPDUs are
// complete (chain); the octets behind that are held until the rest of their FPDU is there:
//
//	left edge                  next                          island
//	    |== placed ==|~~ held ~~|         hole         |~ held ~|== placed ==|~ held ~|
//	               chain       end                   start    first        chain     end
type Receiver struct {
	cfg   ReceiverConfig
	sink  Sink
	start seq.Num

	pending    pendingDelivery // the last FPDU, when it waits for the left edge alone
	inOrder    island          // the part in order; its records wait for the left edge
	islands    []island
	base       []island // the array that islands is a part of
	reassembly reassembly
	records    int  // records in use
	stalled    bool // complete FPDUs in order wait for records

	dead   *ulpdu.Error // no octet is taken any more
	halted bool         // and nothing is delivered

	last int64 // where the stream ends, none while nobody said
	// refusedFrom is where the FPDU at the left edge begins of which octets up to refusedTo came, and were refused.
	refusedFrom, refusedTo int64

	seg   segment
	trust trust
	stats ReceiverStats
}

// Init makes r ready for a stream whose first octet in full operation has sequence number start.
func (r *Receiver) Init(cfg ReceiverConfig, start seq.Num, sink Sink) {
	if cfg.ReassemblyLimit <= 0 {
		cfg.ReassemblyLimit = DefaultReassemblyLimit
	}
	if cfg.RecordLimit <= 0 {
		cfg.RecordLimit = DefaultRecordLimit
	}
	cfg.Strict = cfg.Strict || cfg.Layered
	*r = Receiver{cfg: cfg, sink: sink, start: start, last: none, refusedTo: none, base: r.base[:0],
		reassembly: reassembly{tab: r.reassembly.tab}}
	r.islands = r.base
	r.reassembly.init(cfg.Pool, cfg.ReassemblyLimit)
	r.inOrder = island{first: 0, list: noRecords}
	r.trust.init(cfg.CRC && !cfg.Strict)
}

// offset returns the place of s in the stream; s is less than 2^31 octets from what is expected next.
func (r *Receiver) offset(s seq.Num) int64 {
	return r.inOrder.end + int64(int32(uint32(s)-uint32(r.start)-uint32(r.inOrder.end)))
}

// Offer gives r the n octets of the stream that begin at sequence number at and that it has not kept before,
// in order or not, in the given pieces, of which octets beyond n are ignored. kept is how many octets from at
// on were placed or held: TCP acknowledges those, and the rest counts as never received. The pieces may be
// reused after the call. After an error the caller still calls Advance for what was kept before it, sends the
// Terminate and offers no more.
func (r *Receiver) Offer(at seq.Num, pieces [][]byte, n int) (kept int, err *ulpdu.Error) {
	if r.aligned(at, pieces, n) && (!r.cfg.CRC || crcRight(pieces)) {
		return r.placeAligned(n)
	}
	return r.offer(at, pieces, n)
}

// offer is Offer of any octets.
func (r *Receiver) offer(at seq.Num, pieces [][]byte, n int) (kept int, err *ulpdu.Error) {
	if r.pending.on {
		r.recordPending()
	}
	if r.dead != nil {
		r.stats.AfterEnd += uint64(n)
		return 0, r.dead
	}
	p := r.offset(at)
	r.seg.set(pieces, p, n)
	if p < r.inOrder.end {
		r.seg.skip(r.inOrder.end) // kept before
	}
	if r.seg.p < r.seg.q {
		if r.seg.p == r.inOrder.end {
			err = r.offerNext()
		} else {
			r.offerBehind()
		}
	}
	kept = int(r.seg.kept - p)
	r.seg.pieces = nil
	r.stats.HeldHighWater = max(r.stats.HeldHighWater, r.reassembly.octets)
	return max(0, kept), err
}

// Advance says that TCP's left edge (RCV.NXT) is now to, and delivers the FPDUs before it.
func (r *Receiver) Advance(to seq.Num) *ulpdu.Error {
	left := r.offset(to)
	if r.pending.on {
		if left < r.pending.end || r.halted {
			return r.dead
		}
		return r.deliverPending()
	}
	for !r.halted {
		if err := r.deliver(min(left, max(r.inOrder.end, r.inOrder.chain))); err != nil {
			return err
		}
		if !r.stalled || r.dead != nil {
			return r.dead
		}
		r.seg.none(r.inOrder.end)
		before := r.inOrder.chain
		if err := r.absorb(); err != nil {
			return err
		}
		if r.inOrder.chain == before {
			break
		}
	}
	return r.dead
}

// deliver delivers what ends at or before passed.
func (r *Receiver) deliver(passed int64) *ulpdu.Error {
	p := r.cfg.Pool
	l := &r.inOrder.list
	for l.head != none && p.recs[l.head].end <= passed {
		rec := &p.recs[l.head]
		if rec.kind == refused {
			if err := r.placeHeld(rec); err != nil {
				return r.halt(err)
			}
		}
		if rec.kind == silent {
			r.stats.Silent += uint64(rec.count)
		} else {
			r.stats.Delivered++
			if err := r.sink.Deliver(rec.hdr[:min(rec.n, HeaderKept)], int(rec.n)); err != nil {
				return r.halt(err)
			}
		}
		i := l.head
		l.n--
		l.head = p.recs[i].next
		if l.head == none {
			l.tail = none
		}
		p.freeRecord(i)
		r.records--
	}
	return nil
}

// placeHeld asks the sink again for an FPDU that it refused out of order.
func (r *Receiver) placeHeld(rec *record) *ulpdu.Error {
	r.seg.none(r.inOrder.end)
	x := r.gather(rec.start, rec.end)
	if x == nil {
		return r.lost(rec.start)
	}
	length, n := r.lengthAt(rec.start), int(rec.n)
	err := r.sink.Place(r.viewOf(x, rec.start, length, n), true)
	r.reassembly.release(rec.start, rec.end)
	return err
}

// die ends the stream: nothing more is placed; what was complete before err is still delivered.
func (r *Receiver) die(err *ulpdu.Error) *ulpdu.Error {
	r.dead = err
	return err
}

// halt ends the stream and keeps what is complete from being delivered.
func (r *Receiver) halt(err *ulpdu.Error) *ulpdu.Error {
	r.dead, r.halted = err, true
	return err
}

// lost is the error of an octet that should be held and is not: a fault of this package.
func (r *Receiver) lost(at int64) *ulpdu.Error {
	return ulpdu.Newf(ulpdu.MPA, 0, CodeLocal, "held bytes at stream offset %d are gone", at)
}

// EndsAt says that the stream ends before at: an incomplete FPDU there is no reason to ask for its octets again. It
// reports whether all octets before at have come, of which the last were refused: the end cuts their FPDU.
func (r *Receiver) EndsAt(at seq.Num) bool {
	r.last = r.offset(at)
	return r.dead == nil && r.refusedFrom == r.inOrder.end && r.refusedTo == r.last
}

// doubts reports whether an incomplete FPDU in the segment is suspicious. Where the stream ends it is not.
func (r *Receiver) doubts() bool { return r.trust.doubts() && r.last == none }

// Incomplete returns the stream offset of the FPDU that is next, and the end of the octets of it and behind it that
// have come already: the same offset when there are none.
func (r *Receiver) Incomplete() (next, came int64) {
	e := &r.inOrder
	switch n := len(r.islands); {
	case r.dead != nil:
		return e.chain, e.chain
	case n > 0:
		return e.chain, r.islands[n-1].end
	}
	return e.chain, max(e.chain, e.end)
}

// Late ends the stream when what Incomplete told of stays incomplete for too long. MPA code 2 says that the rest of
// an FPDU, and with it its CRC, did not come; code 1 that TCP's peer does not send again what was lost.
func (r *Receiver) Late() *ulpdu.Error {
	e := &r.inOrder
	if len(r.islands) > 0 {
		return r.die(ulpdu.Newf(ulpdu.MPA, 0, CodeClosed,
			"the bytes from stream offset %d on do not come, although later ones did", e.end))
	}
	what := ""
	if length := r.lengthAt(e.chain); e.end >= length+lengthLen {
		r.seg.none(e.end)
		what = fmt.Sprintf(", length field %d", r.u16(length))
	}
	return r.die(ulpdu.Newf(ulpdu.MPA, 0, CodeCRC, "FPDU at stream offset %d%s: %d bytes came, "+
		"and the rest does not come: the path lost it, the sender stopped in the middle of it, or its "+
		"length was changed on the way", e.chain, what, e.end-e.chain))
}

// Closed says that the stream ends before at, with the peer's FIN. It gives what is held back to the pool:
// octets at and behind at are not the peer's. The error, MPA code 1, says that the end cuts an FPDU; nil
// means that it does not.
func (r *Receiver) Closed(at seq.Num) *ulpdu.Error {
	err := r.dead
	if end := r.offset(at); err == nil && end > r.inOrder.chain {
		err = ulpdu.Newf(ulpdu.MPA, 0, CodeClosed,
			"the stream ended %d bytes into the FPDU at stream offset %d", end-r.inOrder.chain,
			r.inOrder.chain)
	}
	r.Release()
	return err
}

// Release gives everything back to the pool. The Receiver must be initialised again before it takes octets.
func (r *Receiver) Release() {
	r.reassembly.drop()
	r.pending.on = false
	r.freeList(&r.inOrder.list)
	for i := range r.islands {
		r.freeList(&r.islands[i].list)
	}
	r.islands = r.base[:0]
	if r.halted = true; r.dead == nil {
		r.dead = ulpdu.Newf(ulpdu.MPA, 0, CodeClosed, "the stream has ended")
	}
}

func (r *Receiver) freeList(l *recordList) {
	for i := l.head; i != none; {
		next := r.cfg.Pool.recs[i].next
		r.cfg.Pool.freeRecord(i)
		r.records--
		i = next
	}
	*l = noRecords
}

// Space returns how many octets r can still hold: the TCP window may promise that many when segments may have
// to be held.
func (r *Receiver) Space() int { return r.reassembly.space() }
