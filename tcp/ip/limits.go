package ip

import "xwarp/tcp/tick"

// The limits of this package, each with the attack or exhaustion that it prevents.
const (
	// maxExtensions bounds the walk over IPv6 extension headers, which a packet could otherwise be full of.
	maxExtensions = 8

	// maxDatagram is the largest payload that fragments may make up: the maximum of a 16-bit length.
	maxDatagram = 65535
	// maxHoles bounds the gaps of one datagram, so that fragments of 8 bytes cost a bounded search.
	maxHoles = 32
	// MaxDatagrams bounds the datagrams under reassembly; beyond it the oldest is given up. With maxDatagram bytes
	// each this bounds the memory that forged fragments can take.
	MaxDatagrams = 16
	// reassemblyTime is how long fragments wait for the rest (RFC 8200, 4.5: 60 s; RFC 1122, 3.3.2: 60 to 120
	// s; Linux: 30 s).
	reassemblyTime = 30 * tick.Second
)
