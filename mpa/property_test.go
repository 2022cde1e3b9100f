package mpa

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"xwarp/mpa/ulpdu"
	"xwarp/tcp/checksum"
	"xwarp/tcp/seq"
)

var (
	propertyCases = flag.Int("mpa.cases", 10500, "random streams of TestAnyOrder")
	propertySeed  = flag.Uint64("mpa.seed", 0, "run only this case of TestAnyOrder")
)

// cutMode is how a sender or a middlebox cuts the stream into segments.
type cutMode int

const (
	cutAligned cutMode = iota // one FPDU
	cutPacked                 // several whole FPDUs
	cutRandom                 // anywhere
	cutTiny                   // 1 to 9 bytes
	cutLarge                  // anywhere, many FPDUs
	cutModes
)

// world is one stream between a sender and a Receiver, with just enough of TCP to offer only ranges that were not kept.
type world struct {
	rng     *rand.Rand
	f       Framing
	stream  []byte
	borders []int // FPDU borders, 0 and the end included
	sent    [][]byte
	start   seq.Num

	kept   []bool
	rcvNxt int
	r      Receiver
	sink   *checkSink

	corrupt    float64 // probability that a segment has flipped bits
	repairable bool    // flip only bits that retransmission repairs, since they are checked before they are kept
	err        error
}

func newStream(rng *rand.Rand, f Framing, sizes func() int, total int) (stream []byte,
	borders []int, sent [][]byte) {
	borders = []int{0}
	for len(stream) < total {
		u := make([]byte, sizes())
		for i := range u {
			u[i] = byte(rng.Uint32())
		}
		if len(u) >= 8 {
			binary.BigEndian.PutUint32(u, uint32(len(sent)))
			flags := uint32(0)
			if rng.IntN(8) == 0 {
				flags |= refuseEarly
			}
			if rng.IntN(3) > 0 {
				flags |= noDelivery
			}
			binary.BigEndian.PutUint32(u[4:], flags)
		}
		stream = append(stream, encode(f, len(stream), u)...)
		borders = append(borders, len(stream))
		sent = append(sent, u)
	}
	return stream, borders, sent
}

// cut returns the end of the segment that begins at p.
func (w *world) cut(p int, mode cutMode) int {
	n := 0
	switch mode {
	case cutAligned, cutPacked:
		more := 1
		if mode == cutPacked {
			more += w.rng.IntN(4)
		}
		for _, b := range w.borders {
			if b > p {
				n = b - p
				if more--; more == 0 {
					break
				}
			}
		}
	case cutRandom:
		n = 1 + w.rng.IntN(1460)
	case cutTiny:
		n = 1 + w.rng.IntN(9)
	case cutLarge:
		n = 1 + w.rng.IntN(20000)
	}
	return min(p+n, len(w.stream))
}

// refusals returns the sum of the counters that show why bytes of an offer were not kept.
func refusals(r *Receiver) uint64 {
	s := r.Stats()
	return s.CRCDrops + s.LimitDrops
}

// arrive gives the receiver the segment [p,q) as TCP would: only ranges that were not kept, and in pieces.
func (w *world) arrive(p, q int) {
	data := append([]byte(nil), w.stream[p:q]...)
	if w.rng.Float64() < w.corrupt && (!w.repairable || p <= w.rcvNxt) {
		for range 1 + w.rng.IntN(2) {
			if at := w.rng.IntN(len(data)); !w.repairable || !isLength(&w.r, w.borders, p+at) {
				data[at] ^= 1 << w.rng.IntN(8)
			}
		}
	}
	for at := max(p, w.rcvNxt); at < q; {
		if w.kept[at] {
			at++
			continue
		}
		end := at
		for end < q && !w.kept[end] {
			end++
		}
		before := refusals(&w.r)
		kept, err := w.r.Offer(w.start.Add(at), w.pieces(data[at-p:end-p]), end-at,
			checksum.Known{})
		if kept < end-at && err == nil && refusals(&w.r) == before {
			w.sink.fault("Offer(%d, %d) kept %d, and no counter says why", at, end-at, kept)
			return
		}
		if kept < 0 || kept > end-at {
			w.sink.fault("Offer(%d, %d) kept %d", at, end-at, kept)
			return
		}
		for i := range kept {
			w.kept[at+i] = true
		}
		if err != nil {
			w.err = err
		}
		at = end
	}
	for i := range data {
		data[i] = 0xee // the buffer is used again
	}
	for w.rcvNxt < len(w.kept) && w.kept[w.rcvNxt] {
		w.rcvNxt++
	}
	if err := w.r.Advance(w.start.Add(w.rcvNxt)); err != nil {
		w.err = err
	}
}

// isLength reports whether the byte at the offset belongs to the length field of an FPDU that begins at a border.
func isLength(r *Receiver, borders []int, at int) bool {
	return slices.ContainsFunc(borders, func(b int) bool {
		length := int(r.lengthFieldAt(int64(b)))
		return at == length || at == length+1
	})
}

