package endpoint

import "testing"

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		in          []float64
		mid, lo, hi float64
	}{
		{[]float64{3}, 3, 3, 3}, {[]float64{4, 1}, 2.5, 1, 4}, {[]float64{9, 1, 2}, 2, 1, 9},
		{[]float64{4, 3, 2, 1}, 2.5, 1, 4},
	} {
		if mid, lo, hi := Spread(c.in); mid != c.mid || lo != c.lo || hi != c.hi {
			t.Errorf("%v: %v %v %v", c.in, mid, lo, hi)
		}
	}
}
