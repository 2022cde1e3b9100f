package wire

import (
	"encoding/binary"

	"xwarp/tcp/seq"
)

// Option kinds (IANA, TCP Option Kind Numbers).
const (
	kindEnd           = 0
	kindNop           = 1
	kindMSS           = 2   // RFC 9293, 3.7.1
	kindWScale        = 3   // RFC 7323, 2.2
	kindSACKPermitted = 4   // RFC 2018, 2
	kindSACK          = 5   // RFC 2018, 3
	kindTimestamps    = 8   // RFC 7323, 3.2
	kindUserTimeout   = 28  // RFC 5482, 3
	kindAccECN0       = 172 // RFC 9768, 3.2.3
	kindAccECN1       = 174
)

// Lengths in bytes of whole options, kind and length byte included, and of one SACK block and one AccECN counter.
const (
	lenMSS           = 4
	lenWScale        = 3
	lenSACKPermitted = 2
	lenTimestamps    = 10
	lenUserTimeout   = 4
	lenSACKBlock     = 8
	lenAccECNCounter = 3
)

// TimestampsLen is the number of bytes that the timestamps option adds to a segment, padding included.
const TimestampsLen = 2 + lenTimestamps

// MaxWScale is the largest shift that may be used (RFC 7323, 2.3).
const MaxWScale = 14

// OptSet is the set of options that a header carries.
type OptSet uint16

const (
	HasMSS OptSet = 1 << iota
	HasWScale
	HasSACKPermitted
	HasSACK
	HasTS
	HasUTO
	HasAccECN0
	HasAccECN1
	// Malformed is set by Decode if the length of an option was 0, 1 or beyond the header. Decode ignored the options
	// from there on (RFC 9293, MUST-7). Put ignores this bit.
	Malformed
)

// Has reports whether every option of o is in s.
func (s OptSet) Has(o OptSet) bool { return s&o == o }

// UserTimeout is the value of the user timeout option (RFC 5482): 15 bits, in minutes or seconds.
type UserTimeout struct {
	Minutes bool
	Value   uint16
}

// Options are the decoded options of one header. A field is valid only if Present has the option.
type Options struct {
	Present OptSet
	MSS     uint16
	// WScale is the shift as on the wire. A receiver must use a value above MaxWScale as MaxWScale.
	WScale uint8
	NSACK  uint8 // blocks in SACK, 1..4 with HasSACK
	TSVal  uint32
	TSEcr  uint32
	SACK   [4]seq.Range
	UTO    UserTimeout
	// NAccECN is the number of counters that the AccECN option carries: the first 0 to 3 in its order.
	NAccECN uint8
	// AccECN holds the 24-bit byte counters in the order on the wire: ECT(0), CE, ECT(1) for order 0, ECT(1), CE,
	// ECT(0) for order 1.
	AccECN [3]uint32
}

// Len returns the number of bytes that put writes, a multiple of four.
func (o *Options) Len() int {
	n := 0
	p := o.Present
	if p&(HasMSS|HasWScale|HasSACKPermitted|HasUTO) != 0 {
		if p&HasMSS != 0 {
			n += lenMSS
		}
		if p&HasWScale != 0 {
			n += 1 + lenWScale
		}
		if p&HasUTO != 0 {
			n += lenUserTimeout
		}
		if p&HasSACKPermitted != 0 && p&HasTS == 0 {
			n += 2 + lenSACKPermitted
		}
	}
	if p&HasTS != 0 {
		n += TimestampsLen // SACK-permitted, if present, takes the place of the two padding bytes
	}
	if p&HasSACK != 0 {
		n += SACKLen(int(o.NSACK))
	}
	if p&(HasAccECN0|HasAccECN1) != 0 {
		n += AccECNLen(int(o.NAccECN))
	}
	return n
}

// SACKLen returns the bytes that n SACK blocks add to a segment, padding included.
func SACKLen(n int) int { return 4 + n*lenSACKBlock }

// AccECNLen returns the bytes that an AccECN option with n counters adds to a segment, padding included.
func AccECNLen(n int) int { return (2 + n*lenAccECNCounter + 3) &^ 3 }

// put writes the options to b in a fixed order, and returns the number of bytes written. NOPs before each option pad it
// to a multiple of four bytes; SACK-permitted takes the place of the two NOPs before timestamps.
func (o *Options) put(b []byte) int {
	n, p := 0, o.Present
	if p&HasMSS != 0 {
		b[n], b[n+1] = kindMSS, lenMSS
		binary.BigEndian.PutUint16(b[n+2:], o.MSS)
		n += lenMSS
	}
	if p&HasTS != 0 {
		b[n], b[n+1] = kindNop, kindNop
		if p&HasSACKPermitted != 0 {
			b[n], b[n+1] = kindSACKPermitted, lenSACKPermitted
		}
		t := b[n+2 : n+TimestampsLen]
		t[0], t[1] = kindTimestamps, lenTimestamps
		binary.BigEndian.PutUint32(t[2:], o.TSVal)
		binary.BigEndian.PutUint32(t[6:], o.TSEcr)
		n += TimestampsLen
	} else if p&HasSACKPermitted != 0 {
		b[n], b[n+1], b[n+2], b[n+3] = kindNop, kindNop, kindSACKPermitted, lenSACKPermitted
		n += 4
	}
	if p&HasWScale != 0 {
		b[n], b[n+1], b[n+2], b[n+3] = kindNop, kindWScale, lenWScale, o.WScale
		n += 4
	}
	if p&HasUTO != 0 {
		n += o.UTO.put(b[n:])
	}
	if p&HasSACK != 0 {
		n += o.putSACK(b[n:])
	}
	if p&(HasAccECN0|HasAccECN1) != 0 {
		n += o.putAccECN(b[n:])
	}
	return n
}

