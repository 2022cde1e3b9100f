package mpa

import (
	"xwarp/mpa/ulpdu"
	"xwarp/tcp/checksum"
	"xwarp/tcp/seq"
)

// Source is the layer above as a Sender uses it.
type Source interface {
	// NextULPDU freezes the next ULPDU of at most max octets (max is never below MinMULPDU) and returns its name and
	// length; length 0 means that there is nothing to send.
	NextULPDU(max int) (ref ulpdu.Ref, n int)
	// ULPDUWaiting reports whether NextULPDU would return a ULPDU now. TCP then knows where a burst ends:
	// only there it says PSH, which makes receivers hurry.
	ULPDUWaiting() bool
	// ReadULPDU writes the first head octets of the ULPDU ref to dst, which has its length, and returns the
	// memory where the others are; what body has behind them is likely to be sent next. head is even, or all
	// of dst: then body has no meaning. It is called again for a retransmission.
	ReadULPDU(ref ulpdu.Ref, dst []byte) (head int, body []byte)
	// LendULPDU is ReadULPDU for a transport that reads the memory later: body stays the same until ReleaseULPDU, or
	// until the Source takes it back. nil: that cannot be said of it, and nothing was done.
	LendULPDU(ref ulpdu.Ref, dst []byte) (head int, body []byte)
	// ReleaseULPDU says that TCP has acknowledged the last octet of the FPDU: once for each ULPDU, in order.
	ReleaseULPDU(ref ulpdu.Ref)
}

// SenderConfig says how a Sender frames.
type SenderConfig struct {
	Framing
	// Pack puts several FPDUs into a segment when they fit; otherwise each segment holds one FPDU.
	Pack bool
}

// Sender makes the FPDUs of one direction of one connection. It keeps descriptors and no payload: the octets of an FPDU
// are made again from the Source whenever TCP transmits them. It is a value that its owner keeps; Init resets it.
type Sender struct {
	cfg    SenderConfig
	source Source
	emss   int
	start  seq.Num // SeqStart of the markers
	next   seq.Num // behind the last frozen FPDU

	ring       []descriptor // power of two; index i is ring[i&(len-1)]
	head, tail uint32       // oldest descriptor, behind the newest
	lastFilled uint32       // the descriptor that Fill used last

	waiting    ulpdu.Ref // a ULPDU that was frozen and did not fit
	waitingLen int       // 0 for none

	scratch   []byte // the FPDU at scratchAt, for ranges that cut it
	scratchAt seq.Num
}

// descriptor is one frozen FPDU; it ends where the next one begins.
type descriptor struct {
	ref ulpdu.Ref
	at  seq.Num // first octet, a marker in front included
	n   uint32  // octets of the ULPDU
}

// Init makes s ready for a stream whose first octet in full operation has sequence number start; emss is in octets.
func (s *Sender) Init(cfg SenderConfig, start seq.Num, emss int, src Source) {
	*s = Sender{cfg: cfg, source: src, emss: emss, start: start, next: start, ring: s.ring,
		scratch: s.scratch[:0]}
}

// putFPDU writes the FPDU of d to dst, which has exactly its size. With a CRC it returns the sum of all octets, too.
func (s *Sender) putFPDU(dst []byte, d *descriptor) (sum uint64) {
	return s.cfg.putFPDU(dst, uint32(d.at-s.start), s.source, d.ref, int(d.n))
}

// SetEMSS says that segments now carry at most emss octets. FPDUs that are frozen keep their size.
func (s *Sender) SetEMSS(emss int) { s.emss = emss }

// Outstanding returns how many FPDUs are frozen and not acknowledged.
func (s *Sender) Outstanding() int { return int(s.tail - s.head) }

// Next freezes the next FPDU, or several when packing, of together at most room octets and returns their
// length. With n = 0 there is nothing to send, or, when more is true, the next FPDU needs more than room,
// which is less than the EMSS. With n > 0, more is true when another FPDU is known to wait. n > room is an
// FPDU larger than any segment: EMSS is below MinFPDU, or fell after the ULPDU was frozen; the caller cuts it
// (RFC 5044, 4.5). While maxDescriptors FPDUs are outstanding there is nothing to send. Next is tcp.Source.
func (s *Sender) Next(room int) (n int, more bool) {
	for s.Outstanding() < maxDescriptors {
		ref, k, ok := s.nextULPDU(room, n)
		if !ok {
			break
		}
		size := s.cfg.Size(uint64(uint32(s.next-s.start)), k)
		if n+size > room && (n > 0 || room < s.emss) {
			s.waiting, s.waitingLen = ref, k
			return n, true
		}
		s.waitingLen = 0
		s.addDescriptor(descriptor{ref, s.next, uint32(k)})
		s.next = s.next.Add(size)
		n += size
		if !s.cfg.Pack || room-n < MinMULPDU+lengthLen+crcLen {
			break
		}
	}
	return n, n > 0 && s.source.ULPDUWaiting()
}

