package transfer

import (
	"testing"
	"time"
)

// A peer that others wait for must move minRate, and octets beyond those of its transfer are no progress.
func TestWatch(t *testing.T) {
	const idle = 6 * time.Second
	const enough = 6 * minRate
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
		ends    int // at this tick; -1: never
	}{
		{"nobody waits", enough, steps(0), func(int) bool { return false }, -1},
		{"stands still", enough, steps(0), func(int) bool { return true }, 6},
		{"stood still while nobody waited", enough, steps(0), func(i int) bool {
			return i >= 10
		}, 16},
		{"others wait now and then", enough, steps(0), func(i int) bool { return i%6 != 0 }, -1},
		{"fast enough", 100 * enough, steps(minRate), func(int) bool { return true }, -1},
		{"too slow", 100 * enough, steps(minRate - 1), func(int) bool { return true }, 6},
		{"writes the same octets again and again", enough, steps(enough), func(int) bool {
			return true
		}, 13},
		{"asks for nothing", 0, steps(minRate), func(int) bool { return true }, 6},
	} {
		t.Run(tc.name, func(t *testing.T) {
			at, ended := 0, -1
			w := watch{most: tc.most, pressed: func() bool {
				return tc.pressed(at)
			}, end: func(error) {
				if ended < 0 {
					ended = at
				}
			}}
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
