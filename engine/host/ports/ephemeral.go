package ports

import (
	"fmt"
	"os"
)

// ephemeralRange is a file with the first and the last port of the range from which the kernel chooses ports, ip(7).
const ephemeralRange = "/proc/sys/net/ipv4/ip_local_port_range"

// IsEphemeral reports whether port is in the range from which the kernel chooses ports for sockets that ask for any. It
// returns false if the range cannot be read.
func IsEphemeral(port uint16) bool {
	var first, last uint16
	b, err := os.ReadFile(ephemeralRange)
	if err == nil {
		_, err = fmt.Sscan(string(b), &first, &last)
	}
	return err == nil && first <= port && port <= last
}
