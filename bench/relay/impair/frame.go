package impair

import (
	"encoding/binary"

	"xwarp/tcp/ip"
	"xwarp/tcp/wire"
)

// kind is the type of a frame, as far as the stages distinguish them.
type kind uint8

const (
	kindOther kind = iota // not IP, or truncated: bypasses all stages
	kindND                // neighbour or multicast listener discovery: bypasses all stages
	kindIP                // IP without a readable TCP header, fragments among them
	kindTCP
)

// Offsets in a TCP header that package wire does not name.
const (
	tcpOffset = 12
	tcpFlags  = 13
)

const (
	ecnMask = 3
	ecnCE   = 3
)

// view is the parsed headers of a frame: its kind and the offsets of its parts.
type view struct {
	kind    kind
	v6      bool
	ip      int // IP header
	l4      int // transport header, TCP only
	payload int // TCP payload, TCP only
	end     int // end of the IP packet; Ethernet padding may follow
}

// look parses the headers of frame f. It accepts any bytes and never reads beyond the frame.
func look(f []byte) (v view) {
	var link ip.Ethernet
	at, err := link.Decode(f)
	if err != nil {
		return v
	}
	v.ip = at
	switch link.Type {
	case ip.TypeIPv4:
		v.lookIPv4(f)
	case ip.TypeIPv6:
		v.lookIPv6(f)
	}
	return v
}

func (v *view) lookIPv4(f []byte) {
	h := f[v.ip:]
	if len(h) < ip.Len4 || h[0]>>4 != 4 {
		return
	}
	hl, total := int(h[0]&15)*4, int(binary.BigEndian.Uint16(h[2:]))
	if hl < ip.Len4 || total < hl || total > len(h) {
		return
	}
	v.kind, v.end = kindIP, v.ip+total
	fragment := binary.BigEndian.Uint16(h[6:])&0x3fff != 0 // more fragments, or an offset
	if h[9] == ip.ProtoTCP && !fragment && wire.Right(wire.Sum(h[:hl], 0)) {
		v.lookTCP(f, v.ip+hl)
	}
}

func (v *view) lookIPv6(f []byte) {
	h := f[v.ip:]
	if len(h) < ip.Len6 || h[0]>>4 != 6 {
		return
	}
	total := ip.Len6 + int(binary.BigEndian.Uint16(h[4:]))
	if total > len(h) {
		return
	}
	v.kind, v.v6, v.end = kindIP, true, v.ip+total
	next, at := h[6], v.ip+ip.Len6
	for range maxExtensionHeaders {
		if next != ip.ProtoHopByHop && next != ip.ProtoDestOpts {
			break
		}
		if at+2 > v.end {
			return
		}
		next, at = f[at], at+8+8*int(f[at+1])
	}
	switch {
	case next == ip.ProtoTCP:
		v.lookTCP(f, at)
	case next == ip.ProtoICMPv6 && at < v.end && isND(f[at]):
		v.kind = kindND
	}
}

// isND reports whether an ICMPv6 type belongs to neighbour discovery (RFC 4861) or multicast listener discovery
// (RFC 2710, RFC 3810).
func isND(t byte) bool { return (t >= 130 && t <= 137) || t == 143 }

func (v *view) lookTCP(f []byte, at int) {
	if at+wire.HeaderLen > v.end {
		return
	}
	hl := int(f[at+tcpOffset]>>4) * 4
	if hl < wire.HeaderLen || at+hl > v.end {
		return
	}
	v.kind, v.l4, v.payload = kindTCP, at, at+hl
}

// setLength sets the end of the packet to the offset end, also in the IP header and its checksum.
func (v *view) setLength(f []byte, end int) {
	v.end = end
	if v.v6 {
		binary.BigEndian.PutUint16(f[v.ip+4:], uint16(end-v.ip-ip.Len6))
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
