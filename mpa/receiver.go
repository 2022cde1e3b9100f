package mpa

import (
	"fmt"

	"xwarp/mpa/ulpdu"
	"xwarp/tcp/checksum"
	"xwarp/tcp/seq"
)

// Sink is the layer above a Receiver: DDP.
type Sink interface {
	// Place copies the payload of a ULPDU with a correct CRC to its destination. v is valid during the call only.
	// inOrder means that every earlier FPDU has been delivered; an error then ends the stream. Out of order,
	// an error means that nothing was placed: the FPDU is held, and Place is called again in order. In order,
	// ulpdu.NotReady means that as well: Place is called again at the next Advance, or when the FPDU arrives again.
	Place(v *ulpdu.View, inOrder bool) *ulpdu.Error
	// Silent reports whether Deliver would have no effect for the ULPDU that begins with hdr and that Place
	// has just placed out of order. A segment of an RDMA Write is an example. Consecutive silent FPDUs share
	// one record, and Deliver is not called for them.
	Silent(hdr []byte, n int) bool
	// Deliver reports that a placed ULPDU and all before it are complete. It is called once for each FPDU that is not
	// silent, in stream order, after TCP's left edge (RCV.NXT) has passed the FPDU. hdr is the first min(n, HeaderKept)
	// bytes of the ULPDU, n its length. hdr is valid during the call.
	Deliver(hdr []byte, n int) *ulpdu.Error
}

// ReceiverConfig configures a Receiver.
type ReceiverConfig struct {
	Framing
	// AnyMarkerOrigin also accepts FPDU pointers that count from the marker in front of an FPDU. The drafts before
	// RFC 5044 can be read that way; version 0 peers may need it.
	AnyMarkerOrigin bool
	// Strict makes the first CRC failure in order an error. Otherwise the bytes count as never received, and TCP sends
	// them again, up to maxRepeats times.
	Strict bool
	// Layered means that the transport below delivers every byte once and in order and cannot send again, like a
	// socket. It implies Strict. Each FPDU is delivered as soon as it is placed, within Offer. Advance only offers the
	// sink again a ULPDU for which it was not ready.
	Layered bool
	// ReassemblyLimit is the maximum number of bytes held. Zero means DefaultReassemblyLimit.
	ReassemblyLimit int
	// RecordLimit is the maximum number of FPDUs complete and not delivered. Consecutive silent ones count once. Zero
	// means DefaultRecordLimit.
	RecordLimit int
	// Pool provides blocks and records; the connections of one worker share it. It must not be nil.
	Pool *Pool
}

// Receiver reads the FPDUs of one direction of one connection. It is a value that its owner keeps; Init resets it.
//
// It divides the stream into the part in order and islands, which lie behind holes. In each part, the FPDUs up to
// chainEnd are complete, and placed unless the sink could not place them yet. The bytes after chainEnd are held until
// the rest of their FPDU arrives:
//
//	left edge                  next                             island
//	    |== placed ==|~~ held ~~|         hole         |~~ held ~~|== placed ==|~ held ~|
//	              chainEnd     end                   start    chainStart   chainEnd    end
type Receiver struct {
	cfg   ReceiverConfig
	sink  Sink
	start seq.Num // of stream offset 0

	pending       placedFPDU // the newest FPDU, if no other waits for the left edge
	inOrder       part       // the part in order; its records wait for the left edge
	islands       []part     // in stream order
	islandArray   []part     // the whole array that islands is a slice of
	reassembly    reassembly
	recordsUsed   int
	awaitsRecords bool // complete FPDUs in order wait for free records
	waiting       bool // the sink is not ready for the next FPDU in order, recorded or not

	err             *ulpdu.Error // ended the stream: no further byte is accepted
	deliveryStopped bool         // no further FPDU is delivered

	wrongAt int64 // stream offset of the FPDU in order that was wrong last; none if none was
	wrong   int   // number of times that the FPDU at wrongAt was wrong

	seg   segment
	stats ReceiverStats
}

// Init prepares r for a stream whose first byte in full operation has sequence number start.
func (r *Receiver) Init(cfg ReceiverConfig, start seq.Num, sink Sink) {
	if cfg.ReassemblyLimit <= 0 {
		cfg.ReassemblyLimit = DefaultReassemblyLimit
	}
	if cfg.RecordLimit <= 0 {
		cfg.RecordLimit = DefaultRecordLimit
	}
	cfg.Strict = cfg.Strict || cfg.Layered
	*r = Receiver{cfg: cfg, sink: sink, start: start, wrongAt: none,
		islandArray: r.islandArray[:0], reassembly: reassembly{table: r.reassembly.table}}
	r.islands = r.islandArray
	r.reassembly.init(cfg.Pool, cfg.ReassemblyLimit)
	r.inOrder = part{records: noRecords}
}

