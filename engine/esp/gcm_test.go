package esp

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"xwarp/engine/testkit/havoc"
)

// bothGCMs returns newGCM's and Go's implementation for one key.
func bothGCMs(t testing.TB, key []byte) (ours, std cipher.AEAD) {
	t.Helper()
	ours, err := newGCM(key)
	if err != nil {
		t.Fatal(err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	if std, err = cipher.NewGCM(block); err != nil {
		t.Fatal(err)
	}
	return ours, std
}

const canary = 0xc5

// within returns a slice of exactly n bytes, after off bytes in memory of canaries, and a function that reports whether
// all canaries are intact.
func within(off, n int) (b []byte, intact func() bool) {
	mem := bytes.Repeat([]byte{canary}, off+n+192)
	alone := func(b []byte) bool { return bytes.Count(b, []byte{canary}) == len(b) }
	return mem[off : off+n : off+n], func() bool { return alone(mem[:off]) && alone(mem[off+n:]) }
}

// checkGCM seals and opens a text, in place and into another buffer, refuses forged ones, and compares with Go's. It
// returns the difference.
func checkGCM(ours, std cipher.AEAD, nonce, text, aad []byte, off int) error {
	n := len(text)
	want := std.Seal(nil, nonce, text, aad)
	b, intact := within(off, n+ICVLen)
	apart, intactApart := within(63-off, n+ICVLen)
	copy(b, text)
	if got := ours.Seal(apart[:0], nonce, b[:n], aad); !bytes.Equal(got, want) ||
		&got[0] != &apart[0] || !bytes.Equal(b[:n], text) || !intactApart() {
		return fmt.Errorf("sealed elsewhere as %x, want %x", got, want)
	}
	if got := ours.Seal(b[:0], nonce, b[:n], aad); !bytes.Equal(got, want) ||
		&got[0] != &b[0] || !intact() {
		return fmt.Errorf("sealed in place as %x, want %x", got, want)
	}
	plain, intactPlain := within(63-off, n)
	got, err := ours.Open(plain[:0], nonce, b, aad)
	if err != nil || !bytes.Equal(got, text) || !bytes.Equal(b, want) || !intactPlain() {
		return fmt.Errorf("opened elsewhere as %x, %v, want %x", got, err, text)
	}
	got, err = ours.Open(b[:0], nonce, b, aad)
	if err != nil || !bytes.Equal(got, text) || !bytes.Equal(b[n:], want[n:]) || !intact() {
		return fmt.Errorf("opened in place as %x, %v, want %x", got, err, text)
	}
	copy(b, want)
	b[(n*7+off)%len(b)] ^= 1 << (n % 8)
	if got, err := ours.Open(b[:0], nonce, b, aad); err == nil || got != nil || !intact() {
		return fmt.Errorf("a forgery opened as %x, %v", got, err)
	}
	if n > 0 && bytes.Count(b[:n], []byte{0}) != n {
		return fmt.Errorf("the text of a forgery is left")
	}
	return nil
}

// TestGCMMatchesGoAtEveryLength uses lengths up to those of Ethernet, one of a jumbo frame, and all alignments.
func TestGCMMatchesGoAtEveryLength(t *testing.T) {
	for _, size := range []int{16, 32} {
		ours, std := bothGCMs(t, random(size))
		for n := range 2102 {
			if n == 2101 {
				n = 9000
			}
			for _, aad := range []int{8, 12, n % (maxAAD + 1)} {
				err := checkGCM(ours, std, random(12), random(n), random(aad), n%64)
				if err != nil {
					t.Fatalf("key of %d bytes, text of %d, associated data of %d: %v", size, n,
						aad, err)
				}
			}
		}
	}
}

func TestGCMMatchesGoAtEveryAlignment(t *testing.T) {
	ours, std := bothGCMs(t, random(16))
	for off := range 64 {
		for _, n := range []int{0, 1, 15, 16, 36, 63, 64, 65, 255, 256, 257, 511, 512, 1400,
			1436, 9000} {
			if err := checkGCM(ours, std, random(12), random(n), random(12), off); err != nil {
				t.Fatalf("text of %d bytes at %d: %v", n, off, err)
			}
		}
	}
}

// TestGCMStaysWithinPages: everything read or written ends at the end of readable memory, and starts at its start.
func TestGCMStaysWithinPages(t *testing.T) {
	const page = 4096
	readable := func(n int) []byte {
		mem, err := syscall.Mmap(-1, 0, (n+2)*page, syscall.PROT_READ|syscall.PROT_WRITE,
			syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { syscall.Munmap(mem) })
		for _, p := range [][]byte{mem[:page], mem[(n+1)*page:]} {
			if err := syscall.Mprotect(p, syscall.PROT_NONE); err != nil {
				t.Fatal(err)
			}
		}
		return mem[page : (n+1)*page : (n+1)*page]
	}
	text, other, small := readable(1), readable(1), readable(1)
	ours, std := bothGCMs(t, random(32))
	for n := range 700 {
		for _, atEnd := range []bool{false, true} {
			src, dst, aad := text[:n], other[:n+ICVLen:n+ICVLen], small[:n%(maxAAD+1)]
			if atEnd {
				src, dst, aad = text[page-n:], other[page-n-ICVLen:],
					small[page-n%(maxAAD+1):]
			}
			nonce := random(12)
			copy(src, random(n))
			copy(aad, random(len(aad)))
			want := std.Seal(nil, nonce, src, aad)
			if got := ours.Seal(dst[:0], nonce, src, aad); !bytes.Equal(got, want) {
				t.Fatalf("%d bytes: sealed as %x, want %x", n, got, want)
			}
			clear(src)
			if got, err := ours.Open(src[:0:n], nonce, dst, aad); err != nil ||
				!bytes.Equal(std.Seal(nil, nonce, got, aad), want) {
				t.Fatalf("%d bytes: opened as %x, %v", n, got, err)
			}
		}
	}
}

func TestGCMRefusesEveryFlippedBit(t *testing.T) {
	ours, _ := bothGCMs(t, random(16))
	nonce, aad := random(12), random(12)
	sealed := ours.Seal(nil, nonce, random(300), aad)
	for name, b := range map[string][]byte{"nonce": nonce, "associated data": aad,
		"text and tag": sealed} {
		for i := range 8 * len(b) {
			b[i/8] ^= 1 << (i % 8)
			if _, err := ours.Open(nil, nonce, sealed, aad); err == nil {
				t.Errorf("%s: accepted with bit %d flipped", name, i)
			}
			b[i/8] ^= 1 << (i % 8)
		}
	}
	for n := range sealed {
		if _, err := ours.Open(nil, nonce, sealed[:n], aad); err == nil {
			t.Errorf("accepted when cut to %d bytes", n)
		}
	}
	if _, err := ours.Open(nil, nonce, sealed, aad); err != nil {
		t.Error(err)
	}
}

// TestGCMVectors tests cases 1 to 3 and 13 to 15 of McGrew and Viega, "The Galois/Counter Mode of Operation", B.
func TestGCMVectors(t *testing.T) {
	const key, iv = "feffe9928665731c6d6a8f9467308308", "cafebabefacedbaddecaf888"
	const text = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72" +
		"1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255"
	zeros := func(n int) string { return fmt.Sprintf("%0*d", 2*n, 0) }
	for i, c := range []struct{ key, iv, text, want string }{
		{zeros(16), zeros(12), "", "58e2fccefa7e3061367f1d57a4e7455a"},
		{zeros(16), zeros(12), zeros(16),
			"0388dace60b6a392f328c2b971b2fe78ab6e47d42cec13bdf53a67b21257bddf"},
		{key, iv, text, `42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e
			21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091473f5985
			4d5c2af327cd64a62cf35abd2ba6fab4`},
		{zeros(32), zeros(12), "", "530f8afbc74536b9a963b4f1c4cb738b"},
		{zeros(32), zeros(12), zeros(16),
			"cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"},
		{key + key, iv, text, `522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa
			8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662898015ad
			b094dac5d93471bdec1a502270e3cc6c`},
	} {
		ours, _ := bothGCMs(t, unhex(c.key))
		got := ours.Seal(nil, unhex(c.iv), unhex(c.text), nil)
		if want := unhex(c.want); !bytes.Equal(got, want) {
			t.Errorf("vector %d: %x, want %x", i, got, want)
		}
	}
}

func FuzzGCM(f *testing.F) {
	f.Add([]byte("key"), []byte("nonce"), []byte("text"), []byte("spi, number"), 1)
	f.Add([]byte{1}, []byte{2}, make([]byte, 1436), make([]byte, 8), 40)
	havoc.Fuzz(f, func(t *testing.T, key, nonce, text, aad []byte, off int) {
		fit := func(b []byte, n int) []byte {
			return slices.Concat(b, make([]byte, n))[:n]
		}
		size := 16 + len(key)&16
		ours, std := bothGCMs(t, fit(key, size))
		aad = aad[:min(len(aad), maxAAD)]
		if err := checkGCM(ours, std, fit(nonce, 12), text, aad, off&63); err != nil {
			t.Errorf("text of %d bytes, associated data of %d: %v", len(text), len(aad), err)
		}
	})
}

// BenchmarkGCMAgainstGo runs rounds of both in turn, so that other load affects both. "ratio" is how many times faster
// newGCM's is, the median of all rounds.
func BenchmarkGCMAgainstGo(b *testing.B) {
	const calls = 200
	for _, size := range []int{16, 32} {
		for _, n := range []int{36, 256, 1400, 8948} {
			ours, std := bothGCMs(b, random(size))
			text, nonce, aad := random(n+ICVLen), random(12), random(12)
			seal := func(g cipher.AEAD) { g.Seal(text[:0], nonce, text[:n], aad) }
			open := func(g cipher.AEAD) { g.Open(text[:0], nonce, text, aad) } // a forgery
			for what, do := range map[string]func(cipher.AEAD){"seal": seal, "open": open} {
				b.Run(fmt.Sprintf("%s/%d/%d", what, size*8, n), func(b *testing.B) {
					var took [2][]float64
					var ratios []float64
					for range max(b.N/calls, 1) {
						for i, g := range []cipher.AEAD{ours, std} {
							start := time.Now()
							for range calls {
								do(g)
							}
							took[i] = append(took[i], float64(time.Since(start))/calls)
						}
						last := len(ratios)
						ratios = append(ratios, took[1][last]/took[0][last])
					}
					median := func(v []float64) float64 { slices.Sort(v); return v[len(v)/2] }
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(median(took[0]), "ours-ns")
					b.ReportMetric(median(took[1]), "Go-ns")
					b.ReportMetric(median(ratios), "ratio")
				})
			}
		}
	}
}
