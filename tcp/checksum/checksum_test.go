package checksum

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"xwarp/engine/testkit/havoc"
)

// folded reduces a running sum to RFC 1071's 16 bits. The result is that of little-endian words, in host order.
func folded(sum uint64) uint16 {
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// reference returns the sum by RFC 1071's definition, byte by byte.
func reference(b []byte) uint16 {
	sum := uint64(0)
	for i, v := range b {
		sum += uint64(v) << (8 * (i & 1))
	}
	return folded(sum)
}

// lengths returns lengths around the borders of words and lanes, those of common segments, and random ones.
func lengths(r *rand.Rand) (n []int) {
	for i := range 300 {
		n = append(n, i)
	}
	n = append(n, 1023, 1428, 1434, 1448, 4096, 8934, 9000, 12287, 12288, 12289, 12384, 30000)
	for range 200 {
		n = append(n, r.IntN(20000))
	}
	return n
}

// TestSum compares Sum and CRC with the standard library and with the definition of the Internet checksum: for the
// lengths of lengths, at random even offsets, as an extension of other bytes, and with the bytes that produce the most
// carries.
func TestSum(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	whole := make([]byte, 1<<15)
	fills := map[string]func() byte{
		"random": func() byte {
			return byte(r.Uint32())
		}, "ones": func() byte { return 0xff }, "zero": func() byte { return 0 },
	}
	for name, fill := range fills {
		for i := range whole {
			whole[i] = fill()
		}
		for _, n := range lengths(r) {
			off := r.IntN(64)
			first, b := whole[:off&^1], whole[off&^1:off&^1+n]
			crc, sum := sumPlain(first, 0, 0)
			want := crc32.Update(crc32.Checksum(first, castagnoli), castagnoli, b)
			gotCRC, gotSum := Sum(b, crc, sum)
			plainCRC, plainSum := sumPlain(b, crc, sum)
			if gotCRC != want || plainCRC != want || CRC(crc, b) != want {
				t.Fatalf(
					"%s: %d bytes at %d: CRC %#08x by Sum, %#08x in Go, %#08x by CRC, want %#08x",
					name, n, off, gotCRC, plainCRC, CRC(crc, b), want)
			}
			if ref := reference(whole[:len(first)+n]); folded(gotSum) != ref ||
				folded(plainSum) != ref {
				t.Fatalf("%s: %d bytes at %d: sum %#04x, %#04x in Go, want %#04x", name, n, off,
					folded(gotSum), folded(plainSum), ref)
			}
			_, full := Sum(b, 0, ^uint64(0)-1)
			if _, plain := sumPlain(b, 0, ^uint64(0)-1); folded(full) != folded(plain) {
				t.Fatalf("%s: %d bytes on top of a full sum: %#04x and %#04x in Go", name, n,
					folded(full), folded(plain))
			}
		}
	}
}

// FuzzSum compares the implementation for this processor with that in Go.
func FuzzSum(f *testing.F) {
	f.Add([]byte("iWARP"), uint32(1), uint64(2))
	havoc.Fuzz(f, func(t *testing.T, b []byte, crc uint32, sum uint64) {
		c1, s1 := Sum(b, crc, sum)
		c2, s2 := sumPlain(b, crc, sum)
		if c1 != c2 || c1 != CRC(crc, b) || folded(s1) != folded(s2) {
			t.Fatalf("%d bytes: CRC %#08x, %#08x, %#08x, sum %#04x, %#04x", len(b), c1, c2,
				CRC(crc, b), folded(s1), folded(s2))
		}
	})
}

// BenchmarkPass measures one call for the payload of a small message, of a segment and of a jumbo frame. The bytes are
// in the cache.
func BenchmarkPass(b *testing.B) {
	src, dst := make([]byte, 8948), make([]byte, 8948)
	for name, pass := range map[string]func(d, s []byte){
		"sum":     func(_, s []byte) { Sum(s, 0, 0) },
		"crc":     func(_, s []byte) { CRC(0, s) },
		"library": func(_, s []byte) { crc32.Update(0, castagnoli, s) },
		"copy":    func(d, s []byte) { CopySum(d, s, 0, 0, len(s)) },
		"apart":   func(d, s []byte) { copy(d, s); Sum(d, 0, 0) },
	} {
		for _, n := range []int{64, 1448, 8948} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					pass(dst[:n], src[:n])
				}
			})
		}
	}
}
