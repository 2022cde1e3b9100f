// Package figures says where measured figures lie.
package figures

import "slices"

// Spread returns median, smallest and largest of v, which has at least one.
func Spread(v []float64) (mid, lo, hi float64) {
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2, s[0], s[n-1]
}
