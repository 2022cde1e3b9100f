package mpa

import (
	"flag"
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

var wholeWorlds = flag.Bool("mpa.worlds", false, "TestSmallWorlds enumerates all of its cases")

// bound is how much of a small world is enumerated.
type bound struct {
	segments int  // most segments
	fine     bool // cut also next to each border of a field, where a comparison could be off by one
	faults   bool // each duplicate and each wrong byte too
}

// smallStream is a stream of a few FPDUs, and the places where it is cut.
type smallStream struct {
	cfg     ReceiverConfig
	sizes   []int // bytes of the ULPDUs
	sink    sinkKind
	stream  []byte
	borders []int
	slots   []slot
}

// slot is one place to cut, or a run of places that are alike: the bytes between two features of an FPDU.
// Cuts in such a run differ in how many there are and not in where they are, so the first few bytes of the
// run stand for all of it.
type slot struct{ at, n int }

// layouts are the ULPDUs of small streams. With markers, which stand at 0, 512 and 1024, they bring about: a
// marker in the middle of an FPDU, in front of one, at its CRC, two in one, and FPDUs without any.
var layouts = []struct {
	name   string
	marked bool
	sizes  []int
}{
	{"five of a few bytes", false, []int{6, 2, 9, 1, 5}},
	{"markers in the second and the fourth", true, []int{40, 460, 6, 520, 30}},
	{"markers in front of the third and at the CRC of the fourth", true, []int{490, 2, 20, 464, 6}},
	{"a marker in each", true, []int{506, 502, 502, 502, 502}},
	{"two markers in one", true, []int{6, 1030, 10, 3, 1}},
}

// slotsOf returns the places to cut.
func (w *smallStream) slotsOf(fine bool) (s []slot) {
	feature := make([]bool, len(w.stream)+1)
	set := func(at ...int) {
		for _, p := range at {
			if p > 0 && p < len(w.stream) {
				feature[p] = true
			}
		}
	}
	for i, b := range w.borders[:len(w.borders)-1] {
		length := b
		if w.cfg.Markers && b%MarkerInterval == 0 {
			length += MarkerLen // a marker is in front of the length
		}
		set(b, length+1)
		if fine {
			set(length, length+lengthLen, w.borders[i+1]-crcLen, w.borders[i+1]-1)
		}
	}
	for m := 0; w.cfg.Markers && m < len(w.stream); m += MarkerInterval {
		set(m + 2)
		if fine {
			set(m, m+1, m+MarkerLen)
		}
	}
	for p := 1; p < len(w.stream); {
		q := p + 1
		if !feature[p] {
			for q < len(w.stream) && !feature[q] {
				q++
			}
		}
		s = append(s, slot{p, q - p})
		p = q
	}
	return s
}

// cuts calls do with the ends of the segments of each cut into at most the given number of segments, until do returns
// false. It reports whether all were tried.
func (w *smallStream) cuts(segments int, do func(ends []int) bool) bool {
	ends := make([]int, 0, segments)
	var pick func(i int) bool
	pick = func(i int) bool {
		if i == len(w.slots) {
			return do(append(ends, len(w.stream)))
		}
		n := len(ends)
		for k := 0; k <= w.slots[i].n && n+k < segments; k++ {
			if k > 0 {
				ends = append(ends, w.slots[i].at+k-1)
			}
			if !pick(i + 1) {
				return false
			}
		}
		ends = ends[:n]
		return true
	}
	return pick(0)
}

// orders are the permutations of up to six segments.
var orders = func() (all [7][][]int) {
	all[0] = [][]int{{}}
	for k := 1; k <= 6; k++ {
		for _, o := range all[k-1] {
			for at := range k {
				all[k] = append(all[k], slices.Insert(slices.Clone(o), at, k-1))
			}
		}
	}
	return all
}()

// newSmallStream encodes a stream.
func newSmallStream(cfg ReceiverConfig, sizes []int, kind sinkKind, fine bool) *smallStream {
	w := &smallStream{cfg: cfg, sizes: sizes, sink: kind, borders: []int{0}}
	for i, n := range sizes {
		w.stream = append(w.stream, encode(cfg.Framing, len(w.stream), ulpduOf(i, n))...)
		w.borders = append(w.borders, len(w.stream))
	}
	w.cfg.Pool = NewPool(0, 0)
	w.slots = w.slotsOf(fine)
	return w
}

// plain tries every cut, order and fault within b one after the other, with the defect spoil.
//
// Two kinds of case are left out, because each equals another case. A segment that is lost and comes again is the same
// segment in a later place of the order. Bytes that come again in other segments than before are offered by TCP only
// where they are missing, and that is another cut.
func (w *smallStream) plain(b bound, spoil func(*smallRun, int, int) int) (t tally) {
	run := newSmallRun(w)
	run.spoil = spoil
	try := func(c smallCase) {
		t.cases++
		if run.try(c) != "" {
			t.failed++
			run.empty() // it may have taken from the pool
		}
	}
	w.cuts(b.segments, func(ends []int) bool {
		for _, order := range orders[len(ends)] {
			c := smallCase{ends: ends, order: order, again: noFault, wrong: noFault}
			if try(c); b.faults {
				w.withFaults(c, try)
			}
		}
		return true
	})
	return t
}

// withFaults tries c with each segment once more in each later place, and with a wrong byte in each
// segment the first time that it comes.
func (w *smallStream) withFaults(c smallCase, try func(smallCase)) {
	for first, seg := range c.order {
		for after := first; after < len(c.order); after++ {
			d := c
			d.again, d.after = seg, after
			try(d)
		}
	}
	start := 0
	for _, end := range c.ends {
		d := c
		for d.wrong = range w.wrongBytes(start, end) {
			try(d)
		}
		start = end
	}
}

// wrongBytes yields the offsets of the first and the last byte of a segment, and of the first byte of each FPDU between
// them. Without a CRC it yields none, because no check would find a wrong byte.
func (w *smallStream) wrongBytes(start, end int) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		if !w.cfg.CRC || !yield(start) || end-1 > start && !yield(end-1) {
			return
		}
		for _, b := range w.borders {
			if b > start && b < end-1 && !yield(b) {
				return
			}
		}
	}
}

