package mpa

import (
	"xwarp/mpa/ulpdu"
	"xwarp/tcp/checksum"
	"xwarp/tcp/seq"
)

// Source is the layer above a Sender: RDMAP.
type Source interface {
	// NextULPDU freezes the next ULPDU of at most max bytes and returns its name and length. max is never below
	// MinMULPDU. Length 0 means that there is nothing to send.
	NextULPDU(max int) (ref ulpdu.Ref, n int)
	// ULPDUWaiting reports whether NextULPDU would return a ULPDU now. TCP sets PSH only at the end of a burst, because
	// receivers act on it at once.
	ULPDUWaiting() bool
	// ReadULPDU writes the first head bytes of the ULPDU ref to dst, which has the ULPDU's length. body is the memory
	// of the other len(dst)-head bytes. It may be longer: the bytes beyond are likely to be sent next. head is even,
	// or it is len(dst) and body is ignored. ReadULPDU is called again for a retransmission.
	ReadULPDU(ref ulpdu.Ref, dst []byte) (head int, body []byte)
	// LendULPDU is ReadULPDU for a transport that reads the memory later. body stays unchanged until ReleaseULPDU, or
	// until the Source reclaims it. A nil body means that the Source cannot promise that; then nothing was written.
	LendULPDU(ref ulpdu.Ref, dst []byte) (head int, body []byte)
	// ReleaseULPDU reports that TCP has acknowledged the last byte of the FPDU. It is called once for each ULPDU, in
	// order.
	ReleaseULPDU(ref ulpdu.Ref)
}

// SenderConfig configures a Sender.
type SenderConfig struct {
	Framing
	// Pack puts several FPDUs into a segment if they fit. Without Pack each segment holds one FPDU.
	Pack bool
}

// Sender makes the FPDUs of one direction of one connection. It keeps descriptors and no payload: the bytes of an FPDU
// are made again from the Source each time TCP transmits them. It is a value that its owner keeps; Init resets it.
type Sender struct {
	cfg    SenderConfig
	source Source
	emss   int
	start  seq.Num // of the first byte of full operation; markers count from it
	next   seq.Num // behind the last frozen FPDU

	ring       []descriptor // power of two; index i is ring[i&(len-1)]
	head, tail uint32       // the oldest descriptor, and the one behind the newest
	lastFilled uint32       // the descriptor that Fill used last

	waiting    ulpdu.Ref // a ULPDU that was frozen and did not fit
	waitingLen int       // 0 for none

	scratch   []byte // the FPDU at scratchAt, for ranges that cut it
	scratchAt seq.Num
}

// descriptor is one frozen FPDU; it ends where the next one begins.
type descriptor struct {
	ref ulpdu.Ref
	at  seq.Num // first byte, a marker in front included
	n   uint32  // bytes of the ULPDU
}

// Init prepares s for a stream whose first byte in full operation has sequence number start. emss is in bytes.
func (s *Sender) Init(cfg SenderConfig, start seq.Num, emss int, src Source) {
	*s = Sender{cfg: cfg, source: src, emss: emss, start: start, next: start, ring: s.ring,
		scratch: s.scratch[:0]}
}

// putFPDU writes the FPDU of d to dst, which has exactly its size. With a CRC it returns the sum of all bytes; see
// FillSum.
func (s *Sender) putFPDU(dst []byte, d *descriptor) (sum uint64) {
	return s.cfg.putFPDU(dst, uint32(d.at-s.start), s.source, d.ref, int(d.n))
}

// SetEMSS sets the most bytes a segment carries from now on. FPDUs already frozen keep their size.
func (s *Sender) SetEMSS(emss int) { s.emss = emss }

// Outstanding returns how many FPDUs are frozen and not acknowledged.
func (s *Sender) Outstanding() int { return int(s.tail - s.head) }

