package mpa

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"xwarp/mpa/ulp"
	"xwarp/tcp/seq"
)

// directSource is a Source of ULPDUs in memory that is also Direct, with headers of h octets.
type directSource struct {
	memSource
	h      int
	behind []byte // octets behind the bodies
	asked  int
}

func (d *directSource) HeadULPDU(ref ulp.Ref, n int, head []byte) (int, []byte, bool) {
	u := d.ulpdus[ref.ID]
	if len(u) != n || len(head) < n {
		panic("HeadULPDU has the wrong length")
	}
	d.asked++
	if n < d.h {
		copy(head, "no meaning")
		return 0, nil, false
	}
	copy(head, u[:d.h])
	return d.h, append(u[d.h:n:n], d.behind...), true
}

// TestDirect compares the FPDUs of a Source that is Direct, and their sums, with those of one that is not, which other tests
// compare with RFC 5044.
func TestDirect(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for try := range 6000 {
		f := Framing{Markers: try%2 == 0, CRC: try%4 < 2}
		n := pick(rng, rng.IntN(40), rng.IntN(1500), 1400+rng.IntN(100), rng.IntN(9000), pick(rng, 40000, MaxULPDU))
		u := make([]byte, n)
		for i := range u {
			u[i] = byte(rng.Uint32())
		}
		off := uint32(4 * rng.IntN(300))
		size := f.Size(uint64(off), n)
		want, got := make([]byte, size), bytes.Repeat([]byte{0xaa}, size+8)
		sum := f.put(want, off, &memSource{ulpdus: [][]byte{u}}, ulp.Ref{}, n)

		src := &directSource{memSource: memSource{ulpdus: [][]byte{u}}, h: pick(rng, 0, 14, 18, 18, 46, 13), behind: make([]byte, rng.IntN(2))}
		s := Sender{cfg: SenderConfig{Framing: f}, src: src, direct: src}
		gotSum := s.put(got[:size:size], &descriptor{at: seq.Num(off), n: uint32(n)})
		if !bytes.Equal(got[:size], want) || src.asked != 1 {
			t.Fatalf("try %d: %+v, %d octets at %d, header %d: differs", try, f, n, off, src.h)
		}
		if f.CRC && fold(gotSum) != fold(sum) {
			t.Fatalf("try %d: %+v, %d octets at %d, header %d: sum %#x, want %#x", try, f, n, off, src.h, fold(gotSum), fold(sum))
		}
		if f.CRC && onesSum(want) != swap(fold(sum)) {
			t.Fatalf("try %d: sum %#x of octets whose sum is %#x", try, swap(fold(sum)), onesSum(want))
		}
	}
}

// fold makes a running sum one of 16-bit words, little-endian.
func fold(sum uint64) uint16 {
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

func swap(v uint16) uint16 { return v<<8 | v>>8 }
