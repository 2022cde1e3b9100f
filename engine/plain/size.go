package plain

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// units of sizes. A unit comes before its own suffixes, such as KiB before B. A single letter is a power of 1024, as in
// dd and fio.
var units = []struct {
	name string
	n    int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"K", 1 << 10}, {"k", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {"T", 1 << 40}, {"B", 1},
}

// ParseSize returns the number of bytes in text: a non-negative whole number, with or without a unit, such as 4096,
// 64KiB or 10MB.
func ParseSize(text string) (int64, error) {
	digits, unit := strings.TrimSpace(text), int64(1)
	for _, u := range units {
		if d, ok := strings.CutSuffix(digits, u.name); ok {
			digits, unit = strings.TrimSpace(d), u.n
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("%q is not a size: use a whole number of bytes, or one with a unit, such as "+
			"4096, 64KiB, 1GiB or 10MB", text)
	}
	return n * unit, nil
}

// ExactSize formats n for ParseSize, with the largest power-of-1024 unit that divides it.
func ExactSize(n int64) string {
	for i := 3; i >= 0; i-- {
		if u := units[i]; n >= u.n && n%u.n == 0 {
			return strconv.FormatInt(n/u.n, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// Size formats n bytes for people, with a power-of-1024 unit. Below 1 KiB the number is exact; otherwise it has at
// least three digits.
func Size(n uint64) string {
	for i := 3; i >= 0; i-- {
		if u := units[i]; n >= uint64(u.n) {
			v := float64(n) / float64(u.n)
			digits := max(0, 3-len(strconv.Itoa(int(v))))
			return strconv.FormatFloat(v, 'f', digits, 64) + " " + u.name
		}
	}
	return strconv.FormatUint(n, 10) + " B"
}
