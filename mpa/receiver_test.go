package mpa

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"xwarp/mpa/ulpdu"
	"xwarp/tcp/checksum"
	"xwarp/tcp/seq"
)

func codeOf(err error) uint8 {
	var e *ulpdu.Error
	if errors.As(err, &e) && e != nil {
		return e.Code
	}
	return 0
}

// rig is a Receiver with a stream of FPDUs to take segments from.
type rig struct {
	t       *testing.T
	r       Receiver
	sink    logSink
	f       Framing
	stream  []byte
	borders []int
}

func newRig(t *testing.T, f Framing, ulpdus ...int) *rig {
	g := &rig{t: t, f: f, borders: []int{0}}
	for i, n := range ulpdus {
		u := bytes.Repeat([]byte{byte(i + 1)}, n)
		g.stream = append(g.stream, encode(f, len(g.stream), u)...)
		g.borders = append(g.borders, len(g.stream))
	}
	g.init(ReceiverConfig{})
	return g
}

func (g *rig) init(cfg ReceiverConfig) {
	cfg.Framing = g.f
	if cfg.Pool == nil {
		cfg.Pool = NewPool(0, 0)
	}
	g.sink = logSink{}
	g.r.Init(cfg, 1000, &g.sink)
}

// offer gives bytes [p,q) of the stream; it fails the test when they are not all kept.
func (g *rig) offer(p, q int) {
	g.t.Helper()
	if kept, err := g.try(g.stream[p:q], p); kept != q-p || err != nil {
		g.t.Fatalf("[%d,%d): kept %d, %v", p, q, kept, err)
	}
}

func (g *rig) try(b []byte, p int) (int, *ulpdu.Error) {
	return g.r.Offer(seq.Num(1000).Add(p), [][]byte{b}, len(b), checksum.Known{})
}

func (g *rig) advance(to int) *ulpdu.Error { return g.r.Advance(seq.Num(1000).Add(to)) }

// TestSegmentShapes tries the list of RFC 5044, A.4, and of draft-culley-iwarp-mpa-02, 7.4.1: the possible contents of
// a segment, in order and out of order. The stream has six FPDUs of at least 1008 bytes. A segment starts and ends at
// an FPDU boundary plus an offset.
//
//req:rfc5044-5.2-1 rfc5044-5.2-2 rfc5044-5.2-3 rfc5044-A.4-1 culley-7.4-1
func TestSegmentShapes(t *testing.T) {
	type place struct{ border, add int }
	type span struct{ from, to place }
	whole := func(i, j int) span { return span{place{i, 0}, place{j, 0}} }
	all := func(Framing) bool { return true }
	marked := func(f Framing) bool { return f.Markers }
	plain := func(f Framing) bool { return !f.Markers }
	for _, c := range []struct {
		name   string
		f      func(Framing) bool
		segs   []span
		placed []int // FPDUs placed after each segment
		held   []int // bytes held after each segment, -1 for any
	}{
		{"one aligned FPDU, in order", all, []span{whole(0, 1)}, []int{1}, []int{0}},
		{"one aligned FPDU, out of order", marked, []span{whole(2, 3)}, []int{1}, []int{0}},
		{"one aligned FPDU, out of order, no marker to find it", plain,
			[]span{whole(2, 3), whole(0, 2)}, []int{0, 3}, []int{1008, 0}},
		{"several, in order", all, []span{whole(0, 3)}, []int{3}, []int{0}},
		{"several, out of order", marked, []span{whole(3, 6), whole(0, 3)}, []int{3, 6},
			[]int{0, 0}},
		{"head, then the rest", all, []span{{place{0, 0}, place{1, -300}},
			{place{1, -300}, place{1, 0}}}, []int{0, 1}, []int{-1, 0}},
		{"length field cut", all, []span{{place{0, 0}, place{1, 1}}, {place{1, 1}, place{2, 0}}},
			[]int{1, 2}, []int{1, 0}},
		{"head out of order, then the rest", marked, []span{{place{2, 0}, place{3, -300}},
			{place{3, -300}, place{3, 0}}}, []int{0, 1}, []int{-1, 0}},
		{"tail of one, all of the next, out of order", marked, []span{{place{1, 50}, place{3, 0}},
			{place{1, 0}, place{1, 50}}}, []int{1, 2}, []int{-1, 0}},
		{"tail of one, all of the next, head of a third", marked,
			[]span{{place{1, 50}, place{3, 40}}, {place{1, 0}, place{1, 50}},
				{place{3, 40}, place{4, 0}}, whole(0, 1)}, []int{1, 2, 3, 4}, []int{-1, 40, 0, 0}},
		{"the part in front is there already", marked, []span{{place{2, 0}, place{2, 700}},
			{place{2, 700}, place{4, 0}}}, []int{0, 2}, []int{700, 0}},
		{"the part behind is there already", marked, []span{{place{2, 400}, place{4, 0}},
			{place{2, 0}, place{2, 400}}}, []int{1, 2}, []int{-1, 0}},
		{"one FPDU in three parts, the middle last", marked,
			[]span{{place{2, 0}, place{2, 400}}, {place{2, 800}, place{4, 0}},
				{place{2, 400}, place{2, 800}}}, []int{0, 1, 2}, []int{400, -1, 0}},
		{"everything backwards", marked, []span{whole(5, 6), whole(4, 5), whole(3, 4), whole(2, 3),
			whole(1, 2), whole(0, 1)}, []int{1, 2, 3, 4, 5, 6}, []int{0, 0, 0, 0, 0, 0}},
		{"everything backwards, held", plain, []span{whole(4, 6), whole(2, 4), whole(0, 2)},
			[]int{0, 0, 6}, []int{2016, 4032, 0}},
		{"in order into two islands", marked, []span{whole(2, 3), whole(4, 5), whole(0, 2),
			whole(3, 4), whole(5, 6)}, []int{1, 2, 4, 5, 6}, []int{0, 0, 0, 0, 0}},
	} {
		for _, f := range framings {
			if !c.f(f) {
				continue
			}
			t.Run(c.name+"/"+f.label(), func(t *testing.T) {
				g := newRig(t, f, 1000, 1000, 1000, 1000, 1000, 1000)
				have := make([]bool, len(g.stream))
				edge := 0
				for i, s := range c.segs {
					p, q := g.borders[s.from.border]+s.from.add, g.borders[s.to.border]+s.to.add
					g.offer(p, q)
					for o := p; o < q; o++ {
						have[o] = true
					}
					for edge < len(have) && have[edge] {
						edge++
					}
					if err := g.advance(edge); err != nil {
						t.Fatal(err)
					}
					if got := len(g.sink.placed); got != c.placed[i] {
						t.Errorf("after segment %d [%d,%d): %d FPDUs placed, want %d", i, p, q, got,
							c.placed[i])
					}
					if got := g.r.Stats().HeldBytes; c.held[i] >= 0 && got != c.held[i] {
						t.Errorf("after segment %d [%d,%d): %d bytes held, want %d", i, p, q, got,
							c.held[i])
					}
					delivered := 0
					for _, b := range g.borders[1:] {
						if b <= edge {
							delivered++
						}
					}
					if len(g.sink.delivered) != delivered {
						t.Errorf("after segment %d: %d delivered with the left edge at %d, want %d",
							i, len(g.sink.delivered), edge, delivered)
					}
				}
			})
		}
	}
}

