package stream

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"xwarp/tcp/seq"
)

// TestSendModel compares Send with a plain slice under random writes, reads by TCP and acknowledgements, across the
// wrap of sequence numbers.
func TestSendModel(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		start := seq.Num(0).Add(-r.IntN(5000))
		var s Send
		s.Init(start, 0, 1<<(12+r.IntN(4)))
		s.SetEMSS(100)
		var all []byte
		next, una := 0, 0
		for range 400 {
			switch r.IntN(4) {
			case 0, 1:
				p := make([]byte, r.IntN(3000))
				for i := range p {
					p[i] = byte(r.Uint32())
				}
				n := s.Write(p)
				if n != min(len(p), s.max-(len(all)-una)) {
					t.Fatalf("seed %d: wrote %d of %d", seed, n, len(p))
				}
				all = append(all, p[:n]...)
			case 2:
				n, more := s.Next(r.IntN(1000))
				next += n
				if more != (next < len(all)) {
					t.Fatalf("seed %d: more %v, %d wait", seed, more, len(all)-next)
				}
			case 3:
				una += r.IntN(next - una + 1)
				s.Acked(start.Add(una))
			}
			if next > una {
				from := una + r.IntN(next-una)
				to := from + r.IntN(next-from+1)
				dst := make([]byte, to-from)
				if s.Fill(seq.Range{Start: start.Add(from), End: start.Add(to)}, dst); !bytes.Equal(
					dst, all[from:to]) {
					t.Fatalf("seed %d: bytes %d..%d are wrong", seed, from, to)
				}
			}
			if s.Waiting() != len(all)-next || s.Buffered() != len(all)-una ||
				s.Free() != s.max-s.Buffered() ||
				s.Pending() != (seq.Range{Start: start.Add(next), End: start.Add(len(all))}) {
				t.Fatalf("seed %d: waiting %d, unacked %d", seed, s.Waiting(), s.Buffered())
			}
		}
	}
}

func TestSendRules(t *testing.T) {
	var s Send
	s.Init(0, 0, 1<<16)
	s.SetEMSS(1000)
	write := func(n int) { s.Write(make([]byte, n)) }
	next := func(room, n int, more bool) {
		t.Helper()
		if gn, gm := s.Next(room); gn != n || gm != more {
			t.Fatalf("Next(%d) = %d, %v; want %d, %v", room, gn, gm, n, more)
		}
	}
	next(1000, 0, false)
	write(2500)
	next(0, 0, true)
	next(600, 0, true) // more data waits than a small window permits
	next(1000, 1000, true)
	next(1000, 1000, true)
	next(600, 500, false) // everything fits
	s.SetNagle(true)
	write(100)
	next(1000, 0, true) // bytes in flight
	s.Acked(2500)
	next(1000, 100, false)
	write(1100)
	next(1000, 1000, true)
	next(1000, 0, true)
	s.Close()
	next(1000, 100, false)
	if s.Write([]byte{1}) != 0 {
		t.Error("written after Close")
	}
	s.Acked(1 << 20) // invalid values are clipped
	if s.Buffered() != 0 {
		t.Error(s.Buffered())
	}
}

// TestRecvModel puts bytes in any order, as far as they fit, and reads them back.
func TestRecvModel(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		start := seq.Num(0).Add(-r.IntN(5000))
		all := make([]byte, 40_000)
		for i := range all {
			all[i] = byte(r.Uint32())
		}
		var v Recv
		limit := 1 << (12 + r.IntN(3))
		v.Init(start, 0, limit)
		have := make([]bool, len(all))
		nxt, read := 0, 0
		for i := 0; read < len(all); i++ {
			if i > 1_000_000 {
				t.Fatalf("seed %d: stuck at %d", seed, read)
			}
			at := nxt + r.IntN(limit)*r.IntN(2)
			n := r.IntN(2000)
			if at >= len(all) {
				at = nxt
			}
			n = min(n, len(all)-at)
			k := v.Put(start.Add(at), all[at:at+n])
			if want := max(0, min(n, read+limit-at)); k != want {
				t.Fatalf("seed %d: kept %d of %d at %d, want %d", seed, k, n, at-read, want)
			}
			for j := range k {
				have[at+j] = true
			}
			for nxt < len(all) && have[nxt] {
				nxt++
			}
			v.Advance(start.Add(nxt))
			if v.Ready() != nxt-read || v.Space() != limit-(nxt-read) {
				t.Fatalf("seed %d: ready %d, space %d", seed, v.Ready(), v.Space())
			}
			if r.IntN(3) == 0 {
				got := make([]byte, r.IntN(3000))
				got = got[:v.Read(got)]
				if !bytes.Equal(got, all[read:read+len(got)]) {
					t.Fatalf("seed %d: bytes %d..%d are wrong", seed, read, read+len(got))
				}
				read += len(got)
				if v.Next() != start.Add(read) {
					t.Fatalf("seed %d: next %d", seed, v.Next())
				}
			}
		}
	}
}

func TestRecvEdges(t *testing.T) {
	var v Recv
	v.Init(100, 0, 4096)
	if v.Put(99, []byte{1, 2}) != 0 || v.Put(100+4096, []byte{1}) != 0 ||
		v.Put(100+4095, []byte{1, 2}) != 1 {
		t.Error("bytes outside of the buffer are kept")
	}
	v.Advance(101) // a caller's mistake: byte 100 was never put
	v.Read(make([]byte, 1<<16))
	v.SetLimit(1 << 14)
	if v.Put(100+5000, make([]byte, 100)) != 100 {
		t.Error("a larger limit is not used")
	}
	v.SetLimit(1)
	if v.max < len(v.b) {
		t.Error("the limit fell below the memory held")
	}
}

func TestNoAllocation(t *testing.T) {
	var s Send
	var v Recv
	s.Init(0, 1<<14, 1<<14)
	v.Init(0, 1<<14, 1<<14)
	p := make([]byte, 1000)
	at := seq.Num(0)
	if n := testing.AllocsPerRun(1000, func() {
		s.Write(p)
		n, _ := s.Next(1000)
		s.Fill(seq.Of(at, n), p)
		v.Put(at, p)
		at = at.Add(n)
		v.Advance(at)
		s.Acked(at)
		v.Read(p)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