func (w *world) pieces(b []byte) [][]byte {
	if w.rng.IntN(3) > 0 {
		return [][]byte{append(b[:len(b):len(b)], "trailer"...)}
	}
	var ps [][]byte
	for len(b) > 0 {
		n := 1 + w.rng.IntN(len(b))
		ps = append(ps, b[:n])
		b = b[n:]
	}
	return ps
}

// run sends the stream with the given loss until all is received.
func (w *world) run(mode func() cutMode, window int, loss, dup, disorder float64) {
	type span struct{ p, q int }
	for round := 0; w.rcvNxt < len(w.stream) && w.err == nil && len(w.sink.wrong) == 0; round++ {
		if round > 3000 {
			w.sink.fault("no progress at byte %d of %d: %+v", w.rcvNxt, len(w.stream), w.r.Stats())
			return
		}
		var flight []span
		m := mode()
		p := w.rcvNxt
		if m == cutAligned || m == cutPacked { // the segment that the left edge stands in is sent again whole
			for _, b := range w.borders {
				if b <= w.rcvNxt {
					p = b
				}
			}
		}
		for p < len(w.stream) && p < w.rcvNxt+window {
			q := w.cut(p, m)
			flight = append(flight, span{p, q})
			p = q
		}
		for i := range flight {
			if j := min(len(flight)-1, i+w.rng.IntN(6)); w.rng.Float64() < disorder {
				flight[i], flight[j] = flight[j], flight[i]
			}
		}
		for _, s := range flight {
			if w.rng.Float64() < loss {
				continue
			}
			w.arrive(s.p, s.q)
			if w.rng.Float64() < dup {
				w.arrive(s.p, s.q)
			}
		}
	}
}

// finish checks the end state.
func (w *world) finish() {
	if w.err != nil {
		w.sink.fault("%v", w.err)
	}
	w.sink.passSilent(len(w.sent))
	if w.sink.next != len(w.sent) {
		w.sink.fault("%d of %d delivered", w.sink.next, len(w.sent))
	}
	for i, p := range w.sink.placed {
		if !p && len(w.sent[i]) >= 8 {
			w.sink.fault("%d never placed", i)
		}
	}
	if s := w.r.Stats(); s.HeldBytes != 0 || s.Records != 0 || s.Holes != 0 ||
		int(s.FPDUs) != len(w.sent) || int(s.Delivered+s.Silent) != len(w.sent) {
		w.sink.fault("at the end %+v", s)
	}
	if held, records := w.r.cfg.Pool.InUse(); held != 0 || records != 0 {
		w.sink.fault("the pool has %d bytes and %d records in use", held, records)
	}
	if err := w.r.Closed(w.start.Add(w.rcvNxt)); err != nil {
		w.sink.fault("Closed at an FPDU border: %v", err)
	}
}

// pick returns one of its arguments.
func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// newWorld draws a stream and a receiver.
func newWorld(seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 5044))
	w := &world{rng: rng, f: Framing{Markers: rng.IntN(2) == 0, CRC: rng.IntN(4) > 0}}
	total := pick(rng, 200, 1500, 4000, 9000)
	top := pick(rng, 30, 100, 600, 1436, 5000)
	if rng.IntN(100) == 0 {
		top, total = MaxULPDU, 150000
	}
	w.stream, w.borders, w.sent = newStream(rng, w.f, func() int {
		return min(rng.IntN(top+1), rng.IntN(2*top+1))
	}, total)
	w.start = seq.Num(rng.Uint32())
	if rng.IntN(2) == 0 {
		w.start = seq.Num(0).Add(-rng.IntN(len(w.stream) + 1))
	}
	w.kept = make([]bool, len(w.stream))
	w.sink = &checkSink{sent: w.sent, placed: make([]bool, len(w.sent)), silent: true}
	cfg := ReceiverConfig{Framing: w.f, Pool: NewPool(0, 0), AnyMarkerOrigin: rng.IntN(8) == 0}
	if rng.IntN(4) == 0 {
		cfg.ReassemblyLimit = pick(rng, 2048, 8192)
		cfg.RecordLimit = pick(rng, 1, 2, 5)
	}
	if rng.IntN(8) == 0 {
		cfg.Pool = NewPool(pick(rng, 2048, 4096), pick(rng, 1, 3))
	}
	w.r.Init(cfg, w.start, w.sink)
	return w
}