// TestPlacedOnArrival loses one in fifty of the aligned segments with markers: nearly all that come behind a hole are
// placed at once.
//
//req:rfc5044-5.2-3 culley-7.4-1
func TestPlacedOnArrival(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	f := Framing{Markers: true, CRC: true}
	w := &world{rng: rng, f: f, sink: &checkSink{silent: true}}
	w.stream, w.borders, w.sent = newStream(rng, f, func() int { return 1430 }, 3<<20)
	w.kept = make([]bool, len(w.stream))
	w.sink.sent, w.sink.placed = w.sent, make([]bool, len(w.sent))
	for i := range w.sent { // no refusals here
		binary.BigEndian.PutUint32(w.sent[i][4:], uint32(rng.IntN(2)*noDelivery))
	}
	w.stream = w.stream[:0]
	for _, u := range w.sent {
		w.stream = append(w.stream, encode(f, len(w.stream), u)...)
	}
	w.r.Init(ReceiverConfig{Framing: f, Pool: NewPool(0, 0)}, 0, w.sink)
	w.run(func() cutMode { return cutAligned }, 1<<20, 0.02, 0, 0)
	w.finish()
	if len(w.sink.wrong) > 0 {
		t.Fatal(short(w.sink.wrong))
	}
	s := w.r.Stats()
	out := s.OutByMarker + s.OutByChain
	t.Logf("%+v", s)
	if s.Behind < 1000 || out*100 < s.Behind*99 || s.HeldHighWater > 1448*20 {
		t.Errorf("%d segments behind a hole, %d FPDUs placed out of order, at most %d bytes held",
			s.Behind, out, s.HeldHighWater)
	}
}

// TestClosedInsideFPDU checks the end of the stream at a border, in an FPDU, and before bytes that are not the peer's.
//
//req:rfc5044-8-1
func TestClosedInsideFPDU(t *testing.T) {
	for _, c := range []struct {
		name       string
		upTo, from int // borders: offered in order up to upTo; then, if from > 0, 50 bytes behind from
		end        int
		cut        bool
	}{
		{name: "at a border", upTo: 1, end: 1},
		{name: "in an FPDU", upTo: 2, end: 1, cut: true},
		{name: "bytes behind the end", upTo: 1, from: 2, end: 1},
		{name: "bytes at the end", upTo: 2, end: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newRig(t, Framing{CRC: true}, 100, 100, 100)
			end, upTo := g.borders[c.end], g.borders[c.upTo]
			if c.cut {
				end, upTo = end+50, end+50
			}
			g.offer(0, upTo)
			if c.from > 0 {
				g.offer(g.borders[c.from], g.borders[c.from]+50)
			}
			g.advance(end)
			if err := g.r.Closed(seq.Num(1000).Add(end)); (err != nil) != c.cut || c.cut &&
				codeOf(err) != ulpdu.CodeClosed {
				t.Error(err)
			}
			if kept, err := g.try(g.stream[upTo:], upTo); kept != 0 ||
				codeOf(err) != ulpdu.CodeClosed {
				t.Errorf("after the end: kept %d, %v", kept, err)
			}
			if n := g.r.Stats().AfterEnd; n != uint64(len(g.stream)-upTo) {
				t.Errorf("%d bytes counted after the end", n)
			}
			if held, records := g.r.cfg.Pool.InUse(); held != 0 || records != 0 {
				t.Errorf("the pool has %d bytes and %d records in use", held, records)
			}
		})
	}
}

