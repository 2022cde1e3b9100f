package tcp_test

import (
	"testing"

	"xwarp/tcp"
)

// TestPlateau: if a router reports no MTU, the path MTU is assumed to be the next size of RFC 1191's table 7-1 below
// that of the quoted packet. Below the last size of the table it is IPv4's minimum.
func TestPlateau(t *testing.T) {
	for n, want := range map[int]int{
		65535: 32000, 32001: 32000, 32000: 17914, 9000: 8166, 8166: 4352, 4352: 2002, 2002: 1492,
		1500: 1492, 1492: 1006, 1006: 508, 508: 296, 297: 296, 296: 68, 69: 68,
	} {
		if got := tcp.Plateau(n); got != want {
			t.Errorf("below %d: %d, want %d", n, got, want)
		}
	}
}
