package mpa

import (
	"bytes"
	"testing"
)

// seenAt is a fingerprint that no other offset has.
func seenAt(at int64) fingerprint { return fingerprint{n: 20, whole: uint32(at + 1)} }

// offerNew gives d partial FPDUs at n new places from offset at on, and returns how many d refused.
func (d *cutDetector) offerNew(at int64, n int) (refused int) {
	for i := range int64(n) {
		if d.refusePartial(at+i, seenAt(at+i)) {
			refused++
		}
	}
	return refused
}

// TestCutDetectorLearnsFromRefusals: a sender that cuts its FPDUs shows by refusals without aligned offers in between,
// by bytes that arrive twice the same, or by an FPDU that is refused too often. After unalignedOffers aligned offers,
// and not one fewer, whole FPDUs are expected again.
func TestCutDetectorLearnsFromRefusals(t *testing.T) {
	var d cutDetector
	d.init(false)
	if d.expectsWholeFPDUs() || d.refusePartial(0, seenAt(0)) || d.refusals != 0 {
		t.Error("disabled, and it refuses")
	}
	for _, aligned := range []int{forgetRefusals - 1, forgetRefusals} {
		d.init(true)
		if n := d.offerNew(0, maxRefusals-1); n != maxRefusals-1 {
			t.Errorf("%d of %d refused", n, maxRefusals-1)
		}
		for range aligned {
			d.sawAligned()
		}
		forgotten := d.refusePartial(900, seenAt(900))
		if forgotten != (aligned == forgetRefusals) {
			t.Errorf("after %d aligned offers refusals are forgotten: %v", aligned, forgotten)
		}
	}
	d.init(true)
	if n := d.offerNew(0, maxRefusals); n != maxRefusals-1 || d.expectsWholeFPDUs() {
		t.Fatalf("%d of %d refused, whole FPDUs expected: %v", n, maxRefusals,
			d.expectsWholeFPDUs())
	}
	for i := range unalignedOffers {
		if d.expectsWholeFPDUs() {
			t.Fatalf("whole FPDUs are expected again after %d offers", i)
		}
		d.sawAligned()
	}
	if n := d.offerNew(100, maxRefusals); n != maxRefusals-1 {
		t.Errorf("%d of %d refused of a sender that is aligned again", n, maxRefusals)
	}
	d.init(true)
	for i := range int64(maxRepeats + 1) {
		if got := d.refusePartial(0, seenAt(i)); got != (i < maxRepeats) {
			t.Errorf("FPDU 0, other bytes each time: refused %v the time %d", got, i+1)
		}
	}
	d.init(true)
	if !d.refusePartial(0, seenAt(5)) || d.refusePartial(0, seenAt(5)) ||
		d.expectsWholeFPDUs() {
		t.Error("the same bytes are refused twice")
	}
	d.init(true)
	if d.countWrong(0); !d.refusePartial(0, fingerprint{n: 1}) {
		t.Error("an FPDU that failed its CRC counts as seen")
	}
}

// TestCutDetectorRemembersEightFPDUs: a ninth wrong FPDU replaces the oldest. At the left edge only the last counts.
func TestCutDetectorRemembersEightFPDUs(t *testing.T) {
	var d cutDetector
	d.init(true)
	for _, c := range []struct {
		at   int64
		want int
	}{{0, 1}, {0, 2}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}, {7, 1}, {0, 3}, {7, 2},
		{8, 1}, {1, 2}, {0, 1}, {8, 2}, {2, 2}, {1, 1}} {
		if got := d.countWrong(c.at); got != c.want {
			t.Errorf("FPDU %d: wrong %d times, want %d", c.at, got, c.want)
		}
	}
	for i, c := range []struct {
		at   int64
		want int
	}{{0, 1}, {0, 2}, {0, 3}, {4, 1}, {4, 2}, {0, 1}} {
		if got := d.countWrongInOrder(c.at); got != c.want {
			t.Errorf("%d: FPDU %d in order: wrong %d times, want %d", i, c.at, got, c.want)
		}
	}
}

// TestFingerprints compares bytes that are cut in two ways: common bytes are distinguished in units of a power of two;
// fewer than 16 are inconclusive.
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
		other int // the byte of the second that differs, -1 for none
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
			t.Errorf("%d and %d bytes, %d differs: the same %v and %v, want %v", c.n, c.m, c.other,
				f.repeats(&g), g.repeats(&f), c.want)
		}
	}
}
