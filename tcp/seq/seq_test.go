package seq

import "testing"

func TestWrap(t *testing.T) {
	const top = Num(0xffffffff)
	for _, base := range []Num{0, 1, 1 << 31, 1<<31 - 1, top - 5, top} {
		for _, n := range []int{0, 1, 7, 512, 1 << 20, 1<<31 - 1} {
			e := base.Add(n)
			if e.Diff(base) != n || base.Diff(e) != -n {
				t.Errorf("base %#x + %d: Diff %d and %d", base, n, e.Diff(base), base.Diff(e))
			}
			if base.Less(e) != (n > 0) || e.Less(base) || !base.LessEq(e) {
				t.Errorf("base %#x + %d: order is wrong", base, n)
			}
			if n > 0 && (!base.In(base, n) || e.In(base, n) || !e.Add(-1).In(base, n)) {
				t.Errorf("base %#x, size %d: In is wrong at an edge", base, n)
			}
		}
	}
}

func TestRange(t *testing.T) {
	r := Of(0xfffffff0, 32)
	if r.Len() != 32 || r.End != 16 || !r.Contains(0) || r.Contains(16) || !r.Contains(0xfffffff0) {
		t.Fatalf("range across zero: %+v", r)
	}
	for _, c := range []struct {
		o    Range
		clip int
	}{{Of(0, 4), 4}, {Of(8, 100), 8}, {Of(16, 4), 0}, {Of(0xffffff00, 0xf0), 0},
		{Of(0xffffff00, 0xf4), 4}} {
		if got := r.Clip(c.o).Len(); got != c.clip {
			t.Errorf("clip to %+v: %d bytes, want %d", c.o, got, c.clip)
		}
		if r.Overlaps(c.o) != (c.clip > 0) || r.Covers(c.o) != (c.clip == c.o.Len()) {
			t.Errorf("overlap or cover of %+v is wrong", c.o)
		}
	}
}
