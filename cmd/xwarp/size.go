package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// size is a flag of a number of octets with a unit: 64MiB, 1GiB, 1500, 10MB.
type size int64

// units, longest first where one ends with another, and the powers of 1024 first of all. A letter alone is one of them,
// as with dd and fio.
var units = []struct {
	name string
	n    int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"K", 1 << 10}, {"k", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {"T", 1 << 40}, {"B", 1},
}

// Set implements pflag.Value.
func (s *size) Set(text string) error {
	digits, unit := strings.TrimSpace(text), int64(1)
	for _, u := range units {
		if d, ok := strings.CutSuffix(digits, u.name); ok {
			digits, unit = strings.TrimSpace(d), u.n
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n <= 0 || n > math.MaxInt64/unit {
		return fmt.Errorf("%q is no size: write a positive whole number with a unit, such as "+
			"4096, 64KiB, 256MiB, 1GiB, 10MB", text)
	}
	*s = size(n * unit)
	return nil
}

// String implements pflag.Value: the largest unit that divides the number.
func (s *size) String() string {
	n := int64(*s)
	for _, u := range slices.Backward(units[:4]) {
		if n >= u.n && n%u.n == 0 {
			return strconv.FormatInt(n/u.n, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// Type implements pflag.Value.
func (s *size) Type() string { return "size" }
