package mpa

import "math/bits"

// trust decides which octets a receiver asks for a second time before it keeps them.
//
// A wrong length in an FPDU that passed the TCP checksum makes the FPDU look longer than its segment. To keep
// it as the head of an FPDU would acknowledge the wrong octets, and the stream could not be healed. An
// aligned sender never sends heads of FPDUs, so as long as a peer looks aligned, octets that do not end with
// a right FPDU are refused until they come again the same, however many of them come in one segment then. A
// sender that cuts its FPDUs pays for that with one retransmission, and what it cuts is kept at once for a
// long time then.
type trust struct {
	on      bool
	aligned int // offers of whole FPDUs since the last proof that the sender cuts FPDUs
	refused int // offers refused since some aligned ones
	since   int // aligned offers since the last refused one

	failed [8]failure // FPDUs that were refused lately
	oldest int

	inOrderAt    int64 // the FPDU at the left edge that was refused last
	inOrderFails int
}

// failure counts how often the FPDU at an offset was refused.
type failure struct {
	at   int64
	n    int
	seen fingerprint // what was there the last time
}

// fingerprint stands for n octets, and for their first 16, 32, 64, … octets.
type fingerprint struct {
	n      int64
	whole  uint32
	halves [13]uint32 // CRCs of the first 16<<i octets
}

// repeats reports whether the octets of f and g are the same as far as both tell.
func (f *fingerprint) repeats(g *fingerprint) bool {
	if f.n == g.n {
		return f.whole == g.whole
	}
	common := min(bits.Len64(uint64(min(f.n, g.n)/16)), len(f.halves))
	return common > 0 && f.halves[common-1] == g.halves[common-1]
}

const (
	unalignedOffers = 4096 // aligned offers until an unaligned sender is expected to be aligned again
	forgetRefusals  = 8    // aligned offers after which earlier refusals do not count
	maxRefusals     = 8    // refusals that show an unaligned sender
)

func (t *trust) init(on bool) {
	*t = trust{on: on, inOrderAt: -1}
	for i := range t.failed {
		t.failed[i].at = -1
	}
}

// clean notes an offer of whole FPDUs.
func (t *trust) clean() {
	t.aligned++
	if t.since++; t.since >= forgetRefusals {
		t.refused = 0
	}
}

// doubts reports whether incomplete FPDUs are suspicious now.
func (t *trust) doubts() bool { return t.on && t.aligned >= 0 }

// suspect reports whether the octets at offset at, which do not make a right FPDU, should be sent again.
// seen stands for them: what a wire has changed does not come again the same.
func (t *trust) suspect(at int64, seen fingerprint) bool {
	if !t.doubts() {
		return false
	}
	t.since = 0
	t.refused++
	f := t.failure(at)
	same := f.seen.repeats(&seen)
	f.n++
	f.seen = seen
	if t.refused >= maxRefusals || same || f.n > maxRepeats {
		t.aligned, t.refused = -unalignedOffers, 0
		return false
	}
	return true
}

// fail counts a refusal of the FPDU at offset at, and returns how many there were.
func (t *trust) fail(at int64) int {
	f := t.failure(at)
	f.n++
	return f.n
}

// failure returns the entry of the FPDU at offset at, which takes the place of the oldest when it is new.
func (t *trust) failure(at int64) *failure {
	for i := range t.failed {
		if t.failed[i].at == at {
			return &t.failed[i]
		}
	}
	f := &t.failed[t.oldest]
	t.oldest = (t.oldest + 1) % len(t.failed)
	*f = failure{at: at}
	return f
}

// failInOrder counts a refusal of the FPDU at offset at, the first that is not complete in order.
func (t *trust) failInOrder(at int64) int {
	if t.inOrderAt != at {
		t.inOrderAt, t.inOrderFails = at, 0
	}
	t.inOrderFails++
	return t.inOrderFails
}
