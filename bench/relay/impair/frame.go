package impair

import "encoding/binary"

// kind is what the stages need to know about a frame.
type kind uint8

const (
	kindOther kind = iota // not IP, or not whole: passes around all stages
	kindND                // neighbour or multicast listener discovery: the same
	kindIP                // IP without a readable TCP header, fragments among them
	kindTCP
)

// Offsets and numbers of the headers that are read here.
const (
	ethHeader  = 14
	vlanTag    = 4
	typeIPv4   = 0x0800
	typeIPv6   = 0x86dd
	typeVLAN   = 0x8100 // IEEE 802.1Q
	typeQinQ   = 0x88a8 // IEEE 802.1ad
	ipv4Header = 20
	ipv6Header = 40

	protoHopByHop = 0
	protoICMP     = 1
	protoTCP      = 6
	protoICMPv6   = 58
	protoDestOpts = 60

	tcpHeader   = 20
	tcpSeq      = 4
	tcpOffset   = 12
	tcpFlags    = 13
	tcpChecksum = 16

	flagFIN = 0x01
	flagSYN = 0x02
	flagRST = 0x04
	flagPSH = 0x08
	flagURG = 0x20

	ecnMask = 3
	ecnCE   = 3
)

// view is where the parts of a frame begin.
type view struct {
	kind    kind
	v6      bool
	ip      int // IP header
	l4      int // transport header, TCP only
	payload int // TCP payload
	end     int // end of the IP packet; Ethernet padding may follow
}

// look finds the headers of frame f. It never reads beyond the frame.
func look(f []byte) (v view) {
	if len(f) < ethHeader {
		return v
	}
	etherType := binary.BigEndian.Uint16(f[12:])
	at := ethHeader
	for tags := 0; tags < 2 && (etherType == typeVLAN || etherType == typeQinQ) &&
		len(f) >= at+vlanTag; tags++ {
		etherType = binary.BigEndian.Uint16(f[at+2:])
		at += vlanTag
	}
	v.ip = at
	switch etherType {
	case typeIPv4:
		v.lookIPv4(f)
	case typeIPv6:
		v.lookIPv6(f)
	}
	return v
}

func (v *view) lookIPv4(f []byte) {
	h := f[v.ip:]
	if len(h) < ipv4Header || h[0]>>4 != 4 {
		return
	}
	hl, total := int(h[0]&15)*4, int(binary.BigEndian.Uint16(h[2:]))
	if hl < ipv4Header || total < hl || total > len(h) {
		return
	}
	v.kind, v.end = kindIP, v.ip+total
	fragment := binary.BigEndian.Uint16(h[6:])&0x3fff != 0 // more fragments, or an offset
	if h[9] == protoTCP && !fragment && fold(onesSum(0, h[:hl])) == 0 {
		v.lookTCP(f, v.ip+hl)
	}
}

func (v *view) lookIPv6(f []byte) {
	h := f[v.ip:]
	if len(h) < ipv6Header || h[0]>>4 != 6 {
		return
	}
	total := ipv6Header + int(binary.BigEndian.Uint16(h[4:]))
	if total > len(h) {
		return
	}
	v.kind, v.v6, v.end = kindIP, true, v.ip+total
	next, at := h[6], v.ip+ipv6Header
	for range maxExtensionHeaders {
		if next != protoHopByHop && next != protoDestOpts {
			break
		}
		if at+2 > v.end {
			return
		}
		next, at = f[at], at+8+8*int(f[at+1])
	}
	switch {
	case next == protoTCP:
		v.lookTCP(f, at)
	case next == protoICMPv6 && at < v.end && isND(f[at]):
		v.kind = kindND
	}
}

// isND reports whether an ICMPv6 type belongs to neighbour discovery (RFC 4861) or multicast listener discovery
// (RFC 2710, RFC 3810).
func isND(t byte) bool { return (t >= 130 && t <= 137) || t == 143 }

func (v *view) lookTCP(f []byte, at int) {
	if at+tcpHeader > v.end {
		return
	}
	hl := int(f[at+tcpOffset]>>4) * 4
	if hl < tcpHeader || at+hl > v.end {
		return
	}
	v.kind, v.l4, v.payload = kindTCP, at, at+hl
}

// setLength makes the IP header say that the packet ends at end.
func (v *view) setLength(f []byte, end int) {
	v.end = end
	if v.v6 {
		binary.BigEndian.PutUint16(f[v.ip+4:], uint16(end-v.ip-ipv6Header))
		return
	}
	binary.BigEndian.PutUint16(f[v.ip+2:], uint16(end-v.ip))
	setIPv4Checksum(f[v.ip:])
}

// ecn returns the ECN field of the IP header.
func (v *view) ecn(f []byte) byte {
	if v.v6 {
		return f[v.ip+1] >> 4 & ecnMask
	}
	return f[v.ip+1] & ecnMask
}

// setCE writes Congestion Experienced into the IP header (RFC 3168, 5).
func (v *view) setCE(f []byte) {
	if v.v6 {
		f[v.ip+1] |= ecnCE << 4
		return
	}
	h := f[v.ip:]
	was := binary.BigEndian.Uint16(h)
	h[1] |= ecnCE
	binary.BigEndian.PutUint16(h[10:], updated(binary.BigEndian.Uint16(h[10:]), was,
		binary.BigEndian.Uint16(h)))
}
