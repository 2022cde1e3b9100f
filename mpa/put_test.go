package mpa

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"xwarp/mpa/ulpdu"
	"xwarp/tcp/seq"
)

// bodySource is a Source of ULPDUs in memory that writes the first head bytes of each, and has the others in
// one piece.
type bodySource struct {
	memSource
	head   int
	behind []byte // bytes that follow each body in memory
	asked  int
}

func (b *bodySource) ReadULPDU(ref ulpdu.Ref, dst []byte) (int, []byte) {
	u := b.ulpdus[ref.ID]
	b.asked++
	n := min(b.head, len(u))
	copy(dst, u[:n])
	return n, append(u[n:len(u):len(u)], b.behind...)
}

// TestPutFPDU compares FPDUs with those of the reference, and their sums with those of their bytes. The Source writes
// any part of a ULPDU and has the rest in memory.
func TestPutFPDU(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for try := range 6000 {
		f := Framing{Markers: try%2 == 0, CRC: try%4 < 2}
		n := pick(rng, rng.IntN(40), rng.IntN(1500), 1400+rng.IntN(100), rng.IntN(9000),
			pick(rng, 40000, MaxULPDU))
		u := make([]byte, n)
		for i := range u {
			u[i] = byte(rng.Uint32())
		}
		off := uint32(4 * rng.IntN(300))
		want := reference(f, int(off), u)
		size := len(want)
		got := bytes.Repeat([]byte{0xaa}, size+8)
		src := &bodySource{memSource: memSource{ulpdus: [][]byte{u}},
			behind: make([]byte, rng.IntN(2))}
		src.head = pick(rng, 0, 14, 18, 18, 46, 2*rng.IntN(1+n/2), n)
		s := Sender{cfg: SenderConfig{Framing: f}, source: src}
		sum := s.putFPDU(got[:size:size], &descriptor{at: seq.Num(off), n: uint32(n)})
		if !bytes.Equal(got[:size], want) || src.asked != 1 || f.Size(uint64(off), n) != size {
			t.Fatalf("try %d: %+v, %d bytes at %d, head %d: differs", try, f, n, off, src.head)
		}
		if f.CRC && onesSum(want) != swap(fold(sum)) {
			t.Fatalf("try %d: %+v, %d bytes at %d, head %d: sum %#x of bytes whose sum is %#x",
				try, f, n, off, src.head, swap(fold(sum)), onesSum(want))
		}
	}
}

// fold reduces a running sum to a sum of little-endian 16-bit words.
func fold(sum uint64) uint16 {
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

func swap(v uint16) uint16 { return v<<8 | v>>8 }
