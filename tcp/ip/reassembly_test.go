package ip

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"xwarp/tcp/tick"
)

// TestReassemblyKey: in IPv4 the protocol distinguishes datagrams (RFC 791, 3.2). In IPv6 it does not: the next headers
// of fragments may differ, and the first fragment's applies (RFC 8200, 4.5).
func TestReassemblyKey(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, c := range []struct {
			name   string
			change func(*Header)
			whole  bool
		}{
			{"nothing", func(*Header) {}, true},
			{"source", func(h *Header) { h.Src[15]++ }, false},
			{"destination", func(h *Header) { h.Dst[15]++ }, false},
			{"identification", func(h *Header) { h.ID++ }, false},
			{"protocol", func(h *Header) { h.Proto = 17 }, v6},
		} {
			hs, ps := cut(v6, 1, make([]byte, 32), 16)
			var re Reassembler
			re.Init(4)
			re.Add(&hs[0], ps[0], 0)
			c.change(&hs[1])
			b := re.Add(&hs[1], ps[1], 0)
			if (b != nil) != c.whole || b != nil && hs[1].Proto != 6 {
				t.Errorf("version 6 %v, another %s: %d bytes, protocol %d", v6, c.name, len(b),
					hs[1].Proto)
			}
			h := &hs[1]
			if b != nil && (h.Fragment || h.FragMore || h.FragOff != 0 || h.PayloadLen != 32) {
				t.Errorf("version 6 %v: the header of the datagram is %+v", v6, h)
			}
		}
	}
}

// TestReassemblyEviction: if no slot is free, a new datagram replaces the oldest, whichever slot that has.
func TestReassemblyEviction(t *testing.T) {
	var re Reassembler
	re.Init(3)
	now := tick.Time(0)
	add := func(id uint32, part int) bool {
		hs, ps := cut(false, id, make([]byte, 32), 16)
		now++
		return re.Add(&hs[part], ps[part], now) != nil
	}
	for id := range uint32(3) {
		add(id, 0)
	}
	if !add(0, 1) {
		t.Fatal("the first is not whole")
	}
	add(3, 0) // in the slot of the first
	add(4, 0)
	if n := re.Counters().Evicted; n != 1 {
		t.Errorf("%d evicted", n)
	}
	for id := uint32(4); id > 0; id-- {
		if whole := add(id, 1); whole != (id > 1) {
			t.Errorf("%d whole: %v", id, whole)
		}
	}
}

// TestReassemblyHoles: a datagram may have maxHoles holes, including the one behind all fragments. With one more it is
// dropped. RFC 815, 3 has no limit.
func TestReassemblyHoles(t *testing.T) {
	const last = -1 // stands for the offset 8 bytes behind the start of the last hole
	for _, c := range []struct {
		name  string
		holes int // before the tested fragment
		off   int // of the tested fragment, in bytes
		more  bool
		want  int // holes after it; 0: too many
	}{
		{"splits the last but one", maxHoles - 1, last, true, maxHoles},
		{"splits the last", maxHoles, last, true, 0},
		{"the end is behind the last", maxHoles, last, false, maxHoles},
		{"splits the first, one less", maxHoles - 1, 8, true, maxHoles},
		{"splits the first", maxHoles, 8, true, 0},
		{"begins the first", maxHoles, 0, true, maxHoles},
		{"ends the first", maxHoles, 16, true, maxHoles},
		{"fills the second", maxHoles, 32, true, maxHoles - 1},
	} {
		var re Reassembler
		re.Init(1)
		add := func(off int, more bool) {
			re.Add(&Header{Src: v4a, Dst: v4b, Proto: 6, ID: 1, Fragment: true, FragMore: more,
				FragOff: off, PayloadLen: 8}, make([]byte, 8), 0)
		}
		end := 24               // the first hole has room for three fragments, the others for one
		for range c.holes - 1 { // the first fragment makes two holes
			add(end, true)
			end += 16
		}
		if c.off == last {
			c.off = end
		}
		add(c.off, c.more)
		d, n := &re.slots[0], re.Counters()
		if d.dead != (c.want == 0) || !d.dead && d.nHoles != c.want ||
			n.Overlaps+n.Duplicates > 0 || (n.TooMany == 1) != d.dead {
			t.Errorf("%s: %d holes, want %d: %+v", c.name, d.nHoles, c.want, n)
		}
	}
}

