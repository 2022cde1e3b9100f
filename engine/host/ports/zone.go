package ports

import (
	"net"
	"strconv"
)

// zoneIndex returns the interface index that an IPv6 zone names, 0 when there is none.
func zoneIndex(zone string) uint32 {
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n)
	}
	if i, err := net.InterfaceByName(zone); err == nil {
		return uint32(i.Index)
	}
	return 0
}
