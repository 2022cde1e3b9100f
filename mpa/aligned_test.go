package mpa

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"xwarp/mpa/octets"
	"xwarp/mpa/ulp"
)

// TestWholeSame: a Receiver that takes whole FPDUs the short way and one that does not keep the same octets, give their sinks the
// same calls, and count the same, whatever the segments and their errors.
func TestWholeSame(t *testing.T) {
	short := 0
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 11))
		w := newWorld(seed)
		var r [2]Receiver
		var sink [2]logSink
		for i := range r {
			no := ulp.Newf(ulp.DDP, 1, 2, "no")
			sink[i].refuse = func(u []byte, inOrder bool) *ulp.Error {
				if len(u) > 8 && u[8]&0x1f == 0 && (!inOrder || u[8] == 0 && seed%4 == 0) {
					return no
				}
				return nil
			}
			cfg := w.r.cfg
			cfg.Pool = NewHoldPool(0, 0)
			r[i].general = i == 0
			r[i].Init(cfg, w.start, &sink[i])
		}
		step := func(p, q int) bool {
			data := append([]byte(nil), w.stream[p:q]...)
			if rng.IntN(60) == 0 {
				data[rng.IntN(len(data))] ^= 1 << rng.IntN(8)
			}
			pieces := w.pieces(data)
			wants := false
			know := rng.IntN(2) == 0 && len(pieces) > 0
			var got [2]string
			for i := range r {
				was := r[i].due.on
				var kept int
				var err *ulp.Error
				if know {
					wants = r[1].WantsCRC(w.start.Add(p), [][]byte{data}, q-p)
					pieces = [][]byte{data[:len(data)/3], data[len(data)/3:]}
					kept, err = r[i].OfferCRC(w.start.Add(p), pieces, q-p, octets.CRC(0, data))
				} else {
					kept, err = r[i].Offer(w.start.Add(p), pieces, q-p)
				}
				if !was && r[i].due.on {
					short++
					if know && w.f.CRC && !wants {
						t.Fatalf("seed %d, octets %d to %d: a whole FPDU whose CRC was not wanted", seed, p, q)
					}
				}
				got[i] = fmt.Sprint(kept, err)
			}
			if rng.IntN(4) > 0 {
				to := w.start.Add(int(r[0].edge.end) - rng.IntN(3)*rng.IntN(2000))
				if w.start.LessEq(to) {
					for i := range r {
						got[i] += fmt.Sprint(r[i].Advance(to))
					}
				}
			}
			if rng.IntN(200) == 0 {
				for i := range r {
					got[i] += fmt.Sprint(r[i].Closed(w.start.Add(int(r[0].edge.end))))
				}
			}
			sink[0].refuse, sink[1].refuse = nil, nil
			if got[0] != got[1] || !reflect.DeepEqual(sink[0], sink[1]) {
				t.Fatalf("seed %d, octets %d to %d: %s, the general way %s\n%v\n%v", seed, p, q, got[1], got[0], sink[1], sink[0])
			}
			a, b := r[0].Stats(), r[1].Stats()
			if a.Records-b.Records != count(r[1].due.on) {
				t.Fatalf("seed %d, octets %d to %d: %d records, the general way %d", seed, p, q, b.Records, a.Records)
			}
			a.Records = b.Records
			if a != b {
				t.Fatalf("seed %d, octets %d to %d: %+v\nthe general way %+v", seed, p, q, b, a)
			}
			return r[0].dead == nil
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
			at = int(r[0].edge.end)
			if q <= at {
				continue
			}
			if !step(at, q) {
				break
			}
			at = int(r[0].edge.end)
		}
		for i := range r {
			r[i].Release()
			if octets, records := r[i].cfg.Pool.InUse(); octets != 0 || records != 0 {
				t.Fatalf("seed %d: the pool has %d octets and %d records in use", seed, octets, records)
			}
		}
	}
	if short < 1000 {
		t.Errorf("%d FPDUs went the short way", short)
	}
	t.Logf("%d FPDUs went the short way", short)
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
