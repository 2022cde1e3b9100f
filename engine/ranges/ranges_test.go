package ranges

import (
	"slices"
	"testing"
)

func TestExpand(t *testing.T) {
	for list, want := range map[string][]int{
		"": nil, "0": {0}, "0-3,6": {0, 1, 2, 3, 6}, "6, 0 - 1": {6, 0, 1}, "99": {99},
	} {
		if got, err := Expand(list, "queue", 99); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", list, got, err, want)
		}
	}
	for _, bad := range []string{",", "0,", "-1", "3-1", "1-2-3", "x", "100", "0-100", "1,1",
		"0-3,2", "18446744073709551616"} {
		if got, err := Expand(bad, "queue", 99); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

func TestContain(t *testing.T) {
	for _, c := range []struct {
		list string
		n    uint64
		want bool
	}{
		{"", 0, false}, {"80", 80, true}, {"80,8000-8100", 8050, true},
		{"80,8000-8100", 8101, false}, {"x,5", 5, true}, {"18446744073709551615", 1<<64 - 1, true},
	} {
		if Contain(c.list, c.n) != c.want {
			t.Errorf("%q, %d: want %v", c.list, c.n, c.want)
		}
	}
}
