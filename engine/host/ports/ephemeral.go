package ports

import (
	"fmt"
	"os"
)

// ephemeralRange has the first and the last port that the kernel gives to sockets without one, ip(7).
const ephemeralRange = "/proc/sys/net/ipv4/ip_local_port_range"

// IsEphemeral reports whether the kernel gives port to sockets that ask for any.
func IsEphemeral(port uint16) bool {
	var first, last uint16
	b, err := os.ReadFile(ephemeralRange)
	if err == nil {
		_, err = fmt.Sscan(string(b), &first, &last)
	}
	return err == nil && first <= port && port <= last
}
