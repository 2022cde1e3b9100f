package wire

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
)

// reference returns the sum by RFC 1071's definition, byte by byte.
func reference(b []byte) uint16 {
	sum := uint32(0)
	for i, v := range b {
		sum += uint32(v) << (8 * uint(1-i&1))
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

// TestSumWide compares Sum, which uses vectors, and sumScalar with the definition: for every length of up to a few
// blocks and some larger ones, for every alignment, and for the bytes that produce the most carries.
func TestSumWide(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	buf := make([]byte, 4096+64)
	fills := map[string]func(i int) byte{
		"random": func(int) byte {
			return byte(r.Uint32())
		}, "ones": func(int) byte { return 0xff },
		"zero": func(int) byte { return 0 }, "one": func(i int) byte { return byte(i & 1) },
	}
	lengths := []int{383, 1448, 1480, 2049, 4096}
	for n := range 323 {
		lengths = append(lengths, n)
	}
	for name, fill := range fills {
		for i := range buf {
			buf[i] = fill(i)
		}
		for off := range 33 {
			for _, n := range lengths {
				b := buf[off : off+n]
				want := reference(b)
				if got := Fold(Sum(b, 0)); got != want {
					t.Fatalf("%s: %d bytes at %d: %#04x, want %#04x", name, n, off, got, want)
				}
				if got := Fold(sumScalar(b, 0)); got != want {
					t.Fatalf("%s: %d bytes at %d in Go: %#04x, want %#04x", name, n, off, got,
						want)
				}
				if acc := Sum(b, 0); Right(acc) != (want == 0xffff) {
					t.Fatalf("%s: %d bytes at %d: Right says %v", name, n, off, Right(acc))
				}
				if a, b := Fold(Sum(b, ^uint64(0)-3)), Fold(sumScalar(b, ^uint64(0)-3)); a != b {
					t.Fatalf("%s: %d bytes at %d on top of a full sum: %#04x and %#04x", name, n,
						off, a, b)
				}
			}
		}
	}
}

// TestSumEnds sums the bytes at either end of a page between two unreadable pages: Sum must not read beyond its bytes.
func TestSumEnds(t *testing.T) {
	page := syscall.Getpagesize()
	mem, err := syscall.Mmap(-1, 0, 3*page, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(mem)
	for i := range page {
		mem[page+i] = byte(i * i)
	}
	for _, p := range [][]byte{mem[:page], mem[2*page:]} {
		if err := syscall.Mprotect(p, syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 4096 {
		for _, b := range [][]byte{mem[page : page+n], mem[2*page-n : 2*page]} {
			if got, want := Fold(Sum(b, 0)), reference(b); got != want {
				t.Fatalf("%d bytes: %#04x, want %#04x", n, got, want)
			}
		}
	}
}

func BenchmarkSum(b *testing.B) {
	p := make([]byte, 8948)
	for name, sum := range map[string]func([]byte, uint64) uint64{"wide": Sum,
		"scalar": sumScalar} {
		for _, n := range []int{64, 256, 1448, 8948} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					sum(p[:n], 0)
				}
			})
		}
	}
}
