package mpa

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"xwarp/mpa/ulpdu"
	"xwarp/tcp/checksum"
)

// oneLevel removes the nesting of ReceiverCounters from a printed ReceiverStats.
var oneLevel = strings.NewReplacer("ReceiverCounters:{", "", "} HeldBytes", " HeldBytes")

// TestGolden compares what a Receiver keeps, counts and calls on its Sink with a hash, for many segments and errors.
// The results are the same if Offer is given the CRC32C of some segments, or gets them in other pieces.
func TestGolden(t *testing.T) {
	const want = "5e38935b1c750638"
	known := 0
	sum := sha256.New()
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 11))
		w := newWorld(seed)
		var r [2]Receiver
		var sink [2]logSink
		cfg := w.r.cfg
		for i := range r {
			no := ulpdu.Newf(ulpdu.DDP, 1, 2, "no")
			sink[i].refuse = func(u []byte, inOrder bool) *ulpdu.Error {
				if len(u) > 8 && u[8]&0x1f == 0 && (!inOrder || u[8] == 0 && seed%4 == 0) {
					return no
				}
				return nil
			}
			cfg.Pool = NewPool(0, 0)
			r[i].Init(cfg, w.start, &sink[i])
		}
		step := func(p, q int) bool {
			data := append([]byte(nil), w.stream[p:q]...)
			if rng.IntN(60) == 0 {
				data[rng.IntN(len(data))] ^= 1 << rng.IntN(8)
			}
			pieces := w.pieces(data)
			know := rng.IntN(2) == 0
			cut := rng.IntN(len(data) + 1)
			var got [2]string
			for i := range r {
				var kept int
				var err *ulpdu.Error
				if i == 1 && know {
					pieces = [][]byte{data}
					if !cfg.Markers {
						pieces = [][]byte{data[:cut], data[cut:]}
					}
				}
				var crc checksum.Known
				if i == 1 && know && r[i].WantsCRC(w.start.Add(p), pieces, q-p) {
					known++
					crc = checksum.Known{CRC: checksum.CRC(0, data), Valid: true}
				}
				kept, err = r[i].Offer(w.start.Add(p), pieces, q-p, crc)
				got[i] = fmt.Sprint(kept, err)
			}
			if rng.IntN(4) > 0 {
				to := w.start.Add(int(r[0].inOrder.end) - rng.IntN(3)*rng.IntN(2000))
				if w.start.LessEq(to) {
					for i := range r {
						got[i] += fmt.Sprint(r[i].Advance(to))
					}
				}
			}
			if rng.IntN(200) == 0 {
				for i := range r {
					got[i] += fmt.Sprint(r[i].Closed(w.start.Add(int(r[0].inOrder.end))))
				}
			}
			for i := range r {
				got[i] += oneLevel.Replace(fmt.Sprintf("%+v", r[i].Stats()))
			}
			fmt.Fprintln(sum, p, q, got[0])
			if got[0] != got[1] {
				t.Fatalf("seed %d, bytes %d to %d: %s\nwith the CRC of some: %s", seed, p, q,
					got[0], got[1])
			}
			return r[0].err == nil
		}
		mode := pick(rng, cutAligned, cutAligned, cutAligned, cutPacked, cutRandom)
		for at, n := 0, 0; at < len(w.stream) && n < 400; n++ {
			q := w.cut(at, mode)
			switch rng.IntN(20) {
			case 0: // lost for now: what follows comes first
				if p := q; p < len(w.stream) {
					if !step(p, w.cut(p, mode)) {
						n = 400
					}
				}
			case 1:
				q = min(at+1+rng.IntN(800), len(w.stream))
			}
			at = int(r[0].inOrder.end)
			if q <= at {
				continue
			}
			if !step(at, q) {
				break
			}
			at = int(r[0].inOrder.end)
		}
		sink[0].refuse, sink[1].refuse = nil, nil
		fmt.Fprintf(sum, "%x %v %v\n", sink[0].placed, sink[0].order, sink[0].delivered)
		if !reflect.DeepEqual(sink[0], sink[1]) {
			t.Fatalf("seed %d: with the CRC of some the Sink is told other things", seed)
		}
		for i := range r {
			r[i].Release()
			if held, records := r[i].cfg.Pool.InUse(); held != 0 || records != 0 {
				t.Fatalf("seed %d: the pool has %d bytes and %d records in use", seed, held,
					records)
			}
		}
	}
	if got := hex.EncodeToString(sum.Sum(nil))[:16]; got != want {
		t.Errorf("the outcome is %s, want %s", got, want)
	}
	if known < 1000 {
		t.Errorf("%d segments were FPDUs with a CRC that was known", known)
	}
}