// nextULPDU returns the ULPDU that waits, or a new one for a segment of room octets of which used are taken.
func (s *Sender) nextULPDU(room, used int) (ref ulpdu.Ref, n int, ok bool) {
	if s.waitingLen > 0 {
		return s.waiting, s.waitingLen, true
	}
	most := s.cfg.dynamicMULPDU(uint32(s.next-s.start), min(room, s.emss)-used)
	if most < MinMULPDU {
		if used > 0 {
			return ref, 0, false // RFC 5044, 4.5: DDP never gets less; the next segment begins with it
		}
		most = MinMULPDU
	}
	ref, n = s.source.NextULPDU(most)
	return ref, n, n > 0
}

func (s *Sender) addDescriptor(d descriptor) {
	if int(s.tail-s.head) == len(s.ring) {
		bigger := make([]descriptor, max(64, 2*len(s.ring)))
		for i := s.head; i != s.tail; i++ {
			bigger[i&uint32(len(bigger)-1)] = s.ring[i&uint32(len(s.ring)-1)]
		}
		s.ring = bigger
	}
	s.ring[s.tail&uint32(len(s.ring)-1)] = d
	s.tail++
}

func (s *Sender) descriptor(i uint32) *descriptor { return &s.ring[i&uint32(len(s.ring)-1)] }

// endOf returns the sequence number behind descriptor i.
func (s *Sender) endOf(i uint32) seq.Num {
	if i+1 == s.tail {
		return s.next
	}
	return s.descriptor(i + 1).at
}

// Fill writes the octets of r, which Next has frozen and Acked has not released, to dst; dst holds at least
// r.Len() octets. It is fast when r is whole FPDUs, one or several. It returns false when r holds octets that
// s does not have.
func (s *Sender) Fill(r seq.Range, dst []byte) bool {
	_, _, ok := s.FillSum(r, dst)
	return ok
}

// FillSum is Fill that also returns the one's complement sum of the octets, as a running sum of little-endian
// words of 64 bits, when it read each of them anyway.
func (s *Sender) FillSum(r seq.Range, dst []byte) (sum uint64, summed, ok bool) {
	if len(dst) < r.Len() {
		return 0, false, false
	}
	summed = s.cfg.CRC
	i, ok := s.descriptorAt(r.Start)
	for at := r.Start; at.Less(r.End); i++ {
		if !ok || i == s.tail {
			return 0, false, false
		}
		d, end := s.descriptor(i), s.endOf(i)
		n := seq.Min(end, r.End).Diff(at)
		if n == end.Diff(d.at) {
			sum = checksum.Add(sum, s.putFPDU(dst[:n], d))
		} else {
			copy(dst[:n], s.wholeFPDU(d, end)[at.Diff(d.at):])
			summed = false
		}
		at, dst = at.Add(n), dst[n:]
		s.lastFilled = i
	}
	return sum, summed, true
}

// Unfreeze forgets the FPDUs from from on, and a ULPDU that waits behind them: Next freezes others in their place. The
// peer must have seen nothing of them. It returns false, and does nothing, when no FPDU begins at from.
func (s *Sender) Unfreeze(from seq.Num) bool {
	i, ok := s.descriptorAt(from)
	if !ok || s.descriptor(i).at != from {
		return false
	}
	s.tail, s.next, s.waitingLen = i, from, 0
	s.scratch = s.scratch[:0]
	return true
}

// descriptorAt returns the descriptor that holds octet at.
func (s *Sender) descriptorAt(at seq.Num) (i uint32, ok bool) {
	if i = s.lastFilled + 1; i-s.head < s.tail-s.head && s.descriptor(i).at == at {
		return i, true // a new segment follows the last one
	}
	if s.head == s.tail || at.Less(s.descriptor(s.head).at) || !at.Less(s.next) {
		return 0, false
	}
	if i = s.lastFilled; i-s.head < s.tail-s.head && s.descriptor(i).at.LessEq(at) &&
		at.Less(s.endOf(i)) {
		return i, true
	}
	lo, hi := s.head, s.tail // desc(lo).at <= at < desc(hi).at
	for hi-lo > 1 {
		if mid := lo + (hi-lo)/2; s.descriptor(mid).at.LessEq(at) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo, true
}

// wholeFPDU returns the FPDU of d, made in the scratch buffer unless it still stands there.
func (s *Sender) wholeFPDU(d *descriptor, end seq.Num) []byte {
	if n := end.Diff(d.at); len(s.scratch) == 0 || s.scratchAt != d.at {
		if cap(s.scratch) < n {
			s.scratch = make([]byte, n)
		}
		b := s.scratch[:n]
		s.scratch = b[:0] // if put panics, it holds nothing
		s.putFPDU(b, d)
		s.scratch, s.scratchAt = b, d.at
	}
	return s.scratch
}

// Acked says that TCP has the peer's acknowledgement for all octets before to, and releases what that completes.
func (s *Sender) Acked(to seq.Num) {
	for s.head != s.tail && s.endOf(s.head).LessEq(to) {
		d := s.descriptor(s.head)
		if len(s.scratch) > 0 && s.scratchAt == d.at {
			s.scratch = s.scratch[:0]
		}
		ref := d.ref
		s.head++
		s.source.ReleaseULPDU(ref)
	}
}
