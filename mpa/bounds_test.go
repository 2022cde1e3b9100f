package mpa

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"xwarp/mpa/ulpdu"
	"xwarp/tcp/checksum"
	"xwarp/tcp/seq"
)

// TestRefusedOutOfOrder checks that an FPDU which the sink cannot place early is held and placed in its turn.
func TestRefusedOutOfOrder(t *testing.T) {
	g := newRig(t, Framing{Markers: true, CRC: true}, 700, 900, 800)
	g.sink.refuse = func(u []byte, inOrder bool) *ulpdu.Error {
		if u[0] == 2 && !inOrder {
			return ulpdu.Newf(ulpdu.DDP, 2, 2, "no buffer")
		}
		return nil
	}
	g.offer(g.borders[1], g.borders[3])
	if s := g.r.Stats(); len(g.sink.placed) != 1 || s.HeldWhole != 1 ||
		s.HeldBytes != g.borders[2]-g.borders[1] {
		t.Fatalf("%d placed, %+v", len(g.sink.placed), s)
	}
	g.offer(0, g.borders[1])
	g.advance(len(g.stream))
	if len(g.sink.delivered) != 3 || !g.sink.order[2] || g.sink.placed[2][0] != 2 ||
		g.r.Stats().HeldBytes != 0 {
		t.Errorf("delivered %d, order %v, %+v", len(g.sink.delivered), g.sink.order, g.r.Stats())
	}
	// In order the refusal is final, and nothing is delivered from there on.
	g.init(ReceiverConfig{})
	g.sink.refuse = func(u []byte, inOrder bool) *ulpdu.Error {
		if u[0] == 2 {
			return ulpdu.Newf(ulpdu.DDP, 1, 0, "no such STag")
		}
		return nil
	}
	g.offer(g.borders[1], g.borders[3])
	g.offer(0, g.borders[1])
	err := g.advance(len(g.stream))
	if err == nil || err.Layer != ulpdu.DDP || len(g.sink.delivered) != 1 {
		t.Errorf("%v, %d delivered", err, len(g.sink.delivered))
	}
	if e := g.advance(len(g.stream)); e != err || len(g.sink.delivered) != 1 {
		t.Errorf("after the error: %v, %d delivered", e, len(g.sink.delivered))
	}
}