// TestReassemblyLengths: a datagram may have 65535 bytes. A longer one is dropped, and its further fragments are
// ignored until its time is over. A datagram that is incomplete after its time is dropped, too (RFC 1122, 3.3.2).
func TestReassemblyLengths(t *testing.T) {
	const most = maxDatagram &^ 7 // offset of the last fragment of the longest datagram
	for _, c := range []struct {
		size    int
		tooLong uint64
	}{{maxDatagram - most - 1, 0}, {maxDatagram - most, 0}, {maxDatagram - most + 1, 1}} {
		var re Reassembler
		re.Init(1)
		h := Header{Src: v4a, Dst: v4b, Proto: 6, ID: 1, Fragment: true, FragOff: most}
		re.Add(&h, make([]byte, c.size), 0)
		h = Header{Src: v4a, Dst: v4b, Proto: 6, ID: 1, Fragment: true, FragMore: true}
		got := re.Add(&h, make([]byte, most), tick.Time(reassemblyTime)-1)
		n := re.Counters()
		if (got != nil) != (c.tooLong == 0) || n.TooLong != c.tooLong || got != nil &&
			(len(got) != most+c.size || h.PayloadLen != len(got)) {
			t.Errorf("%d bytes: %d, %+v", most+c.size, len(got), n)
		}
	}
	for _, wait := range []tick.Duration{-1, 0} {
		hs, ps := cut(false, 1, make([]byte, 32), 16)
		var re Reassembler
		re.Init(1)
		re.Add(&hs[0], ps[0], 5)
		whole := re.Add(&hs[1], ps[1], tick.Time(5).Add(reassemblyTime+wait)) != nil
		if whole != (wait < 0) || re.Counters().Timeouts != uint64(1+wait) {
			t.Errorf("whole %v, %+v", whole, re.Counters())
		}
	}
}

// TestReassemblyCapacity: a limit outside 1 to MaxDatagrams means MaxDatagrams.
func TestReassemblyCapacity(t *testing.T) {
	for limit, want := range map[int]int{-1: MaxDatagrams, 0: MaxDatagrams, 1: 1, 2: 2,
		MaxDatagrams: MaxDatagrams, MaxDatagrams + 1: MaxDatagrams} {
		var re Reassembler
		re.Init(limit)
		if len(re.slots) != want {
			t.Errorf("limit %d: %d datagrams", limit, len(re.slots))
		}
	}
}

// TestReassembledExtensions: extension headers behind the fragment header begin in the first fragment, and Add skips
// them in the datagram. It drops a datagram with an extension header beyond its end, or with a fragment in a fragment.
func TestReassembledExtensions(t *testing.T) {
	fragment := func(more byte) []byte { return []byte{6, 0, 0, more, 0, 0, 0, 9} }
	for _, c := range []struct {
		name  string
		proto uint8
		body  []byte
		want  int // bytes of payload, -1: none
	}{
		{"none", 6, nil, 32},
		{"options", ProtoDestOpts, []byte{6, 0, 1, 4, 0, 0, 0, 0}, 32},
		{"options that go on in the next fragment", ProtoDestOpts,
			append([]byte{6, 2, 1, 20}, make([]byte, 20)...), 32},
		{"options beyond the end", ProtoDestOpts, []byte{6, 5, 1, 4, 0, 0, 0, 0}, -1},
		{"options and nothing else", ProtoDestOpts, []byte{6, 4, 1, 36, 0, 0, 0, 0}, 0},
		{"an atomic fragment", ProtoFragment, fragment(0), 32},
		{"a fragment", ProtoFragment, fragment(1), -1},
	} {
		hs, ps := cut(true, 1, append(c.body, make([]byte, 32)...), 16)
		var re Reassembler
		re.Init(1)
		var got []byte
		for i := range hs {
			hs[i].Proto = c.proto
			if b := re.Add(&hs[i], ps[i], 0); b != nil {
				got = b
			}
		}
		last := hs[len(hs)-1]
		if (got == nil) != (c.want < 0) || got != nil && (len(got) != c.want ||
			last.PayloadLen != c.want || last.Proto != 6 || last.Fragment) {
			t.Errorf("%s: %d bytes, want %d: %+v", c.name, len(got), c.want, last)
		}
	}
}