// offset returns the stream offset of s, which is less than 2^31 bytes away from the next expected byte.
func (r *Receiver) offset(s seq.Num) int64 {
	return r.inOrder.end + int64(int32(uint32(s)-uint32(r.start)-uint32(r.inOrder.end)))
}

// Offer passes r n bytes of the stream that begin at sequence number at and that r has not kept before. They may be in
// order or out of order. pieces holds them; bytes beyond n are ignored. kept is the number of the first of these bytes
// that were placed or held: TCP acknowledges them. The rest counts as never received. The pieces may be reused after
// the call. crc is the CRC32C of the n bytes, if the caller knows it: see WantsCRC. After an error the caller still
// calls Advance for the bytes kept before it, sends the Terminate, and offers nothing more.
func (r *Receiver) Offer(at seq.Num, pieces [][]byte, n int, crc checksum.Known) (kept int,
	err *ulpdu.Error) {
	if r.isNextFPDU(at, pieces, n) && (!r.cfg.CRC || isCRCRight(pieces, crc)) {
		if kept, err = r.placeNextFPDU(n); err != ulpdu.NotReady {
			return kept, err
		}
	}
	return r.offerAny(at, pieces, n)
}

// WantsCRC reports whether Offer would use the CRC32C of all n bytes of pieces, because their length field says that
// they are the next FPDU and nothing else. A caller that passes over the bytes anyway then computes it in that pass.
func (r *Receiver) WantsCRC(at seq.Num, pieces [][]byte, n int) bool {
	if !r.cfg.CRC || !r.isNext(at) || len(pieces) == 0 || len(pieces) > 1 && r.cfg.Markers {
		return false
	}
	_, _, ok := r.parseLength(pieces[0], r.inOrder.end, n)
	return ok
}

// offerAny is Offer without the fast path.
func (r *Receiver) offerAny(at seq.Num, pieces [][]byte, n int) (kept int, err *ulpdu.Error) {
	if r.pending.on {
		r.recordPending()
	}
	if r.err != nil {
		r.stats.AfterEnd += uint64(n)
		return 0, r.err
	}
	offset := r.offset(at)
	r.seg.set(pieces, offset, n)
	if offset < r.inOrder.end {
		r.seg.skipTo(r.inOrder.end) // kept before
	}
	if !r.seg.empty() {
		if r.seg.start == r.inOrder.end {
			err = r.offerInOrder()
		} else {
			r.offerOutOfOrder()
		}
	}
	kept = int(r.seg.kept - offset)
	r.seg.pieces = nil
	r.stats.HeldHighWater = max(r.stats.HeldHighWater, r.reassembly.held)
	return max(0, kept), err
}

// Advance reports that TCP's left edge (RCV.NXT) is now to, and delivers the FPDUs before it. It returns the error that
// ended the stream, if any, also if Offer returned it before.
func (r *Receiver) Advance(to seq.Num) *ulpdu.Error {
	left := r.offset(to)
	if r.pending.on {
		if left < r.pending.end || r.deliveryStopped {
			return r.err
		}
		return r.deliverPending()
	}
	for !r.deliveryStopped {
		if err := r.deliverUpTo(min(left, max(r.inOrder.end, r.inOrder.chainEnd))); err != nil {
			return err
		}
		if !r.awaitsRecords || r.err != nil {
			return r.err
		}
		r.seg.clear(r.inOrder.end)
		before := r.inOrder.chainEnd
		if err := r.absorbIslands(); err != nil {
			return err
		}
		if r.inOrder.chainEnd == before {
			break
		}
	}
	return r.err
}

// deliverUpTo delivers the recorded FPDUs that end at or before left.
func (r *Receiver) deliverUpTo(left int64) *ulpdu.Error {
	p := r.cfg.Pool
	l := &r.inOrder.records
	r.waiting = false
	for l.head != none && p.records[l.head].end <= left {
		rec := &p.records[l.head]
		if rec.kind == unplaced {
			switch err := r.placeHeld(rec); err {
			case nil:
			case ulpdu.NotReady:
				r.waiting = true
				return nil
			default:
				return r.stopDelivery(err)
			}
		}
		if rec.kind == silent {
			r.stats.Silent += uint64(rec.count)
		} else {
			r.stats.Delivered++
			if err := r.sink.Deliver(rec.hdr[:min(rec.n, HeaderKept)], int(rec.n)); err != nil {
				return r.stopDelivery(err)
			}
		}
		i := l.head
		l.n--
		l.head = p.records[i].next
		if l.head == none {
			l.tail = none
		}
		r.freeRecord(i)
	}
	return nil
}

