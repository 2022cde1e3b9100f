package startup

import (
	"encoding/binary"
	"fmt"
	"strings"

	"xwarp/mpa/ulpdu"
)

// A start-up frame (RFC 5044, 7.1.1; RFC 6581, 6): no CRC, no markers.
//
//	 0                   1                   2                   3
//	+---------------------------------------------------------------+
//	|             Key (16): "MPA ID Req Frame", "MPA ID Rep Frame"  |
//	+-+-+-+-+-------+---------------+-------------------------------+
//	|M|C|R|S|  Res  |      Rev      |          PD_Length            |
//	+-+-+-+-+-------+---------------+-------------------------------+
//	|             Private Data (PD_Length bytes, at most 512)      |
//	+---------------------------------------------------------------+
const (
	frameLen = 20
	keyLen   = 16
	flagsAt  = 16
	revAt    = 17
	pdLenAt  = 18

	flagM = 0x80 // the sender of the frame receives markers
	flagC = 0x40 // the CRC is wanted
	flagR = 0x20 // Reply: the connection is rejected
	flagS = 0x10 // revision 2: RFC 6581 data; revision 1: an Rtr frame is offered
	flagL = 0x08 // reserved; with Linux's soft-iWARP: FPDUs longer than a segment are welcome
)

// frameKind is the key of a start-up frame.
type frameKind uint8

const (
	requestFrame frameKind = iota
	replyFrame
	rtrFrame
)

var frameKeys = [...]string{
	requestFrame: "MPA ID Req Frame",
	replyFrame:   "MPA ID Rep Frame",
	rtrFrame:     "MPA ID RtR Frame", // 52 74 52, as in the hex dump of the proposal; its text says Rtr
}

const rtrFrameAsText = "MPA ID Rtr Frame"

func (k frameKind) String() string { return [...]string{"Request", "Reply", "Rtr frame"}[k] }

// frame is a decoded start-up frame. data is the private data, including everything in front of the consumer's.
type frame struct {
	kind                                     frameKind
	markers, crc, rejected, sFlag, longFPDUs bool
	rev                                      Revision
	data                                     []byte
}

// appendTo appends the encoded f to b. The private data of f has at most MaxPrivateData bytes.
func (f *frame) appendTo(b []byte) []byte {
	flags := byte(0)
	for _, x := range [...]struct {
		set bool
		bit byte
	}{{f.markers, flagM}, {f.crc, flagC}, {f.rejected, flagR}, {f.sFlag, flagS},
		{f.longFPDUs, flagL}} {
		if x.set {
			flags |= x.bit
		}
	}
	b = append(b, frameKeys[f.kind]...)
	b = append(b, flags, byte(f.rev))
	b = binary.BigEndian.AppendUint16(b, uint16(len(f.data)))
	return append(b, f.data...)
}

// frameReader collects one start-up frame from a stream that may arrive byte by byte.
type frameReader struct {
	buf [frameLen + MaxPrivateData]byte
	n   int
}

// read consumes the bytes of b that belong to a frame of the wanted kind, and returns how many. done means that the
// frame is complete; its data alias the reader. read returns an error at the first byte that cannot be right.
func (r *frameReader) read(b []byte, want frameKind) (used int, f frame, done bool,
	err *ulpdu.Error) {
	for {
		need := frameLen
		if r.n >= frameLen {
			pd := int(binary.BigEndian.Uint16(r.buf[pdLenAt:]))
			if pd > MaxPrivateData {
				return used, f, false,
					startupError("%v with a PD_Length of %d bytes, at most %d are allowed", want,
						pd, MaxPrivateData)
			}
			if need += pd; r.n == need {
				return used, r.decode(want), true, nil
			}
		}
		if used == len(b) {
			return used, f, false, nil
		}
		k := copy(r.buf[r.n:need], b[used:])
		r.n += k
		used += k
		if err := r.checkKey(want); err != nil {
			return used, f, false, err
		}
	}
}

// checkKey compares the bytes of the key received so far with the key of a frame of kind want.
func (r *frameReader) checkKey(want frameKind) *ulpdu.Error {
	got := string(r.buf[:min(r.n, keyLen)])
	is := func(key string) bool { return strings.HasPrefix(key, got) }
	switch {
	case is(frameKeys[want]), want == rtrFrame && is(rtrFrameAsText):
		return nil
	case want == replyFrame && is(frameKeys[requestFrame]):
		return startupError("received a Request instead of a Reply: both sides are initiators; one " +
			"must be the responder")
	case want == requestFrame && is(frameKeys[replyFrame]):
		return startupError("received a Reply instead of a Request: this side is a responder and " +
			"sent no Request")
	}
	return startupError("no MPA %v: the stream begins with %q", want, got)
}

