package mpa

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// defects are functions that break a receiver. Each is called after an offer of n bytes, of which kept were kept, and
// does something wrong in a state that some of the cases reach. It returns the number of bytes that count as kept.
var defects = map[string]func(x *smallRun, kept, n int) int{
	"none": nil,
	"a refused byte is acknowledged": func(_ *smallRun, kept, n int) int {
		return min(kept+1, n)
	},
	"a record is lost behind another": func(x *smallRun, kept, _ int) int {
		if l := &x.r.inOrder.records; l.n > 1 {
			l.head = x.w.cfg.Pool.records[l.head].next
			l.n--
		}
		return kept
	},
	"a record of the second island is lost": func(x *smallRun, kept, _ int) int {
		if len(x.r.islands) > 1 {
			x.r.islands[1].records = noRecords
		}
		return kept
	},
	"a held byte changes": func(x *smallRun, kept, _ int) int {
		if len(x.r.islands) > 0 {
			if b := x.r.reassembly.at(x.r.islands[0].end - 1); b != nil {
				b[0] ^= 0x10
			}
		}
		return kept
	},
	"an island is forgotten": func(x *smallRun, kept, _ int) int {
		if len(x.r.islands) > 1 {
			x.r.islands = x.r.islands[:1]
		}
		return kept
	},
	"what was refused counts as placed": func(x *smallRun, kept, _ int) int {
		for i := range x.w.cfg.Pool.records {
			if rec := &x.w.cfg.Pool.records[i]; rec.kind == unplaced {
				rec.kind = placed
			}
		}
		return kept
	},
	"a chain is a word too long": func(x *smallRun, kept, _ int) int {
		if n := len(x.r.islands); n > 0 && !x.r.islands[n-1].records.empty() {
			x.r.islands[n-1].chainEnd += 4
		}
		return kept
	},
	"one wrong FPDU ends the stream": func(x *smallRun, kept, _ int) int {
		if x.r.wrong > 0 {
			x.r.endStream(errNotHeld(0))
		}
		return kept
	},
}

// TestMergedWorlds compares merged with plain, which tries the cases one after the other. Both find as many cases and
// as many failures. Cases fail if and only if the receiver is broken.
func TestMergedWorlds(t *testing.T) {
	for name, spoil := range defects {
		t.Run(name, func(t *testing.T) {
			failed := uint64(0)
			for _, l := range layouts[:2] {
				for _, cfg := range smallConfigs(l.marked) {
					for _, kind := range []sinkKind{deliverAll, mixedSink} {
						failed += compare(t, newSmallStream(cfg, l.sizes, kind, false), spoil)
					}
				}
			}
			if failed == 0 != (spoil == nil) {
				t.Errorf("%d cases failed", failed)
			}
		})
	}
}

func compare(t *testing.T, w *smallStream, spoil func(*smallRun, int, int) int) uint64 {
	b := bound{segments: 3, faults: true}
	want := w.plain(b, spoil)
	m := newMerged(w)
	m.spoil = spoil
	if got := m.enumerate(b); got != want {
		t.Errorf("%+v, sink %d: %+v as ways, %+v one by one; first %s", w.cfg, w.sink, got, want,
			m.first)
	}
	return want.failed
}

// TestRunStateIsRestored: a restored state equals the saved one, and no field that refers to memory is skipped.
func TestRunStateIsRestored(t *testing.T) {
	m := newMerged(newSmallStream(smallConfigs(true)[1], layouts[1].sizes, mixedSink, false))
	c := smallCase{ends: []int{48, 520, 548, 1060, 1104}, again: noFault, wrong: noFault}
	m.empty()
	m.begin(c)
	for _, seg := range []int{0, 2, 4, 3} {
		if why := m.arrive(c, seg, false); why != "" {
			t.Fatal(why)
		}
		var before, after code
		m.state(&before)
		before.reading = true
		m.state(&before)
		m.state(&after)
		if before.at != len(before.b) || !bytes.Equal(before.b, after.b) {
			t.Errorf("segment %d: %d of %d bytes are read, %x, then written as %x", seg, before.at,
				len(before.b), before.b, after.b)
		}
	}
	defer func() {
		if what := fmt.Sprint(recover()); !strings.Contains(what, "Pool.slabs") {
			t.Errorf("a slice is %s", what)
		}
	}()
	plan(reflect.TypeFor[Pool]())
}