// TestWorkIsLinearInBytes checks that an FPDU that arrives in many small parts is read from about as many pieces as it
// has blocks, not from as many as it had parts, and is delivered.
func TestWorkIsLinearInBytes(t *testing.T) {
	g := newRig(t, Framing{Markers: true, CRC: true}, MaxULPDU, MaxULPDU)
	for p := 0; p < len(g.stream); p += 3 {
		q := min(p+3, len(g.stream))
		g.offer(p, q)
		if err := g.advance(q); err != nil {
			t.Fatal(err)
		}
		if x := cap(g.r.cfg.Pool.pieces); x > MaxFPDU/blockSize*2+10 {
			t.Fatalf("%d pieces", x)
		}
	}
	if s := g.r.Stats(); len(g.sink.delivered) != 2 || s.HeldHighWater > MaxFPDU ||
		s.Spanning != 2 {
		t.Errorf("%d delivered, %+v", len(g.sink.delivered), s)
	}
}

// TestBeyond4GiB reads FPDUs where the stream offset does not fit 32 bits any more.
//
//req:rfc5044-4.3-4
func TestBeyond4GiB(t *testing.T) {
	for _, f := range framings {
		for seed := range uint64(20) {
			g := newRig(t, f, 700, 900, 1436, 30, 2000)
			base := int64(1)<<32*int64(1+seed%3) - int64(seed)*MarkerInterval
			g.r.inOrder = part{start: base, end: base, chainStart: base, chainEnd: base,
				records: noRecords}
			order := rand.New(rand.NewPCG(seed, 1)).Perm(len(g.borders) - 1)
			at := seq.Num(1000) + seq.Num(uint32(base))
			for _, i := range order {
				b := g.stream[g.borders[i]:g.borders[i+1]]
				kept, err := g.r.Offer(at.Add(g.borders[i]), [][]byte{b}, len(b), checksum.Known{})
				if kept != len(b) || err != nil {
					t.Fatalf("FPDU %d at %#x: kept %d, %v", i, base, kept, err)
				}
			}
			if err := g.r.Advance(at.Add(len(g.stream))); err != nil || len(g.sink.delivered) != 5 {
				t.Fatalf("at %#x: %d delivered, %v", base, len(g.sink.delivered), err)
			}
		}
	}
}

// TestTimeOutReportsIncompleteFPDU: an incomplete FPDU is reported with its received length, only while it is
// incomplete. A marker may precede the length field.
func TestTimeOutReportsIncompleteFPDU(t *testing.T) {
	plain, marked := Framing{CRC: true}, Framing{CRC: true, Markers: true}
	for _, c := range []struct {
		f    Framing
		n    int // bytes of the second FPDU that arrive
		want string
	}{
		{plain, 0, ""},
		{plain, 1, "FPDU at stream offset 512: 1 bytes arrived"},
		{plain, 2, "FPDU at stream offset 512, length field 100: 2 bytes arrived"},
		{marked, 5, "FPDU at stream offset 512: 5 bytes arrived"},
		{marked, 6, "FPDU at stream offset 512, length field 100: 6 bytes arrived"},
		{marked, 111, "length field 100: 111 bytes arrived"},
		{marked, 112, ""},
	} {
		first := 506
		if c.f.Markers {
			first -= MarkerLen
		}
		g := newRig(t, c.f, first, 100)
		g.init(ReceiverConfig{Strict: true})
		from := 0
		for _, end := range []int{512, 512 + c.n} {
			g.offer(from, end)
			g.advance(end)
			from = end
		}
		next, came := g.r.Incomplete()
		if c.want == "" {
			if came != next {
				t.Errorf("%d bytes: incomplete from %d to %d", c.n, next, came)
			}
			continue
		}
		if next != 512 || came != int64(512+c.n) {
			t.Errorf("%d bytes: incomplete from %d to %d", c.n, next, came)
		}
		if err := g.r.TimeOut(); err.Code != ulpdu.CodeCRC ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%d bytes: %v, want %q", c.n, err, c.want)
		}
		if next, came := g.r.Incomplete(); next != came {
			t.Errorf("%d bytes: incomplete behind the end", c.n)
		}
	}
}
