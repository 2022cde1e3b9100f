package esp

// window is the anti-replay window of an SA (RFC 4303, 3.4.3): it records which of the size numbers up to top were
// received. Bits are in blocks that are reused instead of shifted (RFC 6479). The zero value is not usable.
type window struct {
	blocks []uint64 // their number is a power of two, at least one more than size needs
	size   uint64
	top    uint64 // highest authentic number, or 0
	esn    bool
}

func newWindow(size int, esn bool) window {
	n := 2
	for (n-1)*64 < size {
		n *= 2
	}
	return window{blocks: make([]uint64, n), size: uint64(size), esn: esn}
}

// full extends low, the received low half, to the whole sequence number. With ESN that is the only number with this low
// half among the 2^32 numbers from the bottom of the window on; RFC 4303, A2.2 finds the same one by cases. ok is false
// if the number would need more than 64 bits.
func (w *window) full(low uint32) (seq uint64, ok bool) {
	if !w.esn {
		return uint64(low), true
	}
	bottom := uint64(0)
	if w.top >= w.size {
		bottom = w.top - w.size + 1
	}
	seq = bottom + uint64(low-uint32(bottom))
	return seq, seq >= bottom
}

// isNew reports whether to decrypt seq: it was not received before and is not older than the window.
func (w *window) isNew(seq uint64) bool {
	switch {
	case seq == 0: // the first number is 1 (RFC 4303, 3.3.3)
		return false
	case seq > w.top:
		return true
	case w.top-seq >= w.size:
		return false
	}
	return w.blocks[w.index(seq)]>>(seq%64)&1 == 0
}

// mark records the authentic packet seq, for which isNew returned true.
func (w *window) mark(seq uint64) {
	if seq > w.top {
		first, last := w.top/64+1, seq/64
		if n := uint64(len(w.blocks)); last-first+1 > n && last >= first {
			first = last - n + 1
		}
		for b := first; b <= last; b++ {
			w.blocks[w.index(b*64)] = 0
		}
		w.top = seq
	}
	w.blocks[w.index(seq)] |= 1 << (seq % 64)
}

func (w *window) index(seq uint64) int { return int(seq / 64 % uint64(len(w.blocks))) }