func (r *frameReader) decode(kind frameKind) frame {
	flags := r.buf[flagsAt]
	return frame{
		kind:      kind,
		markers:   flags&flagM != 0,
		crc:       flags&flagC != 0,
		rejected:  flags&flagR != 0,
		sFlag:     flags&flagS != 0,
		longFPDUs: flags&flagL != 0,
		rev:       Revision(r.buf[revAt]),
		data:      r.buf[frameLen:r.n:r.n],
	}
}

func startupError(format string, args ...any) *ulpdu.Error {
	return ulpdu.Newf(ulpdu.MPA, 0, ulpdu.CodeStartup, format, args...)
}

// enhanced is the data of RFC 6581, 9, the first four bytes of the private data:
//
//	 0                   1                   2                   3
//	+-+-+---------------------------+-+-+---------------------------+
//	|A|B|           IRD (14)        |C|D|           ORD (14)        |
//	+-+-+---------------------------+-+-+---------------------------+
type enhanced struct {
	peerToPeer bool // A
	rtrs       RTR  // B, C, D
	ird, ord   uint16
}

const (
	enhancedLen = 4
	highBit     = 0x8000 // A, C
	secondBit   = 0x4000 // B, D
)

func (e *enhanced) appendTo(b []byte) []byte {
	w0, w1 := e.ird&NotNegotiated, e.ord&NotNegotiated
	if e.peerToPeer {
		w0 |= highBit
		if e.rtrs&RTRSend != 0 {
			w0 |= secondBit
		}
		if e.rtrs&RTRWrite != 0 {
			w1 |= highBit
		}
		if e.rtrs&RTRRead != 0 {
			w1 |= secondBit
		}
	}
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, w0), w1)
}

// parseEnhanced splits private data into RFC 6581's part and the consumer's.
func parseEnhanced(pd []byte) (e enhanced, rest []byte, ok bool) {
	if len(pd) < enhancedLen {
		return e, nil, false
	}
	w0, w1 := binary.BigEndian.Uint16(pd), binary.BigEndian.Uint16(pd[2:])
	e.ird, e.ord = w0&NotNegotiated, w1&NotNegotiated
	if e.peerToPeer = w0&highBit != 0; e.peerToPeer {
		if w0&secondBit != 0 {
			e.rtrs |= RTRSend
		}
		if w1&highBit != 0 {
			e.rtrs |= RTRWrite
		}
		if w1&secondBit != 0 {
			e.rtrs |= RTRRead
		}
	}
	return e, pd[enhancedLen:], true
}

const smbdLen = 8

// AppendSMBD appends the header that [MS-SMBD], 6.1, puts in front of the private data of revision 1. IRD and ORD must
// be above 0.
func AppendSMBD(b []byte, ird, ord uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, ird), ord)
}

// ParseSMBD splits private data into the header of [MS-SMBD], 6.1, and the rest. It reads the numbers as little-endian
// if that makes a large IRD small: an early sender wrote them that way.
func ParseSMBD(pd []byte) (ird, ord uint32, rest []byte, ok bool) {
	if len(pd) < smbdLen {
		return 0, 0, pd, false
	}
	ird, ord = binary.BigEndian.Uint32(pd), binary.BigEndian.Uint32(pd[4:])
	if l := binary.LittleEndian.Uint32(pd); ird > 0xffff && l <= 0xffff {
		ird, ord = l, binary.LittleEndian.Uint32(pd[4:])
	}
	if ird == 0 || ord == 0 {
		return 0, 0, pd, false
	}
	return ird, ord, pd[smbdLen:], true
}

// clamp14 limits a number of [MS-SMBD] to the range of RFC 6581 without NotNegotiated.
func clamp14(n uint32) uint16 { return uint16(min(n, NotNegotiated-1)) }

func (t RTR) String() string {
	if t == 0 {
		return "none"
	}
	var s []string
	for i, name := range [...]string{"Send", "Write", "Read"} {
		if t&(1<<i) != 0 {
			s = append(s, name)
		}
	}
	return strings.Join(s, "+")
}

func (s Stage) String() string {
	if int(s) < len(stageNames) {
		return stageNames[s]
	}
	return fmt.Sprintf("stage %d", uint8(s))
}

var stageNames = [...]string{"waiting for the MPA Request", "waiting for the consumer to accept",
	"waiting for the MPA Reply",
	"waiting for the Rtr frame", "established", "rejected", "failed"}

func (r Retry) String() string {
	if int(r) < len(retryNames) {
		return retryNames[r]
	}
	return fmt.Sprintf("retry %d", uint8(r))
}

var retryNames = [...]string{"do not retry", "retry with revision 1", "retry without markers"}

func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return fmt.Sprintf("role %d", uint8(r))
}

var roleNames = [...]string{"IETF non-permissive", "IETF permissive", "RDMAC"}
