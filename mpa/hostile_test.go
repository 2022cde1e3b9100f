package mpa

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"xwarp/mpa/ulpdu"
	"xwarp/tcp/checksum"
	"xwarp/tcp/seq"
)

// lie changes markers or lengths in the FPDU b, which begins at stream offset off, and makes the CRC right again in
// three of four cases.
func lie(rng *rand.Rand, b []byte, off int, f Framing) {
	at := 4 * rng.IntN(len(b)/4)
	if m := int(firstMarker(int64(off))) - off; f.Markers && m < len(b) && rng.IntN(4) > 0 {
		at = m + 2 // a marker of this FPDU
		if more := (len(b) - 1 - m) / MarkerInterval; more > 0 {
			at += MarkerInterval * rng.IntN(more+1)
		}
		binary.BigEndian.PutUint16(b[at:],
			uint16(pick(rng, 0, 4, 4*rng.IntN(200), 4*rng.IntN(1<<14))))
	} else {
		binary.BigEndian.PutUint16(b[at:], uint16(rng.Uint32()))
	}
	if rng.IntN(4) > 0 {
		binary.LittleEndian.PutUint32(b[len(b)-4:], crc32.Checksum(b[:len(b)-4], castagnoli))
	}
}

// TestHostileStream reads streams of a peer that lies about markers and lengths, with good CRCs, in any order. It
// compares them with a receiver that gets the stream in order: the deliveries are the same or fewer, an error there is
// an error in any order, and nothing is lost from the pool.
//
//req:rfc5044-5.2-2 rfc5044-5.2-3 rfc5044-8-3 rfc5044-8-5
func TestHostileStream(t *testing.T) {
	failed := 0
	for seed := uint64(1); seed <= 4000; seed++ {
		rng := rand.New(rand.NewPCG(seed, 3))
		f := Framing{Markers: rng.IntN(4) > 0, CRC: true}
		var stream []byte
		for len(stream) < 8000 {
			u := make([]byte, rng.IntN(pick(rng, 50, 1400, 4000)))
			for i := range u {
				u[i] = byte(rng.Uint32())
			}
			b := encode(f, len(stream), u)
			if rng.IntN(6) == 0 {
				lie(rng, b, len(stream), f)
			}
			stream = append(stream, b...)
		}
		cfg := ReceiverConfig{Framing: f, Pool: NewPool(0, 0), Strict: true,
			AnyMarkerOrigin: rng.IntN(4) == 0}
		inOrder := &logSink{}
		var r Receiver
		r.Init(cfg, 0, inOrder)
		kept, want := r.Offer(0, [][]byte{stream}, len(stream), checksum.Known{})
		r.Advance(seq.Num(kept))
		cut := r.Closed(seq.Num(kept)) != nil // an error, or a length that goes beyond the end

		cfg.Strict = rng.IntN(3) == 0
		if rng.IntN(4) == 0 {
			cfg.ReassemblyLimit, cfg.RecordLimit = 4096, 3
		}
		sink := &logSink{}
		r.Init(cfg, 0, sink)
		w := &world{rng: rng, f: f, stream: stream, kept: make([]bool, len(stream)),
			sink: &checkSink{}}
		w.r = r
		tries := 0
		for ; w.rcvNxt < len(stream) && w.err == nil && tries < 3000; tries++ {
			p := w.rcvNxt
			if rng.IntN(3) > 0 {
				p += rng.IntN(len(stream) - p)
			}
			w.arrive(p, min(len(stream), p+1+rng.IntN(2500)))
		}
		if tries == 3000 {
			t.Fatalf("seed %d: no progress at %d of %d: %+v", seed, w.rcvNxt, len(stream),
				w.r.Stats())
		}
		if w.err == nil && want != nil || w.err != nil && !cut {
			t.Fatalf("seed %d: error %v, in order %v", seed, w.err, want)
		}
		got := sink.delivered
		if len(got) > len(inOrder.delivered) || !slices.Equal(got, inOrder.delivered[:len(got)]) {
			t.Fatalf("seed %d: %d delivered, in order %d, and not the same", seed, len(got),
				len(inOrder.delivered))
		}
		if !cut && len(got) != len(inOrder.delivered) {
			t.Fatalf("seed %d: %d of %d delivered", seed, len(got), len(inOrder.delivered))
		}
		if cut {
			failed++
		}
		w.r.Release()
		if held, records := cfg.Pool.InUse(); held != 0 || records != 0 {
			t.Fatalf("seed %d: %d bytes, %d records left", seed, held, records)
		}
	}
	if failed < 1000 {
		t.Errorf("only %d streams had an error", failed)
	}
}

// TestImpossibleLength: an FPDU in order with a ULPDU_Length above the maximum is not kept. After maxRepeats more such
// arrivals the stream ends with the code of a CRC error, whose text names the length.
func TestImpossibleLength(t *testing.T) {
	g := newRig(t, Framing{CRC: true}, 100, 100)
	bad := slices.Clone(g.stream)
	binary.BigEndian.PutUint16(bad[g.borders[1]:], MaxULPDU+1)
	for i := range maxRepeats + 1 {
		kept, err := g.try(bad, 0)
		if kept != g.borders[1] || (err != nil) != (i == maxRepeats) {
			t.Fatalf("try %d: kept %d, %v", i, kept, err)
		}
	}
	if err := g.advance(g.borders[1]); codeOf(err) != ulpdu.CodeCRC || len(g.sink.placed) != 1 {
		t.Errorf("%v, %d placed", err, len(g.sink.placed))
	} else if s := err.Error(); !strings.Contains(s, "at most 64768") ||
		strings.Contains(s, "wrong CRC") {
		t.Errorf("%q does not name the length", s)
	}
}

// TestOverlap checks that overlapping offers of a careless caller do no harm.
//
//req:rfc5041-2.3-7
func TestOverlap(t *testing.T) {
	f := Framing{CRC: true}
	g := newRig(t, f, 400, 400, 400, 400)
	g.offer(500, 900)
	for _, o := range [][3]int{{600, 1000, 400}, {500, 1000, 500}, {450, 600, 50}, {700, 800, 100},
		{0, 1000, 450}, {0, 1200, 1200}} {
		if kept, err := g.try(g.stream[o[0]:o[1]], o[0]); kept != o[2] || err != nil {
			t.Errorf("[%d,%d): kept %d, %v; want %d", o[0], o[1], kept, err, o[2])
		}
	}
	g.offer(1200, len(g.stream))
	g.advance(len(g.stream))
	if len(g.sink.delivered) != 4 || g.r.Stats().HeldBytes != 0 {
		t.Errorf("%d delivered, %+v", len(g.sink.delivered), g.r.Stats())
	}
}