func (u UserTimeout) put(b []byte) int {
	v := u.Value & 0x7fff
	if u.Minutes {
		v |= 0x8000
	}
	b[0], b[1] = kindUserTimeout, lenUserTimeout
	binary.BigEndian.PutUint16(b[2:], v)
	return lenUserTimeout
}

func (o *Options) putSACK(b []byte) int {
	k := min(int(o.NSACK), len(o.SACK))
	b[0], b[1], b[2], b[3] = kindNop, kindNop, kindSACK, byte(2+k*lenSACKBlock)
	for i, r := range o.SACK[:k] {
		binary.BigEndian.PutUint32(b[4+8*i:], uint32(r.Start))
		binary.BigEndian.PutUint32(b[8+8*i:], uint32(r.End))
	}
	return SACKLen(k)
}

func (o *Options) putAccECN(b []byte) int {
	k := min(int(o.NAccECN), len(o.AccECN))
	size := AccECNLen(k)
	pad := size - (2 + k*lenAccECNCounter)
	for i := range pad {
		b[i] = kindNop
	}
	b[pad] = kindAccECN0
	if o.Present&HasAccECN0 == 0 {
		b[pad] = kindAccECN1
	}
	b[pad+1] = byte(2 + k*lenAccECNCounter)
	for i, v := range o.AccECN[:k] {
		c := b[pad+2+3*i:]
		c[0], c[1], c[2] = byte(v>>16), byte(v>>8), byte(v)
	}
	return size
}

// parse decodes b, the bytes between the fixed header and the payload. It skips unknown kinds, and known kinds with a
// wrong length. If an option is repeated, the last one applies.
func (o *Options) parse(b []byte) {
	for len(b) > 0 {
		switch b[0] {
		case kindEnd:
			return
		case kindNop:
			b = b[1:]
			continue
		}
		if len(b) < 2 || b[1] < 2 || int(b[1]) > len(b) {
			o.Present |= Malformed
			return
		}
		o.parseOption(b[0], b[2:b[1]])
		b = b[b[1]:]
	}
}

func (o *Options) parseOption(kind byte, v []byte) {
	switch {
	case kind == kindTimestamps && len(v) == lenTimestamps-2:
		o.TSVal, o.TSEcr = binary.BigEndian.Uint32(v), binary.BigEndian.Uint32(v[4:])
		o.Present |= HasTS
	case kind == kindSACK && len(v) > 0 && len(v)%lenSACKBlock == 0:
		o.parseSACK(v)
	case kind == kindMSS && len(v) == lenMSS-2:
		o.MSS = binary.BigEndian.Uint16(v)
		o.Present |= HasMSS
	case kind == kindWScale && len(v) == lenWScale-2:
		o.WScale = v[0]
		o.Present |= HasWScale
	case kind == kindSACKPermitted && len(v) == lenSACKPermitted-2:
		o.Present |= HasSACKPermitted
	case kind == kindUserTimeout && len(v) == lenUserTimeout-2:
		u := binary.BigEndian.Uint16(v)
		o.UTO = UserTimeout{Minutes: u&0x8000 != 0, Value: u & 0x7fff}
		o.Present |= HasUTO
	case kind == kindAccECN0, kind == kindAccECN1: // any length is valid: RFC 9768, 3.2.3
		o.parseAccECN(kind, v)
	}
}

func (o *Options) parseSACK(v []byte) {
	k := min(len(v)/lenSACKBlock, len(o.SACK))
	for i := range k {
		o.SACK[i] = seq.Range{
			Start: seq.Num(binary.BigEndian.Uint32(v[8*i:])),
			End:   seq.Num(binary.BigEndian.Uint32(v[8*i+4:])),
		}
	}
	o.NSACK = uint8(k)
	o.Present |= HasSACK
}

func (o *Options) parseAccECN(kind byte, v []byte) {
	o.Present &^= HasAccECN0 | HasAccECN1
	o.Present |= HasAccECN0
	if kind == kindAccECN1 {
		o.Present ^= HasAccECN0 | HasAccECN1
	}
	o.NAccECN = uint8(min(len(v)/lenAccECNCounter, len(o.AccECN)))
	o.AccECN = [3]uint32{}
	for i := range int(o.NAccECN) {
		c := v[3*i:]
		o.AccECN[i] = uint32(c[0])<<16 | uint32(c[1])<<8 | uint32(c[2])
	}
}