// TestSmallWorlds enumerates small streams instead of drawing them: five FPDUs with and without markers, cut into a few
// segments at every place, in every order, one of them twice, one lost, or with one wrong byte. After each segment the
// placed, delivered, held and acknowledged bytes are compared with what RFC 5044 allows a receiver to know. With
// -mpa.worlds there are more segments, and also streams of fewer FPDUs.
//
//req:rfc5044-3-4 rfc5044-4.3-6 rfc5044-5.2-1 rfc5044-8-5 rfc5044-A.4-1 rfc5041-2.3-7
func TestSmallWorlds(t *testing.T) {
	bounds, fewest := []bound{{segments: 3, faults: true}, {segments: 3, fine: true},
		{segments: 4}}, 5
	if *wholeWorlds {
		bounds = []bound{{segments: 4, fine: true, faults: true},
			{segments: maxSegments, faults: true}}
		fewest = 1
	}
	var cases, nodes atomic.Uint64
	begin := time.Now()
	t.Run("all", func(t *testing.T) {
		for _, l := range layouts {
			for _, cfg := range smallConfigs(l.marked) {
				for n := fewest; n <= len(l.sizes); n++ {
					t.Run(fmt.Sprintf("%s/%s/strict=%v/%d", l.name, cfg.label(), cfg.Strict, n),
						func(t *testing.T) {
							t.Parallel()
							for _, b := range bounds {
								tryAll(t, cfg, l.sizes[:n], b, &cases, &nodes)
							}
						})
				}
			}
		}
	})
	t.Logf("%d cases, as ways through %d nodes, in %v", cases.Load(), nodes.Load(),
		time.Since(begin).Round(time.Second))
}

// tryAll enumerates the cases within b with each kind of sink. For the largest bound it uses mixedSink only, which has
// FPDUs of each kind.
func tryAll(t *testing.T, cfg ReceiverConfig, sizes []int, b bound, cases, nodes *atomic.Uint64) {
	for _, kind := range []sinkKind{deliverAll, mixedSink} {
		if kind == deliverAll && b.segments == maxSegments {
			continue
		}
		begin := time.Now()
		m := newMerged(newSmallStream(cfg, sizes, kind, b.fine))
		n := m.enumerate(b)
		cases.Add(n.cases)
		nodes.Add(m.nodes)
		if m.first != "" {
			t.Fatalf("sink %d, %+v: %d of %d cases failed, %s", kind, b, n.failed, n.cases,
				m.first)
		}
		t.Logf("sink %d, %+v: %d cases, %d nodes, %v", kind, b, n.cases, m.nodes,
			time.Since(begin).Round(time.Millisecond))
	}
}

// smallConfigs returns the configurations of a receiver: without CRC, with CRC, and with a strict CRC.
func smallConfigs(markers bool) (all []ReceiverConfig) {
	for i := range 3 {
		f := Framing{Markers: markers, CRC: i > 0}
		all = append(all, ReceiverConfig{Framing: f, Strict: i > 1})
	}
	return all
}

// TestSmallWorldsReach checks that the enumeration is complete: each cut of a short stream into at most three segments,
// where cuts that are alike count once, and all orders of up to six segments.
func TestSmallWorldsReach(t *testing.T) {
	w := newSmallStream(ReceiverConfig{Framing: Framing{CRC: true}}, []int{2}, deliverAll, true)
	seen := map[string]bool{}
	w.cuts(3, func(ends []int) bool {
		seen[fmt.Sprint(ends)] = true
		return true
	})
	// An FPDU of eight bytes has seven places, of which 5 and 6 are alike: six single cuts, and of the pairs
	// fifteen of two kinds and one within the run.
	if len(w.stream) != 8 || len(seen) != 1+6+15+1 {
		t.Errorf("%d cuts of %d bytes: %v", len(seen), len(w.stream), w.slots)
	}
	for k, n := range []int{1, 1, 2, 6, 24, 120, 720} {
		distinct := map[string]bool{}
		for _, o := range orders[k] {
			set := 0
			for _, s := range o {
				set |= 1 << s
			}
			if distinct[fmt.Sprint(o)] = true; bits.OnesCount(uint(set)) != k {
				t.Errorf("%v is no order of %d", o, k)
			}
		}
		if len(distinct) != n {
			t.Errorf("%d orders of %d segments", len(distinct), k)
		}
	}
}