// TestReassembledECN: CE in one fragment marks the datagram, a codepoint that all fragments carry is kept, and CE
// together with Not-ECT drops the datagram (RFC 3168, 5.3).
func TestReassembledECN(t *testing.T) {
	for _, c := range []struct {
		tos  [3]uint8
		want uint8
	}{
		{[3]uint8{0, 0, 0}, 0}, {[3]uint8{1, 1, 1}, 1}, {[3]uint8{2, 2, 2}, 2},
		{[3]uint8{3, 3, 3}, 3}, {[3]uint8{3, 2, 2}, 3}, {[3]uint8{2, 3, 2}, 3},
		{[3]uint8{1, 1, 3}, 3}, {[3]uint8{0xba, 0xbb, 0xba}, 0xbb},
		{[3]uint8{0xb8, 0xb8, 0xb8}, 0xb8},
	} {
		hs, ps := cut(false, 1, make([]byte, 24), 8)
		var re Reassembler
		re.Init(1)
		for i := range hs {
			hs[i].TOS = c.tos[i]
			re.Add(&hs[i], ps[i], 0)
		}
		if got := hs[2].TOS; got != c.want {
			t.Errorf("% x: %#x, want %#x", c.tos, got, c.want)
		}
	}
	for _, tos := range [][3]uint8{{0, 3, 3}, {3, 0, 3}, {3, 3, 0}, {0, 2, 3}} { // CE together with Not-ECT
		hs, ps := cut(false, 1, make([]byte, 24), 8)
		var re Reassembler
		re.Init(1)
		for i := range hs {
			hs[i].TOS = tos[i]
			if b := re.Add(&hs[i], ps[i], 0); b != nil {
				t.Errorf("% x: a datagram with %#x", tos, hs[i].TOS)
			}
		}
		if n := re.Counters(); n.MixedECN != 1 || n.Whole != 0 {
			t.Errorf("% x: %+v", tos, n)
		}
		hs, ps = cut(false, 2, make([]byte, 16), 8) // the next datagram in the same slot, with Not-ECT only
		re.Add(&hs[0], ps[0], 0)
		if re.Add(&hs[1], ps[1], 0) == nil || hs[1].TOS != 0 {
			t.Errorf("% x: the next datagram is gone, too", tos)
		}
	}
}

// cut splits the payload data into fragments of at most size bytes, rounded down to a multiple of 8.
func cut(v6 bool, id uint32, data []byte, size int) (hs []Header, ps [][]byte) {
	size &^= 7
	for off := 0; off < len(data); off += size {
		n := min(size, len(data)-off)
		h := Header{V6: v6, Src: v4a, Dst: v4b, Proto: 6, ID: id, Fragment: true,
			FragMore: off+n < len(data), FragOff: off, PayloadLen: n}
		if v6 {
			h.Src, h.Dst = v6a, v6b
		}
		hs, ps = append(hs, h), append(ps, data[off:off+n])
	}
	return hs, ps
}

// TestReassembly puts fragments together in any order, several datagrams at a time, with duplicates.
func TestReassembly(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for run := range 500 {
		var re Reassembler
		re.Init(4)
		type item struct {
			h Header
			p []byte
		}
		var items []item
		want := map[uint32][]byte{}
		for id := range uint32(3) {
			data := make([]byte, 100+r.IntN(3000))
			for i := range data {
				data[i] = byte(r.Uint32())
			}
			want[id] = data
			hs, ps := cut(r.IntN(2) == 0, id, data, max(8, len(data)/(2+r.IntN(20)))+8)
			for i := range hs {
				items = append(items, item{hs[i], ps[i]})
				if r.IntN(5) == 0 {
					items = append(items, item{hs[i], ps[i]})
				}
			}
		}
		r.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
		got := 0
		for _, it := range items {
			h := it.h
			if b := re.Add(&h, it.p, 0); b != nil {
				if !bytes.Equal(b, want[h.ID]) || h.Fragment || h.PayloadLen != len(b) ||
					h.Proto != 6 {
					t.Fatalf("run %d: datagram %d is wrong: %+v", run, h.ID, h)
				}
				got++
			}
		}
		if got != 3 {
			t.Fatalf("run %d: %d of 3 datagrams: %+v", run, got, re.Counters())
		}
	}
}