// Next implements tcp.Source. It freezes the next FPDU, or several when packing, and returns their length:
//
//   - n = 0 without more: there is nothing to send, or maxDescriptors FPDUs are outstanding.
//   - n = 0 with more: the next FPDU does not fit into room, and room is less than the EMSS.
//   - 0 < n <= room: more reports that another FPDU is known to wait.
//   - n > room: one FPDU larger than any segment, which the caller cuts (RFC 5044, 4.5). The EMSS is below MinFPDU, or
//     fell after the ULPDU was frozen.
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

// NextRun implements tcp.RunSource. It makes runs only of FPDUs that fill a segment: otherwise n is 0.
func (s *Sender) NextRun(size, most int) (n int, more bool) {
	if s.emss-size >= MarkerLen || s.waitingLen > 0 {
		return 0, true
	}
	for more = true; n < most && more && s.Outstanding() < maxDescriptors; n++ {
		ref, k, ok := s.nextULPDU(size, 0)
		if !ok {
			break
		}
		if s.cfg.Size(uint64(uint32(s.next-s.start)), k) != size {
			s.waiting, s.waitingLen = ref, k
			return n, true
		}
		s.addDescriptor(descriptor{ref, s.next, uint32(k)})
		s.next = s.next.Add(size)
		more = s.source.ULPDUWaiting()
	}
	return n, more
}

// nextULPDU returns the ULPDU that waits, or a new one for a segment of room bytes, of which used are occupied.
func (s *Sender) nextULPDU(room, used int) (ref ulpdu.Ref, n int, ok bool) {
	if s.waitingLen > 0 {
		return s.waiting, s.waitingLen, true
	}
	most := s.cfg.dynamicMULPDU(uint32(s.next-s.start), min(room, s.emss)-used)
	if most < MinMULPDU {
		if used > 0 {
			return ref, 0, false // DDP never gets less (RFC 5044, 4.5): its next ULPDU begins the next segment
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

// Fill writes the bytes of r to dst, which holds at least r.Len() bytes. It is fast if r consists of whole FPDUs. It
// returns false if Next has not frozen all of these bytes, if Acked has released some, or if dst is too short.
func (s *Sender) Fill(r seq.Range, dst []byte) bool {
	_, _, ok := s.FillSum(r, dst)
	return ok
}

// FillSum is Fill that also returns the one's complement sum of the bytes, as a running sum of little-endian 64-bit
// words. summed is false if there is no such sum: without a CRC, or if r cuts an FPDU.
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

// Unfreeze forgets the FPDUs that begin at sequence number from and later, and a ULPDU that waits behind them. Next
// freezes others in their place. The peer must not have received any of them. It returns false, and does nothing, if no
// FPDU begins at from.
func (s *Sender) Unfreeze(from seq.Num) bool {
	i, ok := s.descriptorAt(from)
	if !ok || s.descriptor(i).at != from {
		return false
	}
	s.tail, s.next, s.waitingLen = i, from, 0
	s.scratch = s.scratch[:0]
	return true
}

// descriptorAt returns the index of the descriptor of the FPDU that has the byte with sequence number at.
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
	lo, hi := s.head, s.tail // descriptor(lo).at <= at < descriptor(hi).at
	for hi-lo > 1 {
		if mid := lo + (hi-lo)/2; s.descriptor(mid).at.LessEq(at) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo, true
}

// wholeFPDU returns the FPDU of d in the scratch buffer, and makes it there unless it is there already.
func (s *Sender) wholeFPDU(d *descriptor, end seq.Num) []byte {
	if n := end.Diff(d.at); len(s.scratch) == 0 || s.scratchAt != d.at {
		if cap(s.scratch) < n {
			s.scratch = make([]byte, n)
		}
		b := s.scratch[:n]
		s.scratch = b[:0] // if putFPDU panics, it holds nothing
		s.putFPDU(b, d)
		s.scratch, s.scratchAt = b, d.at
	}
	return s.scratch
}

// Acked reports that TCP's peer has acknowledged all bytes before sequence number to, and releases the FPDUs before it.
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
