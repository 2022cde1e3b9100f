package esp

import "xwarp/tcp/ip"

// padding returns the padding after a payload of n bytes: the ICV begins at a multiple of 4 (RFC 4303, 2.4).
func padding(n int) int { return -(n + 2) & 3 }

// Overhead returns the number of bytes that ESP adds to a payload of n bytes: 34 to 37.
func Overhead(n int) int { return HeaderLen + padding(n) + 2 + ICVLen }

// room returns the maximum payload that fits with its overhead in n bytes; negative if none does.
func room(n int) int { return (n-HeaderLen-ICVLen)&^3 - 2 }

// Shape determines how much longer packets become. EMSS, path MTU and MULPDU follow from InnerMTU: TCP is configured
// with its result and needs no other knowledge of ESP.
type Shape struct {
	Mode    Mode
	OuterV6 bool // in tunnel mode: the outer header is IPv6
}

// outerLen returns the length of the IP header that precedes ESP, for an inner packet of IPv6 or IPv4 without options.
func (s Shape) outerLen(v6 bool) int {
	if s.Mode == Tunnel {
		v6 = s.OuterV6
	}
	if v6 {
		return ip.Len6
	}
	return ip.Len4
}

// innerLen returns the length of the part of an inner packet's header that is not in the payload of ESP.
func (s Shape) innerLen(v6 bool) int {
	if s.Mode == Tunnel {
		return 0
	}
	return s.outerLen(v6)
}

// InnerMTU returns the maximum length of an IP packet that is at most mtu bytes long when sealed.
func (s Shape) InnerMTU(mtu int, v6 bool) int {
	return s.innerLen(v6) + room(mtu-s.outerLen(v6))
}

// SealedLen returns the length of the sealed IP packet of an inner packet of n bytes, outer IP header included.
func (s Shape) SealedLen(n int, v6 bool) int {
	n -= s.innerLen(v6)
	return s.outerLen(v6) + n + Overhead(n)
}

// MaxOverhead returns the maximum number of bytes added to an inner packet.
func (s Shape) MaxOverhead(v6 bool) int {
	return s.outerLen(v6) - s.innerLen(v6) + Overhead(3)
}

// DecapsulateECN returns the ECN field of a packet received in a tunnel, from those of the outer and inner headers.
// drop is true if the path marked congestion, and the inner transport would not understand it (RFC 6040, 4.2). The
// outer field of a sent packet is a copy of the inner one (RFC 6040, 4.1, normal mode).
func DecapsulateECN(outer, inner uint8) (ecn uint8, drop bool) {
	const (
		notECT = 0
		ect1   = 1
		ce     = 3
	)
	outer, inner = outer&3, inner&3
	switch {
	case inner == notECT:
		return notECT, outer == ce
	case outer == ce || inner == ce:
		return ce, false
	case outer == ect1:
		return ect1, false
	}
	return inner, false
}
