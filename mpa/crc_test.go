package mpa

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"xwarp/mpa/ulpdu"
)

// TestReceiverRefusesWrongCRCInOrder checks a wrong CRC: the FPDU is dropped and repaired by a retransmission, an error
// after some failures, an error at once in strict mode, and ignored when CRCs are off.
//
//req:rfc5044-4.1-3 rfc5044-4.4-3 rfc5044-4.4-6 rfc5044-5.2-2 rfc5044-8-2 rfc5044-8-6
func TestReceiverRefusesWrongCRCInOrder(t *testing.T) {
	for _, f := range []Framing{{CRC: true}, {Markers: true, CRC: true}} {
		g := newRig(t, f, 100, 1000, 100)
		bad := bytes.Clone(g.stream)
		bad[g.borders[1]+300] ^= 0x10
		// Packed: the FPDU in front is kept, the rest is not.
		if kept, err := g.try(bad, 0); kept != g.borders[1] || err != nil {
			t.Fatalf("kept %d, %v; want %d", kept, err, g.borders[1])
		}
		g.advance(g.borders[1])
		for range maxRepeats - 1 {
			if kept, err := g.try(bad[g.borders[1]:], g.borders[1]); kept != 0 || err != nil {
				t.Fatalf("again: kept %d, %v", kept, err)
			}
		}
		g.offer(g.borders[1], g.borders[3])
		g.advance(g.borders[3])
		if len(g.sink.delivered) != 3 || g.r.Stats().CRCDrops != maxRepeats {
			t.Errorf("%d delivered, %+v", len(g.sink.delivered), g.r.Stats())
		}

		g.init(ReceiverConfig{})
		var err *ulpdu.Error
		tries := 0
		for ; err == nil && tries < 20; tries++ {
			_, err = g.try(bad, 0)
			if tries == 0 {
				bad, _ = bad[g.borders[1]:], g.advance(g.borders[1])
				bad = append(g.stream[:g.borders[1]:g.borders[1]], bad...)
			}
		}
		if codeOf(err) != ulpdu.CodeCRC || tries != maxRepeats+1 {
			t.Errorf("after %d tries: %v", tries, err)
		}
		if kept, e := g.try(g.stream[g.borders[1]:], g.borders[1]); kept != 0 || e != err {
			t.Errorf("after the error: kept %d, %v", kept, e)
		}

		g.init(ReceiverConfig{Strict: true})
		kept, err := g.try(bad, 0)
		if codeOf(err) != ulpdu.CodeCRC || kept != g.borders[1] {
			t.Errorf("strict: kept %d, %v", kept, err)
		}
		// What was right in front of it is still delivered.
		if e := g.advance(g.borders[1]); e != err || len(g.sink.delivered) != 1 {
			t.Errorf("strict: %d delivered, %v", len(g.sink.delivered), e)
		}

		g.f.CRC = false
		g.init(ReceiverConfig{})
		if kept, err := g.try(bad, 0); kept != len(bad) || err != nil {
			t.Errorf("CRC off: kept %d, %v", kept, err)
		}
	}
}

// TestReceiverRefusesWrongCRCBehindHole checks that an FPDU with a wrong CRC behind a hole counts as never received,
// however often it arrives.
func TestReceiverRefusesWrongCRCBehindHole(t *testing.T) {
	g := newRig(t, Framing{Markers: true, CRC: true}, 1000, 1000, 1000)
	bad := bytes.Clone(g.stream[g.borders[1]:g.borders[2]])
	bad[700] ^= 1
	for range 2 * maxRepeats {
		if kept, err := g.try(bad, g.borders[1]); kept != 0 || err != nil {
			t.Fatalf("kept %d, %v", kept, err)
		}
	}
	g.offer(g.borders[1], g.borders[2])
	if len(g.sink.placed) != 1 || g.r.Stats().OutByMarker != 1 {
		t.Errorf("%d placed", len(g.sink.placed))
	}
}

// TestReceiverEndsStreamAfterChangedLength flips a bit of a length field so that the FPDU seems to go on in the next
// segment. Its bytes are held and acknowledged as those of a cut FPDU, so TCP cannot repair them: the stream ends with
// the CRC's error, and nothing of it is placed.
//
//req:rfc5044-8-2
func TestReceiverEndsStreamAfterChangedLength(t *testing.T) {
	for _, f := range []Framing{{CRC: true}, {Markers: true, CRC: true}} {
		for _, at := range []int{0, 1} {
			g := newRig(t, f, 1000, 1000, 1000, 1000)
			bad := bytes.Clone(g.stream)
			bad[g.r.lengthFieldAt(int64(g.borders[at]))] ^= 0x04 // 1000 to 2024
			var err *ulpdu.Error
			for i := 0; i < 4 && err == nil; i++ {
				for try := 0; try <= maxRepeats && err == nil; try++ {
					_, err = g.try(bad[g.borders[i]:g.borders[i+1]], g.borders[i])
				}
			}
			if codeOf(err) != ulpdu.CodeCRC || len(g.sink.placed) != at {
				t.Errorf("%+v FPDU %d: %v, %d placed", f, at, err, len(g.sink.placed))
			}
		}
	}
}

