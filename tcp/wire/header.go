// Package wire encodes and decodes TCP headers with their options, and computes the Internet checksum. No function
// panics on input from a network; Put panics when the caller's buffer is too short.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"xwarp/tcp/seq"
)

// HeaderLen is the length in bytes of a header without options, MaxHeaderLen that of the longest header.
const (
	HeaderLen     = 20
	MaxHeaderLen  = 60
	MaxOptionsLen = MaxHeaderLen - HeaderLen
)

// Header is a decoded TCP header (RFC 9293, 3.1); the checksum is not part of it.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-------------------------------+-------------------------------+
//	|          Source Port          |       Destination Port        |
//	+-------------------------------+-------------------------------+
//	|                        Sequence Number                        |
//	+---------------------------------------------------------------+
//	|                    Acknowledgment Number                      |
//	+-------+-----+-+---------------+-------------------------------+
//	|  Data |Rsrvd|A|C|E|U|A|P|R|S|F|                             |
//	| Offset|     |E|W|C|R|C|S|S|Y|I|            Window             |
//	|       |     | |R|E|G|K|H|T|N|N|                             |
//	+-------+-----+-+---------------+-------------------------------+
//	|           Checksum            |         Urgent Pointer        |
//	+-------------------------------+-------------------------------+
type Header struct {
	SrcPort, DstPort uint16
	Seq, Ack         seq.Num
	Flags            Flags
	Window           uint16 // as on the wire: not scaled
	Urgent           uint16
	Opt              Options
}

// Errors of Decode. The segment must be dropped.
var (
	ErrShort  = errors.New("tcp header: fewer bytes than the header needs")
	ErrOffset = errors.New("tcp header: data offset below 5 words")
)

// Offsets of fields in a header.
const (
	SeqAt      = 4
	FlagsAt    = 12 // of the 16-bit word with data offset and flags
	ChecksumAt = 16
)

// tsWord is the first four bytes of nearly every segment's options: NOP, NOP, kind and length of timestamps.
const tsWord = kindNop<<24 | kindNop<<16 | kindTimestamps<<8 | lenTimestamps

// Decode sets h from the header at the start of b and returns the offset of the payload. It does not verify the
// checksum.
func (h *Header) Decode(b []byte) (payloadOff int, err error) {
	if len(b) < HeaderLen {
		return 0, ErrShort
	}
	off := int(b[12]>>4) * 4
	if off < HeaderLen {
		return 0, ErrOffset
	}
	if off > len(b) {
		return 0, ErrShort
	}
	h.fixed((*[HeaderLen]byte)(b))
	if off == HeaderLen {
		return off, nil
	}
	opt := b[HeaderLen:off]
	if len(opt) == TimestampsLen && binary.BigEndian.Uint32(opt) == tsWord {
		h.Opt.TSVal, h.Opt.TSEcr = binary.BigEndian.Uint32(opt[4:]),
			binary.BigEndian.Uint32(opt[8:])
		h.Opt.Present = HasTS
		return off, nil
	}
	h.Opt.parse(opt)
	return off, nil
}

// fixed sets the fields of the fixed header from b, and clears the options.
func (h *Header) fixed(b *[HeaderLen]byte) {
	h.SrcPort, h.DstPort = binary.BigEndian.Uint16(b[0:]), binary.BigEndian.Uint16(b[2:])
	h.Seq, h.Ack = seq.Num(binary.BigEndian.Uint32(b[4:])), seq.Num(binary.BigEndian.Uint32(b[8:]))
	h.Flags = Flags(binary.BigEndian.Uint16(b[12:])) & FlagMask
	h.Window, h.Urgent = binary.BigEndian.Uint16(b[14:]), binary.BigEndian.Uint16(b[18:])
	h.Opt.Present, h.Opt.NSACK, h.Opt.NAccECN = 0, 0, 0
}

// Len returns the number of bytes that Put writes. A header whose options exceed MaxOptionsLen cannot be sent.
func (h *Header) Len() int { return HeaderLen + h.Opt.Len() }