func TestReassemblyRefuses(t *testing.T) {
	data := make([]byte, 200)
	frag := func(off, n int, more bool) (Header, []byte) {
		return Header{Src: v4a, Dst: v4b, Proto: 6, ID: 1, Fragment: true, FragOff: off,
			FragMore: more, PayloadLen: n}, make([]byte, n)
	}
	type f struct {
		off, n int
		more   bool
	}
	for _, c := range []struct {
		name     string
		fs       []f
		ok       bool
		overlaps uint64
	}{
		{"in order", []f{{0, 80, true}, {80, 20, false}}, true, 0},
		{"overlap at the end", []f{{0, 80, true}, {72, 28, false}, {80, 20, false}, {0, 80, true}},
			false, 1},
		{"overlap in front", []f{{80, 20, false}, {0, 88, true}, {0, 80, true}}, false, 1},
		{"tiny overlap of the header", []f{{0, 24, true}, {16, 80, true}, {96, 8, false},
			{24, 72, true}}, false, 1},
		{"two ends", []f{{80, 20, false}, {88, 20, false}, {0, 80, true}}, false, 1},
		{"beyond the end", []f{{80, 16, false}, {96, 8, true}, {0, 80, true}}, false, 1},
		{"one byte beyond it", []f{{80, 15, false}, {80, 16, true}, {0, 80, true}}, false, 1},
		{"end before what came", []f{{80, 16, true}, {40, 16, false}, {0, 40, true},
			{56, 24, true}}, false, 1},
		{"not a multiple of 8", []f{{0, 79, true}, {79, 1, false}}, false, 0},
		{"empty", []f{{0, 80, true}, {80, 0, false}}, false, 0},
		{"ping of death", []f{{65528, 80, false}, {0, 65528, true}}, false, 0},
		{"exact duplicate", []f{{0, 80, true}, {0, 80, true}, {80, 20, false}}, true, 0},
		{"duplicate of the end", []f{{80, 20, false}, {80, 20, false}, {0, 80, true}}, true, 0},
	} {
		var re Reassembler
		re.Init(0)
		whole := false
		for _, x := range c.fs {
			h, p := frag(x.off, x.n, x.more)
			whole = whole || re.Add(&h, p, 0) != nil
		}
		if n := re.Counters(); whole != c.ok || n.Overlaps != c.overlaps {
			t.Errorf("%s: whole %v, want %v, %d overlaps: %+v", c.name, whole, c.ok, c.overlaps, n)
		}
	}
	// After its time, the slot and the identification of a dropped datagram can be used again.
	var re Reassembler
	re.Init(1)
	h, p := frag(0, 80, true)
	re.Add(&h, p, 0)
	h, p = frag(72, 8, true)
	re.Add(&h, p, 0)
	later := tick.Time(31 * tick.Second)
	h, p = frag(0, 80, true)
	re.Add(&h, p, later)
	h, p = frag(80, 8, false)
	if re.Add(&h, p, later) == nil || re.Counters().Timeouts != 1 {
		t.Errorf("%+v", re.Counters())
	}
	// More datagrams than slots: each new one replaces the oldest.
	re.Init(2)
	for id := range uint32(5) {
		h, p := frag(0, 80, true)
		h.ID = id
		re.Add(&h, p, tick.Time(id))
	}
	if re.Counters().Evicted != 3 {
		t.Errorf("%+v", re.Counters())
	}
	if n := testing.AllocsPerRun(100, func() {
		h, p := Header{Src: v4a, Dst: v4b, Proto: 6, ID: 3, Fragment: true, FragMore: true,
			PayloadLen: 8}, data[:8]
		re.Add(&h, p, 5)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	// CE in any fragment marks the datagram (RFC 3168, 5.3).
	re.Init(1)
	h, p = frag(0, 80, true)
	h.TOS = 2
	re.Add(&h, p, 0)
	h, p = frag(80, 8, true)
	h.TOS = 3
	re.Add(&h, p, 0)
	h, p = frag(88, 8, false)
	h.TOS = 2
	if re.Add(&h, p, 0) == nil || h.TOS&3 != 3 {
		t.Errorf("the mark is lost: %#x", h.TOS)
	}
}
