package checksum

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"xwarp/engine/testkit/havoc"
)

// TestCopySum compares CopySum with sumPlain and the source, for every length up to that of a jumbo frame and some
// larger than three lanes, at random alignments of src and dst. It checks that the bytes around the destination stay
// the same.
func TestCopySum(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	src, dst := make([]byte, 1<<16), make([]byte, 1<<16)
	for i := range src {
		src[i] = byte(r.Uint32())
	}
	for i := range 1 << 15 {
		src[i] |= 0xf0 // many carries
	}
	check := func(n int, crc uint32, sum uint64) {
		t.Helper()
		from, to := r.IntN(len(src)-n-256), 64+r.IntN(64)
		s, d := src[from:from+n], dst[to:to+n]
		around := dst[to-64 : to+n+64]
		for i := range around {
			around[i] = 0xa5
		}
		wantCRC, wantSum := sumPlain(s, crc, sum)
		gotCRC, gotSum := CopySum(d, s, crc, sum, n)
		if gotCRC != wantCRC || folded(gotSum) != folded(wantSum) {
			t.Fatalf("%d bytes at %d: CRC %#08x, want %#08x; sum %#04x, want %#04x", n, from,
				gotCRC, wantCRC, folded(gotSum), folded(wantSum))
		}
		if !bytes.Equal(d, s) {
			t.Fatalf("%d bytes from %d to %d: the copy differs", n, from, to)
		}
		beside := bytes.Repeat([]byte{0xa5}, 64)
		if !bytes.Equal(dst[to-64:to], beside) || !bytes.Equal(dst[to+n:to+n+64], beside) {
			t.Fatalf("%d bytes to %d: bytes beside the destination changed", n, to)
		}
	}
	for n := range 9101 {
		check(n, r.Uint32(), r.Uint64())
	}
	for _, n := range []int{12287, 12288, 12289, 12384, 24576, 24577, 40000} {
		check(n, 0, ^uint64(0)-1)
	}
}

// TestCopyMarked compares CopyMarked with blocks made one by one.
func TestCopyMarked(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	src := make([]byte, 40000)
	for i := range src {
		src[i] = byte(r.Uint32()) | 0x81
	}
	blocks := 0
	for range 3000 {
		at, n := 4+r.IntN(100), r.IntN(30000)
		room, mark, crc, sum := r.IntN(33000), uint32(r.IntN(1<<15)), r.Uint32(), r.Uint64()
		got := bytes.Repeat([]byte{0xa5}, room)
		k, gotCRC, gotSum := CopyMarked(got, src[:at+n], at, mark, crc, sum, 1000)
		if k%blockLen != 0 || k > room || k/blockLen*(blockLen-markLen) > n {
			t.Fatalf("%d bytes, room for %d: %d were made", n, room, k)
		}
		blocks += k / blockLen
		var want []byte
		for i := range k / blockLen {
			want = binary.BigEndian.AppendUint32(want, mark+uint32(i)*blockLen)
			want = append(want, src[at+i*(blockLen-markLen):][:blockLen-markLen]...)
		}
		if !bytes.Equal(got[:k], want) ||
			!bytes.Equal(got[k:], bytes.Repeat([]byte{0xa5}, room-k)) {
			t.Fatalf("%d bytes, %d made: they differ", n, k)
		}
		if wantCRC, wantSum := sumPlain(want, crc, sum); gotCRC != wantCRC ||
			folded(gotSum) != folded(wantSum) {
			t.Fatalf("%d bytes: CRC %#08x, want %#08x; sum %#04x, want %#04x", k, gotCRC, wantCRC,
				folded(gotSum), folded(wantSum))
		}
	}
	if fast && blocks == 0 {
		t.Error("no blocks were made: the test proves nothing")
	}
}

// TestPrefetch prefetches, sums and copies slices of many lengths and alignments at the end of readable memory. CopySum
// prefetches beyond it.
func TestPrefetch(t *testing.T) {
	page := syscall.Getpagesize()
	mem, err := syscall.Mmap(-1, 0, 2*page, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(mem)
	if err := syscall.Mprotect(mem[page:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	dst := make([]byte, page)
	for n := range 4096 {
		b := mem[page-n : page]
		for i := range b {
			b[i] = byte(n + i)
		}
		Prefetch(b)
		want, _ := Sum(b, 0, 0)
		if crc, _ := CopySum(dst, b, 0, 0, page); crc != CRC(0, b) || crc != want ||
			!bytes.Equal(dst[:n], b) {
			t.Fatalf("%d bytes in front of memory that must not be read: wrong", n)
		}
	}
	Prefetch(nil)
}

// FuzzCopySum compares CopySum with sumPlain and the source.
func FuzzCopySum(f *testing.F) {
	f.Add([]byte("iWARP"), uint32(1), uint64(2), 64)
	havoc.Fuzz(f, func(t *testing.T, b []byte, crc uint32, sum uint64, ahead int) {
		dst := make([]byte, len(b))
		c1, s1 := CopySum(dst, b, crc, sum, ahead)
		c2, s2 := sumPlain(b, crc, sum)
		if c1 != c2 || folded(s1) != folded(s2) || !bytes.Equal(dst, b) {
			t.Fatalf("%d bytes: CRC %#08x, want %#08x; sum %#04x, want %#04x", len(b), c1, c2,
				folded(s1), folded(s2))
		}
	})
}

// BenchmarkCopy copies from a source larger than most caches to a destination as large as a transmit ring, as an engine
// does.
func BenchmarkCopy(b *testing.B) {
	src, dst := make([]byte, 64<<20), make([]byte, 2<<20)
	for i := range src {
		src[i] = byte(i)
	}
	for _, n := range []int{1428, 8928} {
		for name, f := range map[string]func(d, s []byte){
			"parts": func(d, s []byte) { copy(d, s); Sum(d, 0, 0) },
			"one":   func(d, s []byte) { CopySum(d, s, 0, 0, n) },
		} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				from, to := 0, 0
				for b.Loop() {
					f(dst[to+86:to+86+n], src[from:from+n])
					if from += n; from+2*n > len(src) {
						from = 0
					}
					if to += (n + 86 + 4095) &^ 4095; to+n+86 > len(dst) {
						to = 0
					}
				}
			})
		}
	}
}
