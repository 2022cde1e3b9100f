package tcp_test

import (
	"testing"

	"xwarp/tcp"
)

// TestRandomBits: each bit of an ISN and of a timestamp offset is set for 40 % to 60 % of 1000 tuples.
func TestRandomBits(t *testing.T) {
	key := [16]byte{1}
	for what, f := range map[string]func(*tcp.Tuple) uint32{
		"ISN":              func(a *tcp.Tuple) uint32 { return uint32(tcp.ISN(&key, a, 0)) },
		"timestamp offset": func(a *tcp.Tuple) uint32 { return tcp.TSOffset(&key, a) },
	} {
		var ones [32]int
		for i := range uint16(1000) {
			a := tuple(i)
			for bit := range ones {
				ones[bit] += int(f(&a) >> bit & 1)
			}
		}
		for bit, n := range ones {
			if n < 400 || n > 600 {
				t.Errorf("%s: bit %d is set in %d of 1000", what, bit, n)
			}
		}
	}
}
