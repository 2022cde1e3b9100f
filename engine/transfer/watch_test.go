package transfer

import (
	"testing"
	"time"
)

// A peer that others wait for must transfer at minRate divided by the number of sharers. Bytes beyond those of its
// transfer do not count as progress.
func TestWatch(t *testing.T) {
	const idle = 6 * time.Second
	const enough = 6 * minRate
	always := func(int) bool { return true }
	steps := func(each uint64) (list []uint64) {
		for i := range uint64(20) {
			list = append(list, 1000+i*each)
		}
		return list
	}
	for _, tc := range []struct {
		name    string
		most    uint64
		payload []uint64
		pressed func(tick int) bool
		ends    int    // w.end is called at this tick; -1: never
		sharers uint64 // 0: watch.sharers is nil
	}{
		{"nobody waits", enough, steps(0), func(int) bool { return false }, -1, 0},
		{"stands still", enough, steps(0), always, 6, 0},
		{"stood still while nobody waited", enough, steps(0), func(i int) bool {
			return i >= 10
		}, 16, 0},
		{"others wait now and then", enough, steps(0), func(i int) bool { return i%6 != 0 }, -1, 0},
		{"fast enough", 100 * enough, steps(minRate), always, -1, 0},
		{"too slow", 100 * enough, steps(minRate - 1), always, 6, 0},
		{"writes the same bytes again and again", enough, steps(enough), always, 13, 0},
		{"fast enough with three others", 100 * enough, steps(minRate / 4), always, -1, 4},
		{"too slow with three others", 100 * enough, steps(minRate/4 - 1), always, 6, 4},
		{"asks for nothing", 0, steps(minRate), always, 6, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			at, ended := 0, -1
			w := watch{remaining: tc.most, contended: func() bool {
				return tc.pressed(at)
			}, end: func(error) {
				if ended < 0 {
					ended = at
				}
			}}
			if tc.sharers > 0 {
				w.sharers = func() uint64 { return tc.sharers }
			}
			for i, n := range tc.payload {
				at = i
				w.tick(n, idle)
			}
			if ended != tc.ends {
				t.Errorf("ended at tick %d, want %d", ended, tc.ends)
			}
		})
	}
}