// placeHeld offers the sink again, in order, an FPDU that it did not place out of order.
func (r *Receiver) placeHeld(rec *record) *ulpdu.Error {
	r.seg.clear(r.inOrder.end)
	fpdu := r.gather(rec.start, rec.end)
	if fpdu == nil {
		return errNotHeld(rec.start)
	}
	length, n := r.lengthFieldAt(rec.start), int(rec.n)
	err := r.sink.Place(r.viewOf(fpdu, rec.start, length, n), true)
	if err != ulpdu.NotReady {
		r.reassembly.release(rec.start, rec.end)
	}
	return err
}

// endStream ends the stream with err. Nothing more is placed; the FPDUs complete before err are still delivered.
func (r *Receiver) endStream(err *ulpdu.Error) *ulpdu.Error {
	r.err = err
	return err
}

// stopDelivery ends the stream with err, and nothing more is delivered.
func (r *Receiver) stopDelivery(err *ulpdu.Error) *ulpdu.Error {
	r.err, r.deliveryStopped = err, true
	return err
}

// errNotHeld is the error for a byte that should be held and is not: a fault of this package.
func errNotHeld(at int64) *ulpdu.Error {
	return ulpdu.Newf(ulpdu.MPA, 0, ulpdu.CodeLocal, "held bytes at stream offset %d were lost", at)
}

// Incomplete returns the stream offset of the next FPDU, and the end of the bytes that have arrived of it and behind
// it. Both are equal when there are none, or when an error has ended the stream.
func (r *Receiver) Incomplete() (next, arrived int64) {
	p := &r.inOrder
	switch n := len(r.islands); {
	case r.err != nil:
		return p.chainEnd, p.chainEnd
	case n > 0:
		return p.chainEnd, r.islands[n-1].end
	}
	return p.chainEnd, max(p.chainEnd, p.end)
}

// TimeOut fails the stream because an FPDU stayed incomplete for too long; see Incomplete. MPA error code 2 means that
// the rest of the FPDU, and with it its CRC, did not arrive. Code 1 means that there is a hole: later bytes arrived,
// but the peer's TCP does not retransmit the missing ones.
func (r *Receiver) TimeOut() *ulpdu.Error {
	p := &r.inOrder
	if len(r.islands) > 0 {
		return r.endStream(ulpdu.Newf(ulpdu.MPA, 0, ulpdu.CodeClosed,
			"the bytes from stream offset %d on are missing, although later ones arrived", p.end))
	}
	field := ""
	if length := r.lengthFieldAt(p.chainEnd); p.end >= length+lengthLen {
		r.seg.clear(p.end)
		field = fmt.Sprintf(", length field %d", r.u16(length))
	}
	return r.endStream(ulpdu.Newf(ulpdu.MPA, 0, ulpdu.CodeCRC, "FPDU at stream offset %d%s: "+
		"%d bytes arrived, but not the rest: the path lost it, the sender stopped in the "+
		"middle of it, or its length field was corrupted", p.chainEnd, field, p.end-p.chainEnd))
}

// Closed reports that the peer's FIN has sequence number at. Bytes from there on are not part of the stream. It returns
// the held bytes to the pool. The error is the one that ended the stream before, or MPA code 1 if the end cuts an FPDU.
// It is nil otherwise.
func (r *Receiver) Closed(at seq.Num) *ulpdu.Error {
	err := r.err
	if end := r.offset(at); err == nil && end > r.inOrder.chainEnd {
		err = ulpdu.Newf(ulpdu.MPA, 0, ulpdu.CodeClosed,
			"the stream ended %d bytes into the FPDU at stream offset %d", end-r.inOrder.chainEnd,
			r.inOrder.chainEnd)
	}
	r.Release()
	return err
}

// Release returns all memory to the pool. The Receiver must be initialised again before it accepts bytes.
func (r *Receiver) Release() {
	r.reassembly.releaseAll()
	r.pending.on = false
	r.freeList(&r.inOrder.records)
	for i := range r.islands {
		r.freeList(&r.islands[i].records)
	}
	r.islands = r.islandArray[:0]
	if r.deliveryStopped = true; r.err == nil {
		r.err = ulpdu.Newf(ulpdu.MPA, 0, ulpdu.CodeClosed, "the stream has ended")
	}
}

// Waiting reports whether the sink was not ready for the next FPDU, which is held. The next Advance offers it again.
func (r *Receiver) Waiting() bool { return r.waiting }

// Space returns how many bytes r can still hold. It is the TCP window to offer if segments may have to be held.
func (r *Receiver) Space() int { return r.reassembly.space() }
