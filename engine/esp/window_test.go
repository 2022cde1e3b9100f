package esp

import (
	"math/rand/v2"
	"testing"
)

// seqHigh is the pseudocode of RFC 4303, A2.2: it returns the high half of a sequence number from its low half, the
// window's size and its top.
func seqHigh(low uint32, size uint32, top uint64) uint32 {
	tl, th := uint32(top), uint32(top>>32)
	bottom := tl - size + 1
	if tl >= size-1 { // case A: the window lies within one subspace
		if low >= bottom {
			return th
		}
		return th + 1
	}
	if low >= bottom { // case B: it spans two
		return th - 1
	}
	return th
}

func TestWindowInfersTheHighHalfAsTheRFC(t *testing.T) {
	for _, size := range []int{32, 64, 100, 1024, MaxWindow} {
		for _, top := range []uint64{0, 1, 31, 99, 1<<32 - 1, 1 << 32, 1<<32 + 31, 7<<32 - 50,
			1<<64 - 1, 1<<64 - 1<<32} {
			w := newWindow(size, true)
			w.top = top
			for range 2000 {
				low := uint32(top) + uint32(rand.IntN(4*size)-2*size)
				if rand.IntN(4) == 0 {
					low = rand.Uint32()
				}
				seq, ok := w.full(low)
				high := seqHigh(low, uint32(size), top)
				inFirst := top < uint64(size) && high == 1<<32-1 // there is no subspace before the first
				wrapped := high == 0 && top>>32 == 1<<32-1
				switch {
				case inFirst:
					if !ok || seq != uint64(low) {
						t.Fatalf("size %d top %#x low %#x: %#x %v", size, top, low, seq, ok)
					}
				case ok == wrapped || ok && seq != uint64(high)<<32|uint64(low):
					t.Fatalf("size %d top %#x low %#x: %#x %v, the RFC infers %#x", size, top, low,
						seq, ok, high)
				}
			}
		}
	}
}

// windowModel is the window as a set of sequence numbers.
type windowModel struct {
	received map[uint64]bool
	top      uint64
	size     uint64
}

func (m *windowModel) accept(seq uint64) bool {
	if seq == 0 || m.received[seq] || seq <= m.top && m.top-seq >= m.size {
		return false
	}
	m.received[seq] = true
	m.top = max(m.top, seq)
	return true
}

// TestWindowAgainstModel sends sequence numbers in any order, with gaps, repetitions and old ones, around the edges of
// the low half. With ESN, the window takes a number that is older than the window for one of the next subspace. The ICV
// of such a packet would be wrong.
func TestWindowAgainstModel(t *testing.T) {
	for _, size := range []int{32, 33, 64, 127, 128, 1024} {
		for _, start := range []uint64{0, 1<<32 - 3000, 7<<32 - 1500, 1 << 40, 1<<64 - 50000} {
			for _, esn := range []bool{true, false} {
				if !esn && start > 1<<32 {
					continue
				}
				checkWindow(t, size, start, esn)
			}
		}
	}
}

func checkWindow(t *testing.T, size int, start uint64, esn bool) {
	w := newWindow(size, esn)
	w.top = start
	m := windowModel{map[uint64]bool{}, start, uint64(size)}
	for b := range uint64(2 * size) { // the start and the numbers below it count as received
		m.received[start-b] = true
		if b < w.size && b <= start {
			w.blocks[w.index(start-b)] |= 1 << ((start - b) % 64)
		}
	}
	last := uint64(1<<64 - 1)
	if !esn {
		last = 1<<32 - 1
	}
	for range 20000 {
		seq := m.top
		switch rand.IntN(8) {
		case 0:
			seq += min(uint64(rand.IntN(4*size)), last-m.top)
		case 1:
			seq += min(1, last-m.top)
		default:
			seq -= min(uint64(rand.IntN(2*size)), m.top)
		}
		full, ok := w.full(uint32(seq))
		if !ok || full != seq {
			if seq+m.size <= m.top && full != seq { // older than the window, taken for a later number
				continue
			}
			t.Fatalf("size %d top %#x: %#x is inferred as %#x", size, m.top, seq, full)
		}
		if got, want := w.isNew(seq), m.accept(seq); got != want {
			t.Fatalf("size %d top %#x: isNew(%#x) = %v", size, w.top, seq, got)
		} else if got {
			w.mark(seq)
		}
		if w.top != m.top {
			t.Fatalf("size %d: top %#x, want %#x", size, w.top, m.top)
		}
	}
}

func TestWindowForgetsAfterALeap(t *testing.T) {
	for _, leap := range []uint64{64, 127, 128, 129, 192, 1 << 20, 1 << 40} {
		w := newWindow(64, true)
		for seq := uint64(1); seq <= 200; seq++ {
			w.mark(seq)
		}
		top := 200 + leap
		w.mark(top)
		for seq := top - 63; seq < top; seq++ {
			if w.isNew(seq) != (seq > 200) {
				t.Errorf("leap %d: isNew(top-%d) = %v", leap, top-seq, w.isNew(seq))
			}
		}
	}
}
