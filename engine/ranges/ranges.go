// Package ranges reads numbers and ranges of them, both ends included, as people write them: 7174, 0-3 or 0-3,6.
package ranges

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Range is the numbers from First to Last.
type Range struct{ First, Last uint64 }

// Parse reads one number or range. ok is false if text is neither, or contains a number above most.
func Parse(text string, most uint64) (r Range, ok bool) {
	a, b, isRange := strings.Cut(text, "-")
	if !isRange {
		b = a
	}
	first, err1 := strconv.ParseUint(strings.TrimSpace(a), 10, 64)
	last, err2 := strconv.ParseUint(strings.TrimSpace(b), 10, 64)
	if err1 != nil || err2 != nil || first > last || last > most {
		return r, false
	}
	return Range{first, last}, true
}

// Expand returns the numbers of a list in its order; none for an empty list. It fails if a part of the list is neither
// a number nor a range, or if a number occurs twice or is above most. what names the numbered objects in the error.
func Expand(list, what string, most uint64) (numbers []int, err error) {
	if list == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		r, ok := Parse(part, most)
		if !ok {
			return nil, fmt.Errorf("%q: %q is not a %s or a range such as 0-3,6", list, part,
				what)
		}
		for n := int(r.First); n <= int(r.Last); n++ {
			if slices.Contains(numbers, n) {
				return nil, fmt.Errorf("%q: duplicate %s %d", list, what, n)
			}
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}

// Contain reports whether a list has n. It ignores parts of the list that are neither a number nor a range.
func Contain(list string, n uint64) bool {
	for part := range strings.SplitSeq(list, ",") {
		if r, ok := Parse(part, math.MaxUint64); ok && r.First <= n && n <= r.Last {
			return true
		}
	}
	return false
}
