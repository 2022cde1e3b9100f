package mpa

import "math/bits"

// cutDetector decides which bytes a receiver refuses, so that TCP sends them a second time, before it keeps them.
//
// A wrong length in an FPDU that passed the TCP checksum makes the FPDU look longer than its segment. Keeping it as the
// head of an FPDU would acknowledge wrong bytes, and TCP could not repair the stream. An aligned sender never sends the
// head of an FPDU alone. So, while a peer looks aligned, bytes that do not end with a correct FPDU are refused until
// the same bytes arrive again, in segments of any size. A sender that cuts its FPDUs pays one retransmission; after it,
// cut FPDUs are kept at once for a long time.
//
// It also counts how often an FPDU was wrong, by its CRC or its length, so that the receiver ends the stream when
// TCP does not repair the FPDU.
type cutDetector struct {
	enabled      bool
	aligned      int // aligned offers; negative: offers to come until the sender counts as aligned again
	refusals     int // refused offers since the last forgetRefusals aligned ones
	sinceRefusal int // aligned offers since the last refusal

	refused [8]refusedFPDU // FPDUs refused lately
	oldest  int            // index of the entry to replace next

	wrongInOrderAt int64 // the wrong FPDU at the left edge
	wrongInOrder   int   // how often it was wrong
}

// refusedFPDU counts how often the FPDU at an offset was refused, as wrong or as incomplete.
type refusedFPDU struct {
	at   int64
	n    int
	seen fingerprint // the bytes of the last time
}

// fingerprint identifies n bytes, and their first 16, 32, 64, … bytes.
type fingerprint struct {
	n      int64
	whole  uint32
	halves [13]uint32 // CRCs of the first 16<<i bytes
}

// repeats reports whether the bytes of f and g are the same, as far as both fingerprints cover them.
func (f *fingerprint) repeats(g *fingerprint) bool {
	if f.n == g.n {
		return f.whole == g.whole
	}
	common := min(bits.Len64(uint64(min(f.n, g.n)/16)), len(f.halves))
	return common > 0 && f.halves[common-1] == g.halves[common-1]
}

const (
	unalignedOffers = 4096 // aligned offers until a sender that cut FPDUs counts as aligned again
	forgetRefusals  = 8    // aligned offers after which earlier refusals do not count
	maxRefusals     = 8    // refusals that prove that the sender cuts FPDUs
)

func (d *cutDetector) init(enabled bool) {
	*d = cutDetector{enabled: enabled, wrongInOrderAt: -1}
	for i := range d.refused {
		d.refused[i].at = -1
	}
}

// sawAligned records an offer of whole FPDUs.
func (d *cutDetector) sawAligned() {
	d.aligned++
	if d.sinceRefusal++; d.sinceRefusal >= forgetRefusals {
		d.refusals = 0
	}
}

// expectsWholeFPDUs reports whether an incomplete FPDU is suspicious now.
func (d *cutDetector) expectsWholeFPDUs() bool { return d.enabled && d.aligned >= 0 }

// refusePartial counts the bytes at offset at, which are not a complete FPDU, and reports whether TCP should send them
// again. seen identifies the bytes, because bytes that were changed on the way do not arrive the same twice.
func (d *cutDetector) refusePartial(at int64, seen fingerprint) bool {
	if !d.expectsWholeFPDUs() {
		return false
	}
	d.sinceRefusal = 0
	d.refusals++
	w := d.entry(at)
	same := w.seen.repeats(&seen)
	w.n++
	w.seen = seen
	if d.refusals >= maxRefusals || same || w.n > maxRepeats {
		d.aligned, d.refusals = -unalignedOffers, 0
		return false
	}
	return true
}

// refuseWrong counts the wrong FPDU at offset at, and reports whether TCP should send it again: the first maxRepeats
// times. It needs no aligned sender, so enabled and aligned have no effect.
func (d *cutDetector) refuseWrong(at int64, inOrder bool) bool {
	if inOrder {
		return d.countWrongInOrder(at) <= maxRepeats
	}
	return d.countWrong(at) <= maxRepeats
}

// countWrong counts the FPDU at offset at as wrong and returns how often it was.
func (d *cutDetector) countWrong(at int64) int {
	w := d.entry(at)
	w.n++
	return w.n
}

// countWrongInOrder is countWrong for the FPDU at the left edge.
func (d *cutDetector) countWrongInOrder(at int64) int {
	if d.wrongInOrderAt != at {
		d.wrongInOrderAt, d.wrongInOrder = at, 0
	}
	d.wrongInOrder++
	return d.wrongInOrder
}

// entry returns the entry of the FPDU at offset at. A new one replaces the oldest.
func (d *cutDetector) entry(at int64) *refusedFPDU {
	for i := range d.refused {
		if d.refused[i].at == at {
			return &d.refused[i]
		}
	}
	w := &d.refused[d.oldest]
	d.oldest = (d.oldest + 1) % len(d.refused)
	*w = refusedFPDU{at: at}
	return w
}
