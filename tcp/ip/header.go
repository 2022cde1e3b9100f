package ip

import (
	"encoding/binary"

	"xwarp/tcp/wire"
)

// Protocol numbers (IANA).
const (
	ProtoHopByHop = 0
	ProtoICMP     = 1
	ProtoTCP      = 6
	ProtoRouting  = 43
	ProtoFragment = 44
	ProtoESP      = 50
	ProtoAH       = 51
	ProtoICMPv6   = 58
	ProtoNone     = 59
	ProtoDestOpts = 60
)

// Lengths in bytes of headers without options and extension headers.
const (
	Len4        = 20
	Len6        = 40
	fragmentLen = 8
)

// Header is a decoded IPv4 or IPv6 header together with IPv6's extension headers.
type Header struct {
	Src, Dst Addr
	V6       bool
	Proto    uint8 // of the payload
	TOS      uint8 // DSCP and, in the two low bits, ECN
	TTL      uint8
	DF       bool   // IPv4: do not fragment
	ID       uint32 // identifies the datagram of a fragment; IPv4: 16 bits, in every packet
	Flow     uint32 // IPv6 flow label, 20 bits

	// Fragment reports that the packet carries only a part of a datagram. FragOff is the offset of this part in the
	// datagram's payload; FragMore reports that it is not the last part. An IPv6 atomic fragment (RFC 6946) is a whole
	// datagram.
	Fragment bool
	FragMore bool
	FragOff  int

	PayloadLen int // in bytes; Put encodes it, too
}

// IPv4 (RFC 791, 3.1):
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-------+-------+---------------+-------------------------------+
//	|Version|  IHL  |Type of Service|          Total Length         |
//	+-------+-------+---------------+-----+-------------------------+
//	|         Identification        |Flags|      Fragment Offset    |
//	+---------------+---------------+-----+-------------------------+
//	|  Time to Live |    Protocol   |         Header Checksum       |
//	+---------------+---------------+-------------------------------+
//	|                       Source Address                          |
//	+---------------------------------------------------------------+
//	|                    Destination Address                        |
//	+---------------------------------------------------------------+
const (
	flagDF      = 0x4000
	flagMF      = 0x2000
	fragOffMask = 0x1fff
)

// Decode sets h from the packet at the start of b and returns the offset of the payload. The payload is
// b[off:off+h.PayloadLen]: the bytes behind it are the link's padding. IPv4 options and IPv6 extension headers
// are skipped.
func (h *Header) Decode(b []byte) (off int, err error) { return h.DecodeFirst(b, len(b)) }

// DecodeFirst is Decode for a packet of n bytes of which b is the first piece. All headers must lie in b.
func (h *Header) DecodeFirst(b []byte, n int) (off int, err error) {
	if len(b) < 1 {
		return 0, ErrShort
	}
	switch b[0] >> 4 {
	case 4:
		return h.decode4(b, n)
	case 6:
		return h.decode6(b, n)
	}
	return 0, ErrVersion
}

func (h *Header) decode4(b []byte, packet int) (int, error) {
	if len(b) < Len4 {
		return 0, ErrShort
	}
	n := int(b[0]&15) * 4
	total := int(binary.BigEndian.Uint16(b[2:]))
	switch {
	case n < Len4 || total < n:
		return 0, ErrHeader
	case total > packet || n > len(b):
		return 0, ErrShort
	case wire.Fold(wire.Sum(b[:n], 0)) != 0xffff:
		return 0, ErrChecksum
	}
	frag := binary.BigEndian.Uint16(b[6:])
	*h = Header{
		Src: AddrFrom4([4]byte(b[12:16])), Dst: AddrFrom4([4]byte(b[16:20])),
		Proto: b[9], TOS: b[1], TTL: b[8], DF: frag&flagDF != 0,
		ID:       uint32(binary.BigEndian.Uint16(b[4:])),
		FragMore: frag&flagMF != 0, FragOff: int(frag&fragOffMask) * 8, PayloadLen: total - n,
	}
	h.Fragment = h.FragMore || h.FragOff > 0
	return n, nil
}

// IPv6 (RFC 8200, 3):
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-------+---------------+---------------------------------------+
//	|Version| Traffic Class |           Flow Label                  |
//	+-------+---------------+-------+---------------+---------------+
//	|         Payload Length        |  Next Header  |   Hop Limit   |
//	+-------------------------------+---------------+---------------+
//	|                     Source Address, 128 bits                  |
//	|                  Destination Address, 128 bits                |
//	+---------------------------------------------------------------+
func (h *Header) decode6(b []byte, packet int) (int, error) {
	if len(b) < Len6 {
		return 0, ErrShort
	}
	first := binary.BigEndian.Uint32(b)
	end := Len6 + int(binary.BigEndian.Uint16(b[4:]))
	if end > packet {
		return 0, ErrShort
	}
	*h = Header{
		Src: Addr(b[8:24]), Dst: Addr(b[24:40]), V6: true, Proto: b[6], TTL: b[7],
		TOS: uint8(first >> 20), Flow: first & 0xfffff,
	}
	if h.Src.Is4() || h.Dst.Is4() { // mapped addresses never leave a host (RFC 4038, 4.2)
		return 0, ErrSource
	}
	off, err := h.extensions(b[:min(end, len(b))], Len6)
	h.PayloadLen = end - off
	return off, err
}