// TestLimitsKeepTheStreamGoing checks each limit: bytes beyond it are not kept. With a full pool or without a free
// record, FPDUs in order are still placed.
func TestLimitsKeepTheStreamGoing(t *testing.T) {
	f := Framing{CRC: true}
	sizes := make([]int, 100)
	for i := range sizes {
		sizes[i] = 1000
	}
	t.Run("bytes of one connection", func(t *testing.T) {
		g := newRig(t, f, sizes...)
		g.init(ReceiverConfig{ReassemblyLimit: 16 << 10})
		kept, err := g.try(g.stream[g.borders[1]:], g.borders[1])
		if err != nil || kept != 16<<10-g.borders[1] { // blocks from the start of the stream on
			t.Fatalf("kept %d, %v", kept, err)
		}
		if g.r.Space() != 0 || g.r.Stats().LimitDrops != uint64(len(g.stream)-g.borders[1]-kept) {
			t.Errorf("Space %d, %+v", g.r.Space(), g.r.Stats())
		}
	})
	t.Run("records behind a hole", func(t *testing.T) {
		g := newRig(t, Framing{Markers: true, CRC: true}, sizes...)
		g.init(ReceiverConfig{Pool: NewPool(0, 1)})
		g.offer(g.borders[1], g.borders[2])
		if kept, err := g.try(g.stream[g.borders[2]:g.borders[3]], g.borders[2]); kept != 0 ||
			err != nil {
			t.Fatalf("kept %d without a record, %v", kept, err)
		}
		if s := g.r.Stats(); s.LimitDrops != uint64(g.borders[3]-g.borders[2]) {
			t.Errorf("%+v", s)
		}
	})
	t.Run("whole blocks", func(t *testing.T) {
		for held, want := range map[int]int{1: 1, blockSize: 1, blockSize + 1: 2,
			3*blockSize - 1: 3} {
			pool, n := NewPool(held, 0), 0
			for ; n <= want; n++ {
				if _, ok := pool.newBlock(false); !ok {
					break
				}
			}
			if n != want {
				t.Errorf("%d blocks for %d bytes, want %d", n, held, want)
			}
		}
	})
	t.Run("bytes of a worker", func(t *testing.T) {
		pool := NewPool(16<<10, 0)
		a, b := newRig(t, f, sizes...), newRig(t, f, sizes...)
		a.init(ReceiverConfig{Pool: pool})
		b.init(ReceiverConfig{Pool: pool})
		a.try(a.stream[a.borders[1]:], a.borders[1])
		if kept, err := b.try(b.stream[b.borders[1]:], b.borders[1]); kept != 0 || err != nil {
			t.Fatalf("kept %d of a full pool, %v", kept, err)
		}
		// In order a part of an FPDU is kept even so: otherwise the left edge would never move.
		b.offer(0, 500)
		b.offer(500, b.borders[1])
		if len(b.sink.placed) != 1 {
			t.Error("no progress with a full pool")
		}
		a.r.Release()
		b.r.Release()
		if held, records := pool.InUse(); held != 0 || records != 0 {
			t.Errorf("%d bytes, %d records in use after Release", held, records)
		}
	})
	t.Run("one byte, one record", func(t *testing.T) {
		g := newRig(t, f, sizes...)
		g.init(ReceiverConfig{ReassemblyLimit: 1}) // one block
		if kept, err := g.try(g.stream[2:2*blockSize], 2); kept != blockSize-2 || err != nil {
			t.Errorf("kept %d bytes, %v", kept, err)
		}
		g = newRig(t, Framing{Markers: true, CRC: true}, sizes...)
		g.init(ReceiverConfig{RecordLimit: 1})
		g.offer(g.borders[1], g.borders[2])
		if kept, err := g.try(g.stream[g.borders[2]:g.borders[3]], g.borders[2]); kept != 0 ||
			err != nil {
			t.Errorf("kept %d behind the only record, %v", kept, err)
		}
	})
	t.Run("records", func(t *testing.T) {
		g := newRig(t, Framing{Markers: true, CRC: true}, sizes...)
		g.init(ReceiverConfig{RecordLimit: 10})
		kept, err := g.try(g.stream[g.borders[2]:], g.borders[2])
		if err != nil || kept != g.borders[12]-g.borders[2] || g.r.Stats().Records != 10 {
			t.Fatalf("kept %d (10 FPDUs are %d), %v", kept, g.borders[12]-g.borders[2], err)
		}
		for p := 0; p < len(g.stream); {
			if p == g.borders[2] {
				p = g.borders[12]
			}
			kept, err := g.try(g.stream[p:min(p+5000, len(g.stream))], p)
			if p += kept; err != nil || kept == 0 && g.r.Stats().Records == 0 {
				t.Fatalf("at %d kept %d, %v", p, kept, err)
			}
			if p >= g.borders[2] {
				g.advance(max(p, g.borders[12]))
			} else {
				g.advance(p)
			}
		}
		if len(g.sink.delivered) != len(sizes) {
			t.Errorf("%d delivered", len(g.sink.delivered))
		}
	})
	t.Run("records and a split FPDU before them", func(t *testing.T) {
		const limit = 2 * overdraft
		sizes := make([]int, limit+50)
		for i := range sizes {
			sizes[i] = 100
		}
		g := newRig(t, Framing{Markers: true, CRC: true}, sizes...)
		g.init(ReceiverConfig{RecordLimit: limit})
		first := markerAfter(g.borders)
		kept, err := g.try(g.stream[first:], first)
		if err != nil || g.r.Stats().Records != limit {
			t.Fatalf("%d records of %d, kept %d, %v", g.r.Stats().Records, limit, kept, err)
		}
		behind := first + kept
		for p, tries := 0, 0; p < len(g.stream); tries++ {
			if tries > len(g.stream) {
				t.Fatalf("nothing moves at %d with %d records", p, g.r.Stats().Records)
			}
			kept, err := g.try(g.stream[p:min(p+60, len(g.stream))], p)
			if err != nil {
				t.Fatal(err)
			}
			if p += kept; p >= first {
				p = max(p, behind)
			}
			g.advance(p)
		}
		if len(g.sink.delivered) != len(sizes) {
			t.Errorf("%d delivered of %d", len(g.sink.delivered), len(sizes))
		}
	})
	t.Run("holes", func(t *testing.T) {
		g := newRig(t, Framing{}, 64000)
		for i := range maxIslands + 10 {
			kept, err := g.try([]byte{0}, 10+2*i)
			if want := map[bool]int{true: 1}[i < maxIslands]; kept != want || err != nil {
				t.Fatalf("hole %d: kept %d, %v", i, kept, err)
			}
		}
	})
	t.Run("span", func(t *testing.T) {
		g := newRig(t, Framing{}, 64000)
		if kept, _ := g.try([]byte{0}, maxSpan-1); kept != 1 {
			t.Errorf("within a window: kept %d", kept)
		}
		if kept, _ := g.try([]byte{0}, maxSpan); kept != 0 {
			t.Errorf("beyond any window: kept %d", kept)
		}
	})
}

// markerAfter returns where the first FPDU with a marker begins, not counting the first FPDU of the stream. It returns
// 0 if there is none.
func markerAfter(borders []int) int {
	for i, b := range borders[1:] {
		if b/MarkerInterval != borders[i]/MarkerInterval && i > 0 {
			return borders[i]
		}
	}
	return 0
}

// TestConsecutiveSilentFPDUsShareARecord checks that FPDUs without an effect at delivery share a record, and that the
// others are still delivered.
func TestConsecutiveSilentFPDUsShareARecord(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	f := Framing{Markers: true, CRC: true}
	sink := &checkSink{silent: true}
	stream, borders, sent := newStream(rng, f, func() int { return 1000 }, 400000)
	for i := range sent {
		flags := uint32(noDelivery)
		if i%50 == 7 {
			flags = 0
		}
		binary.BigEndian.PutUint32(sent[i][4:], flags)
		copy(stream[borders[i]:], encode(f, borders[i], sent[i]))
	}
	sink.sent, sink.placed = sent, make([]bool, len(sent))
	var r Receiver
	r.Init(ReceiverConfig{Framing: f, Pool: NewPool(0, 0)}, 0, sink)
	for i := 1; i < len(sent); i++ {
		b := stream[borders[i]:borders[i+1]]
		kept, err := r.Offer(seq.Num(borders[i]), [][]byte{b}, len(b), checksum.Known{})
		if kept != len(b) || err != nil {
			t.Fatal(kept, err)
		}
	}
	if got, want := r.Stats().Records, 2*(len(sent)/50)+3; got > want {
		t.Errorf("%d records for %d FPDUs, want at most %d", got, len(sent), want)
	}
	b := stream[:borders[1]]
	r.Offer(0, [][]byte{b}, len(b), checksum.Known{})
	if err := r.Advance(seq.Num(len(stream))); err != nil {
		t.Fatal(err)
	}
	if s := r.Stats(); len(sink.wrong) > 0 || s.Records != 0 ||
		s.Delivered+s.Silent != uint64(len(sent)) {
		t.Errorf("%v %+v", sink.wrong, s)
	}
}
