package mpa

import (
	"bytes"
	"testing"
)

// seenAt is a fingerprint that no other offset has.
func seenAt(at int64) fingerprint { return fingerprint{n: 20, whole: uint32(at + 1)} }

// refuse has t suspect n new places from offset at on, and returns how many were to be sent again.
func (t *trust) refuse(at int64, n int) (suspected int) {
	for i := range int64(n) {
		if t.suspect(at+i, seenAt(at+i)) {
			suspected++
		}
	}
	return suspected
}

// TestTrust: refusals that aligned offers do not interrupt, octets that come again the same, and an FPDU that is
// refused too often show a sender that cuts its FPDUs. Many aligned offers make it trusted again, and not one fewer.
func TestTrust(t *testing.T) {
	var x trust
	if x.init(false); x.doubts() || x.suspect(0, seenAt(0)) || x.refused != 0 {
		t.Error("off, and it suspects")
	}
	for _, cleans := range []int{forgetRefusals - 1, forgetRefusals} {
		x.init(true)
		if n := x.refuse(0, maxRefusals-1); n != maxRefusals-1 {
			t.Errorf("%d of %d refused", n, maxRefusals-1)
		}
		for range cleans {
			x.clean()
		}
		if forgotten := x.suspect(900, seenAt(900)); forgotten != (cleans == forgetRefusals) {
			t.Errorf("after %d aligned offers refusals are forgotten: %v", cleans, forgotten)
		}
	}
	x.init(true)
	if n := x.refuse(0, maxRefusals); n != maxRefusals-1 || x.doubts() {
		t.Fatalf("%d of %d refused, doubts %v", n, maxRefusals, x.doubts())
	}
	for i := range unalignedOffers {
		if x.doubts() {
			t.Fatalf("aligned again after %d offers", i)
		}
		x.clean()
	}
	if n := x.refuse(100, maxRefusals); n != maxRefusals-1 {
		t.Errorf("%d of %d refused of a sender that is aligned again", n, maxRefusals)
	}
	x.init(true)
	for i := range int64(maxRepeats + 1) {
		if got := x.suspect(0, seenAt(i)); got != (i < maxRepeats) {
			t.Errorf("FPDU 0, always another: suspected %v the time %d", got, i+1)
		}
	}
	x.init(true)
	if !x.suspect(0, seenAt(5)) || x.suspect(0, seenAt(5)) || x.doubts() {
		t.Error("the same octets are suspected twice")
	}
	x.init(true)
	if x.fail(0); !x.suspect(0, fingerprint{n: 1}) {
		t.Error("an FPDU that failed its CRC counts as seen")
	}
}

// TestFailures: the refusals of eight FPDUs are remembered; those of the oldest give way. At the left edge the last
// one counts alone.
func TestFailures(t *testing.T) {
	var x trust
	x.init(true)
	for _, c := range []struct {
		at   int64
		want int
	}{{0, 1}, {0, 2}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}, {7, 1}, {0, 3}, {7, 2},
		{8, 1}, {1, 2}, {0, 1}, {8, 2}, {2, 2}, {1, 1}} {
		if got := x.fail(c.at); got != c.want {
			t.Errorf("FPDU %d: failed %d times, want %d", c.at, got, c.want)
		}
	}
	for i, c := range []struct {
		at   int64
		want int
	}{{0, 1}, {0, 2}, {0, 3}, {4, 1}, {4, 2}, {0, 1}} {
		if got := x.failInOrder(c.at); got != c.want {
			t.Errorf("%d: FPDU %d in order: failed %d times, want %d", i, c.at, got, c.want)
		}
	}
}

// TestFingerprints compares octets that are cut in two ways: what both have is told apart, by a power of two of octets;
// fewer than 16 tell nothing.
func TestFingerprints(t *testing.T) {
	b := make([]byte, 140000)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	of := func(b []byte) fingerprint {
		g := newRig(t, Framing{CRC: true})
		cut := min(13, len(b))
		g.r.seg.set([][]byte{b[:cut], b[cut:]}, 100, len(b))
		return g.r.fingerprint(100)
	}
	for _, c := range []struct {
		n, m  int
		other int // the octet of the second that differs, -1 for none
		want  bool
	}{
		{15, 15, -1, true}, {15, 15, 14, false}, {1, 1, -1, true}, {15, 16, -1, false},
		{16, 17, -1, true}, {16, 17, 15, false}, {16, 17, 16, true}, {17, 31, 15, false},
		{30, 31, 16, true}, {31, 32, 15, false}, {32, 33, 16, false}, {32, 40, 31, false},
		{32, 40, 32, true}, {63, 64, 31, false}, {63, 64, 32, true}, {64, 65, 63, false},
		{1000, 1400, 511, false}, {1000, 1400, 512, true}, {1000, 1000, 999, false},
		{65535, 65536, 32768, true}, {65536, 65537, 65535, false},
		{131072, 140000, 65535, false}, {131072, 140000, 65536, true},
		{140000, 140000, 139999, false},
	} {
		x := bytes.Clone(b[:c.m])
		if c.other >= 0 {
			x[c.other] ^= 1
		}
		f, g := of(b[:c.n]), of(x)
		if f.repeats(&g) != c.want || g.repeats(&f) != c.want {
			t.Errorf("%d and %d octets, %d differs: the same %v and %v, want %v", c.n, c.m, c.other,
				f.repeats(&g), g.repeats(&f), c.want)
		}
	}
}
