package plain

import "fmt"

// Count formats a number with a noun, which is given in the singular: "1 segment" or "2 segments".
func Count[N int | int64 | uint64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
