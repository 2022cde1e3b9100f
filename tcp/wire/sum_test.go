package wire

import (
	"math/rand/v2"
	"testing"
)

// reference is RFC 1071's definition, octet by octet.
func reference(b []byte) uint16 {
	sum := uint32(0)
	for i, v := range b {
		sum += uint32(v) << (8 * uint(1-i&1))
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

// TestSumWide compares the sum by vectors with the definition and with the plain Go loop, for every length around its
// blocks, every alignment, and the octets that make most carries.
func TestSumWide(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	buf := make([]byte, 4096+64)
	fills := map[string]func(i int) byte{
		"random": func(int) byte {
			return byte(r.Uint32())
		}, "ones": func(int) byte { return 0xff },
		"zero": func(int) byte { return 0 }, "one": func(i int) byte { return byte(i & 1) },
	}
	for name, fill := range fills {
		for i := range buf {
			buf[i] = fill(i)
		}
		for off := range 33 {
			for _, n := range []int{0, 1, 7, 20, 31, 32, 33, 63, 64, 127, 128, 129, 191, 255, 256,
				257, 383, 1448, 1480, 2049, 4096} {
				b := buf[off : off+n]
				want := reference(b)
				if got := Fold(Sum(b, 0)); got != want {
					t.Fatalf("%s: %d octets at %d: %#04x, want %#04x", name, n, off, got, want)
				}
				if got := Fold(sumScalar(b, 0)); got != want {
					t.Fatalf("%s: %d octets at %d in Go: %#04x, want %#04x", name, n, off, got,
						want)
				}
				if acc := Sum(b, 0); Right(acc) != (want == 0xffff) {
					t.Fatalf("%s: %d octets at %d: Right says %v", name, n, off, Right(acc))
				}
				if a, b := Fold(Sum(b, ^uint64(0)-3)), Fold(sumScalar(b, ^uint64(0)-3)); a != b {
					t.Fatalf("%s: %d octets at %d on top of a full sum: %#04x and %#04x", name, n,
						off, a, b)
				}
			}
		}
	}
}

func BenchmarkSumScalar(b *testing.B) {
	p := make([]byte, 8960)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		sumScalar(p, 0)
	}
}
