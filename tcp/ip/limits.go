package ip

import "xwarp/tcp/tick"

// Limits, sizes and times of this package. A limit that prevents an attack names it.
const (
	// maxExtensions limits the number of IPv6 extension headers, so that a packet full of them costs little work.
	maxExtensions = 8

	// maxDatagram is the largest payload of a reassembled datagram: the maximum of a 16-bit length.
	maxDatagram = 65535
	// maxHoles limits the holes of one datagram, so that the search for the hole of a fragment is short.
	maxHoles = 32
	// MaxDatagrams limits the datagrams under reassembly: a further one replaces the oldest. Each has a buffer of
	// maxDatagram bytes, so this limits the memory that forged fragments can occupy.
	MaxDatagrams = 16
	// reassemblyTime is how long fragments wait for the rest of their datagram (RFC 8200, 4.5: 60 s; RFC 1122, 3.3.2:
	// 60 to 120 s; Linux: 30 s).
	reassemblyTime = 30 * tick.Second
)