// extensions skips the extension headers (RFC 8200, 4) that begin at off, and returns the offset of the payload.
// h.Proto is the type of the first header before the call, and that of the payload afterwards.
func (h *Header) extensions(b []byte, off int) (int, error) {
	for n := 0; ; n++ {
		size := 0
		switch h.Proto {
		case ProtoHopByHop:
			if n != 0 {
				return 0, ErrExtension
			}
			size = 8
		case ProtoRouting, ProtoDestOpts:
			size = 8
		case ProtoFragment:
			return h.fragment(b, off, n)
		case ProtoAH, ProtoNone:
			return 0, ErrExtension
		default:
			return off, nil
		}
		if n == maxExtensions {
			return 0, ErrExtension
		}
		if len(b)-off < size {
			return 0, ErrShort
		}
		size += int(b[off+1]) * 8
		if len(b)-off < size {
			return 0, ErrShort
		}
		if h.Proto == ProtoRouting && b[off+3] != 0 { // segments left: this host is not the final destination
			return 0, ErrExtension
		}
		h.Proto = b[off]
		off += size
	}
}

// fragment decodes the fragment header at off (RFC 8200, 4.5), which follows n other extension headers. The payload of
// a fragment begins directly behind the fragment header, and h.Proto is that header's next-header field, possibly an
// extension header. An atomic fragment is a whole datagram, so the extension headers behind it are skipped.
func (h *Header) fragment(b []byte, off, n int) (int, error) {
	if len(b)-off < fragmentLen {
		return 0, ErrShort
	}
	v := binary.BigEndian.Uint16(b[off+2:])
	h.FragMore, h.FragOff = v&1 != 0, int(v&^7)
	h.ID = binary.BigEndian.Uint32(b[off+4:])
	h.Fragment = h.FragMore || h.FragOff > 0
	h.Proto = b[off]
	off += fragmentLen
	if h.Fragment {
		return off, nil
	}
	if h.Proto == ProtoFragment || h.Proto == ProtoHopByHop || n >= maxExtensions {
		return 0, ErrExtension
	}
	return h.extensions(b, off)
}

// Len returns the number of bytes that Put writes: the header without options and extension headers.
func (h *Header) Len() int {
	if h.V6 {
		return Len6
	}
	return Len4
}

// Put writes h to b as the header of a whole datagram, for IPv4 with its checksum, and returns the number of bytes
// written. b must have room for Len bytes.
func (h *Header) Put(b []byte) int {
	if h.V6 {
		binary.BigEndian.PutUint32(b, 6<<28|uint32(h.TOS)<<20|h.Flow&0xfffff)
		binary.BigEndian.PutUint16(b[4:], uint16(h.PayloadLen))
		b[6], b[7] = h.Proto, h.TTL
		copy(b[8:24], h.Src[:])
		copy(b[24:40], h.Dst[:])
		return Len6
	}
	b[0], b[1] = 4<<4|Len4/4, h.TOS
	binary.BigEndian.PutUint16(b[2:], uint16(Len4+h.PayloadLen))
	binary.BigEndian.PutUint16(b[4:], uint16(h.ID))
	frag := uint16(0)
	if h.DF {
		frag = flagDF
	}
	binary.BigEndian.PutUint16(b[6:], frag)
	b[8], b[9], b[10], b[11] = h.TTL, h.Proto, 0, 0
	copy(b[12:16], h.Src[12:])
	copy(b[16:20], h.Dst[12:])
	binary.BigEndian.PutUint16(b[10:], wire.Finish(wire.Sum(b[:Len4], 0)))
	return Len4
}

// PseudoSum returns the sum of the pseudo-header for a payload of n bytes. It is the initial value for wire.Sum.
func (h *Header) PseudoSum(n int) uint64 {
	if h.V6 {
		return wire.PseudoSum6(h.Src, h.Dst, h.Proto, n)
	}
	return wire.PseudoSum4(h.Src.As4(), h.Dst.As4(), h.Proto, n)
}

// ValidTCP returns ErrSource if a TCP segment with h's addresses must not be answered (RFC 1122, 3.2.1.3 and 4.2.3.10;
// RFC 9293, MUST-57 and MUST-63).
func (h *Header) ValidTCP() error {
	if h.Src.IsUnspecified() || h.Dst.IsUnspecified() || h.Src.IsMulticast() ||
		h.Dst.IsMulticast() {
		return ErrSource
	}
	return nil
}