// Put writes h to b, with zero as checksum, and returns the number of bytes written. b must have room for Len bytes.
func (h *Header) Put(b []byte) int {
	n := HeaderLen
	if h.Opt.Present == HasTS {
		o := b[HeaderLen : HeaderLen+TimestampsLen]
		binary.BigEndian.PutUint32(o, tsWord)
		binary.BigEndian.PutUint32(o[4:], h.Opt.TSVal)
		binary.BigEndian.PutUint32(o[8:], h.Opt.TSEcr)
		n += TimestampsLen
	} else {
		n += h.Opt.put(b[HeaderLen:])
	}
	b = b[:HeaderLen]
	binary.BigEndian.PutUint16(b[0:], h.SrcPort)
	binary.BigEndian.PutUint16(b[2:], h.DstPort)
	binary.BigEndian.PutUint32(b[4:], uint32(h.Seq))
	binary.BigEndian.PutUint32(b[8:], uint32(h.Ack))
	binary.BigEndian.PutUint16(b[12:], uint16(n/4)<<12|uint16(h.Flags&FlagMask))
	binary.BigEndian.PutUint16(b[14:], h.Window)
	binary.BigEndian.PutUint16(b[16:], 0)
	binary.BigEndian.PutUint16(b[18:], h.Urgent)
	return n
}

// PutChecksum stores sum, as Finish returned it, in the header at the start of b.
func PutChecksum(b []byte, sum uint16) { binary.BigEndian.PutUint16(b[ChecksumAt:], sum) }

// String returns one line for traces.
func (h *Header) String() string {
	return fmt.Sprintf("%d>%d [%v] seq %d ack %d win %d%s", h.SrcPort, h.DstPort, h.Flags, h.Seq,
		h.Ack, h.Window, &h.Opt)
}

// String returns each option in angle brackets; empty without options.
func (o *Options) String() string {
	s := ""
	add := func(format string, a ...any) { s += " <" + fmt.Sprintf(format, a...) + ">" }
	if o.Present&HasMSS != 0 {
		add("mss %d", o.MSS)
	}
	if o.Present&HasWScale != 0 {
		add("wscale %d", o.WScale)
	}
	if o.Present&HasSACKPermitted != 0 {
		add("sackOK")
	}
	if o.Present&HasTS != 0 {
		add("TS val %d ecr %d", o.TSVal, o.TSEcr)
	}
	if o.Present&HasSACK != 0 {
		for _, r := range o.SACK[:min(int(o.NSACK), len(o.SACK))] {
			add("sack %d:%d", r.Start, r.End)
		}
	}
	if o.Present&HasUTO != 0 {
		add("uto %d minutes=%v", o.UTO.Value, o.UTO.Minutes)
	}
	if o.Present&(HasAccECN0|HasAccECN1) != 0 {
		add("accecn%d %v", (o.Present&HasAccECN1)/HasAccECN1, o.AccECN[:min(int(o.NAccECN), 3)])
	}
	if o.Present&Malformed != 0 {
		add("malformed")
	}
	return s
}

// Flags are the nine control bits of a TCP header. Header.Put writes the reserved bits as zero.
type Flags uint16

const (
	FIN Flags = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
	ECE
	CWR
	AE // RFC 9768; formerly NS, the nonce sum of RFC 3540
)

// FlagMask covers every defined flag.
const FlagMask = FIN | SYN | RST | PSH | ACK | URG | ECE | CWR | AE

// Has reports whether every flag of o is set in f.
func (f Flags) Has(o Flags) bool { return f&o == o }

// String returns the flags in tcpdump's letters: "." is ACK, A is AE.
func (f Flags) String() string {
	const letters = "FSRP.UEWA"
	if f&FlagMask == 0 {
		return "none"
	}
	b := make([]byte, 0, len(letters))
	for i := range len(letters) {
		if f&(1<<i) != 0 {
			b = append(b, letters[i])
		}
	}
	return string(b)
}