// TestReceiverKeepsCutFPDUs: each piece of a cut FPDU is kept when it arrives for the first time. This also holds for
// the first FPDU of the stream.
//
//req:rfc5044-A.4-1
func TestReceiverKeepsCutFPDUs(t *testing.T) {
	g := newRig(t, Framing{CRC: true}, 5000, 5000, 5000, 5000)
	for p := 0; p < len(g.stream); p += 1448 {
		q := min(p+1448, len(g.stream))
		g.offer(p, q)
		g.advance(q)
	}
	if s := g.r.Stats(); len(g.sink.delivered) != 4 || s.Spanning != 4 {
		t.Errorf("%d delivered, %+v", len(g.sink.delivered), s)
	}
}

// TestStraddlingCRC: of an FPDU that comes in two segments the first is acknowledged before the CRC can be
// checked. A change in the second is repaired by the retransmission; one in the first is not, and the error does
// not blame the sender alone.
//
//req:rfc5044-8-2
func TestStraddlingCRC(t *testing.T) {
	const cut = 600
	for at, healed := range map[int]bool{cut - 1: false, cut: true} {
		g := newRig(t, Framing{CRC: true}, 1000)
		bad := bytes.Clone(g.stream)
		bad[at] ^= 1
		if kept, err := g.try(bad[:cut], 0); kept != cut || err != nil {
			t.Fatalf("kept %d, %v", kept, err)
		}
		g.advance(cut)
		if kept, err := g.try(bad[cut:], cut); kept != 0 || err != nil {
			t.Fatalf("kept %d, %v", kept, err)
		}
		kept, err := 0, (*ulpdu.Error)(nil)
		for tries := 0; tries < 10 && kept == 0 && err == nil; tries++ {
			kept, err = g.try(g.stream[cut:], cut)
		}
		if healed {
			if err != nil || kept != len(bad)-cut || len(g.sink.placed) != 1 {
				t.Errorf("change at %d: kept %d, %v", at, kept, err)
			}
			continue
		}
		if codeOf(err) != ulpdu.CodeCRC ||
			!strings.Contains(err.Error(), "its first 600 bytes arrived in earlier segments and "+
				"were acknowledged") || strings.Contains(err.Error(), "at fault") {
			t.Errorf("change at %d: %v", at, err)
		}
	}
}

// TestTwoBitFlips changes two bits that keep the TCP checksum right, in FPDUs of an aligned sender, a million
// times: the CRC finds them all, wherever they are. The retransmitted segment repairs the stream, unless the length
// field is longer than before.
//
//req:rfc5044-4.4-6 rfc5041-2.3-5
func TestTwoBitFlips(t *testing.T) {
	const tries = 1_000_000
	rng := rand.New(rand.NewPCG(9, 9))
	g := newRig(t, Framing{Markers: true, CRC: true})
	pool := g.r.cfg.Pool
	var frames [][]byte
	for _, n := range []int{14, 62, 300, 1000} {
		u := make([]byte, n)
		for i := range u {
			u[i] = byte(rng.Uint32())
		}
		frames = append(frames, encode(g.f, 0, u))
	}
	for try := 0; try < tries; {
		b := frames[try%len(frames)]
		words := len(b) / 2
		w1, w2, bit := rng.IntN(words), rng.IntN(words), rng.IntN(16)
		o1, o2, m := 2*w1+1-bit/8, 2*w2+1-bit/8, byte(1)<<(bit%8)
		if (b[o1]^b[o2])&m == 0 {
			continue // the sum would change
		}
		try++
		sum := onesSum(b)
		b[o1] ^= m
		b[o2] ^= m
		if onesSum(b) != sum {
			t.Fatalf("bit %d of words %d and %d change the TCP checksum: the test does not test",
				bit, w1, w2)
		}
		n := g.r.cfg.Size(0, int(b[MarkerLen])<<8|int(b[MarkerLen+1]))
		longer := n > len(b) && n <= MaxFPDU // it looks cut, so its bytes are held
		kept, err := g.try(b, 0)
		b[o1] ^= m
		b[o2] ^= m
		if (kept != 0) != longer || err != nil || len(g.sink.placed) != 0 {
			t.Fatalf("bit %d of words %d and %d: kept %d, %v", bit, w1, w2, kept, err)
		}
		if longer {
			g.init(ReceiverConfig{Pool: pool})
			continue
		}
		if kept, err := g.try(b, 0); kept != len(b) || err != nil || len(g.sink.placed) != 1 {
			t.Fatalf("not healed: kept %d, %v", kept, err)
		}
		if err := g.advance(len(b)); err != nil || len(g.sink.delivered) != 1 {
			t.Fatalf("not healed: %d delivered, %v", len(g.sink.delivered), err)
		}
		g.init(ReceiverConfig{Pool: pool})
	}
}

// onesSum is the sum of RFC 1071 over b, whose length is even.
func onesSum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}