// TestAnyOrder checks the promise of MPA: a stream with any cuts, whose segments arrive in any order, several times,
// late, cut differently or only when retransmitted, gives the same memory and the same deliveries as the stream in
// order.
//
//req:rfc5044-2-1 rfc5044-3-4 rfc5044-4.3-4 rfc5044-4.3-6 rfc5044-8-5 rfc5044-A.4-1 rfc5041-2.3-4 rfc5041-2.3-7 rfc5041-5.3-2
//req:rfc5040-6.1-1
func TestAnyOrder(t *testing.T) {
	first, last := uint64(1), uint64(*propertyCases)
	if *propertySeed != 0 {
		first, last = *propertySeed, *propertySeed
	}
	for seed := first; seed <= last; seed++ {
		w := newWorld(seed)
		fixed := pick(w.rng, cutAligned, cutAligned, cutPacked, cutRandom, cutTiny, cutLarge)
		if fixed == cutTiny && len(w.stream) > 5000 {
			fixed = cutRandom
		}
		mode := func() cutMode { return fixed }
		if w.rng.IntN(3) == 0 {
			mode = func() cutMode { return pick(w.rng, cutAligned, cutPacked, cutRandom, cutLarge) }
		}
		w.run(mode, pick(w.rng, 1000, 5000, 1<<20), pick(w.rng, 0, 0.05, 0.3, 0.7),
			pick(w.rng, 0, 0.2), pick(w.rng, 0, 0.1, 1))
		w.finish()
		if len(w.sink.wrong) > 0 {
			t.Fatalf("seed %d (run with -mpa.seed): %+v cut %d, %d bytes in %d FPDUs: %v", seed,
				w.r.cfg, fixed, len(w.stream), len(w.sent), short(w.sink.wrong))
		}
	}
}

func short(s []string) string {
	if len(s) > 5 {
		s = append(s[:5:5], fmt.Sprintf("and %d more", len(s)-5))
	}
	return fmt.Sprintf("%q", s)
}

// TestCorruption flips bits that the TCP checksum does not catch in the segments of an aligned sender. The CRC finds
// them all. Retransmission repairs those in order, unless they are in a length field.
//
//req:rfc5044-4.4-6
func TestCorruption(t *testing.T) {
	for seed := uint64(1); seed <= 1000; seed++ {
		w := newWorld(seed)
		w.f.CRC = true
		w.stream, w.borders, w.sent = newStream(w.rng, w.f, func() int {
			return w.rng.IntN(1400)
		}, 30000)
		w.kept = make([]bool, len(w.stream))
		w.sink.sent, w.sink.placed = w.sent, make([]bool, len(w.sent))
		w.r.Init(ReceiverConfig{Framing: w.f, Pool: NewPool(0, 0)}, w.start, w.sink)
		w.corrupt, w.repairable = 0.02, true
		mode := pick(w.rng, cutAligned, cutPacked)
		w.run(func() cutMode {
			return mode
		}, pick(w.rng, 3000, 1<<20), pick(w.rng, 0, 0.1), 0.05, pick(w.rng, 0, 0.3))
		w.finish()
		if len(w.sink.wrong) > 0 {
			t.Fatalf("seed %d: %+v cut %d: %v\n%+v", seed, w.f, mode, short(w.sink.wrong),
				w.r.Stats())
		}
	}
}

// TestCorruptionUnaligned flips bits in segments that are cut anywhere. Bytes acknowledged before their FPDU is
// complete cannot be repaired: the stream ends with an error of the right code. In the streams that are received whole,
// nothing wrong is placed or delivered.
func TestCorruptionUnaligned(t *testing.T) {
	ended := 0
	for seed := uint64(1); seed <= 1000; seed++ {
		w := newWorld(seed)
		w.f.CRC = true
		w.stream, w.borders, w.sent = newStream(w.rng, w.f, func() int {
			return w.rng.IntN(1400)
		}, 10000)
		w.kept = make([]bool, len(w.stream))
		w.sink.sent, w.sink.placed = w.sent, make([]bool, len(w.sent))
		w.r.Init(ReceiverConfig{Framing: w.f, Pool: NewPool(0, 0), Strict: seed%4 == 0},
			w.start, w.sink)
		w.corrupt = 0.03
		w.run(func() cutMode {
			return pick(w.rng, cutAligned, cutRandom, cutLarge)
		}, 5000, 0.1, 0.05, 0.3)
		if w.err != nil {
			ended++
			if e := w.r.err; e.Layer != 2 || e.Code != ulpdu.CodeCRC && e.Code != ulpdu.CodeMarker {
				t.Fatalf("seed %d: %v", seed, w.err)
			}
			w.r.Closed(w.start.Add(w.rcvNxt))
			if held, records := w.r.cfg.Pool.InUse(); held != 0 || records != 0 {
				t.Fatalf("seed %d: after the error the pool has %d bytes and %d records in use",
					seed, held, records)
			}
		} else if len(w.sink.wrong) == 0 && w.rcvNxt == len(w.stream) {
			w.finish()
		}
		if len(w.sink.wrong) > 0 && w.rcvNxt == len(w.stream) {
			t.Fatalf("seed %d: %+v: %v\n%+v", seed, w.f, short(w.sink.wrong), w.r.Stats())
		}
	}
	if ended == 0 {
		t.Error("no stream ended with an error: this test does not test that")
	}
	t.Logf("%d of 1000 streams ended with an error", ended)
}
