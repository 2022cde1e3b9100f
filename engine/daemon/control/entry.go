package control

import (
	"encoding/binary"
	"fmt"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
)

// Layout of a send slot, in bytes. The gather list, whose elements are called pieces here, comes before the inline
// data. Each has room for the maximum of the queue pair. - is unused.
//
//	 0 id        8 op   9 flags  10 piece count  11 -   12 inline byte count (16 bits)  14 -
//	16 remote stag      20 stag to invalidate      24 remote offset
//	32 immediate (8)    40 data    48 mask    56 compare    64 compare mask
//	72 stag of the region to which a window is bound (4)       76 access
//	80 pieces: stag (4), length (4), offset (8) each;  then inline data
//
// Layout of a receive slot: 0 id, 8 piece count, 9 flags, 16 pieces as above. All numbers have the host's byte order.
const (
	idAt          = 0 // of all slots
	opAt          = 8
	flagsAt       = 9
	piecesAt      = 10
	inlineAt      = 12
	remoteSTagAt  = 16
	invalidateAt  = 20
	remoteTOAt    = 24
	immAt         = 32
	dataAt        = 40
	maskAt        = 48
	compareAt     = 56
	compareMaskAt = 64
	regionAt      = 72
	accessAt      = 76
	sendHead      = 80

	recvPiecesAt = 8
	recvFlagsAt  = 9
	recvHead     = 16

	sgeLenAt = 4
	sgeTOAt  = 8
	sgeLen   = 16
)

// OpWriteImm is a Write followed by an Immediate Data message, as one work request: one slot and one completion, that
// of the message. If the Write fails, the completion has the Write's status. With opWriteImmSE the message has a
// solicited event.
const (
	OpWriteImm   rdmap.WROp = 128
	opWriteImmSE rdmap.WROp = 129
)

// SplitImm splits a wr whose Op is OpWriteImm or opWriteImmSE: it leaves the Write in wr, stores the message, which
// must be posted next, in then, and returns true. It returns false for any other wr, and changes nothing.
func SplitImm(wr, then *rdmap.SendWR) bool {
	if wr.Op != OpWriteImm && wr.Op != opWriteImmSE {
		return false
	}
	*then = rdmap.SendWR{ID: wr.ID, Op: rdmap.WRImm, Flags: wr.Flags &^ rdmap.Fence, Imm: wr.Imm}
	if wr.Op == opWriteImmSE {
		then.Op = rdmap.WRImmSE
	}
	wr.Op, wr.Flags = rdmap.WRWrite, wr.Flags&^rdmap.Signaled|rdmap.Chained
	return true
}

// PutWriteLen puts the length of a Write into the Immediate Data message that follows, for a peer that negotiated
// private messages (package rdmap).
func PutWriteLen(write, imm *rdmap.SendWR) {
	n := uint32(len(write.Inline))
	for _, e := range write.SGL {
		n += e.Len
	}
	binary.BigEndian.PutUint32(imm.Imm[4:], n)
}

// SendSlot returns the length of a send slot for these limits in bytes, without rounding.
func SendSlot(maxSGE, maxInline int) int { return sendHead + maxSGE*sgeLen + maxInline }

// RecvSlot is SendSlot for receives.
func RecvSlot(maxSGE int) int { return recvHead + maxSGE*sgeLen }

var host = binary.NativeEndian

// ErrEntry is wrapped for a slot with an invalid value.
var ErrEntry = fmt.Errorf("%w: bad work queue entry", ErrFrame)

// PutSend writes wr into a slot that has room for it.
func PutSend(b []byte, maxSGE int, wr *rdmap.SendWR) {
	host.PutUint64(b[idAt:], wr.ID)
	b[opAt], b[flagsAt] = byte(wr.Op), byte(wr.Flags)
	b[piecesAt], b[piecesAt+1] = byte(len(wr.SGL)), 0
	host.PutUint16(b[inlineAt:], uint16(len(wr.Inline)))
	host.PutUint16(b[inlineAt+2:], 0)
	host.PutUint32(b[remoteSTagAt:], uint32(wr.RemoteSTag))
	host.PutUint32(b[invalidateAt:], uint32(wr.Invalidate))
	host.PutUint64(b[remoteTOAt:], uint64(wr.RemoteTO))
	copy(b[immAt:dataAt], wr.Imm[:])
	host.PutUint64(b[dataAt:], wr.Data)
	host.PutUint64(b[maskAt:], wr.Mask)
	host.PutUint64(b[compareAt:], wr.Compare)
	host.PutUint64(b[compareMaskAt:], wr.CompareMask)
	host.PutUint32(b[regionAt:], uint32(wr.Region))
	host.PutUint32(b[accessAt:], uint32(wr.Access))
	putSGL(b[sendHead:], wr.SGL)
	copy(b[sendHead+maxSGE*sgeLen:], wr.Inline)
}

// ParseSend decodes wr from a private copy of a slot. It reuses wr.SGL; wr.Inline aliases b.
func ParseSend(b []byte, maxSGE, maxInline int, wr *rdmap.SendWR) error {
	sges, inline := int(b[piecesAt]), int(host.Uint16(b[inlineAt:]))
	if len(b) < SendSlot(maxSGE, maxInline) || sges > maxSGE || inline > maxInline {
		return fmt.Errorf("%w: %d SGEs and %d inline bytes; the queue pair allows %d and %d",
			ErrEntry, sges, inline, maxSGE, maxInline)
	}
	*wr = rdmap.SendWR{
		ID: host.Uint64(b[idAt:]), Op: rdmap.WROp(b[opAt]),
		Flags:      rdmap.WRFlags(b[flagsAt]),
		SGL:        parseSGL(wr.SGL[:0], b[sendHead:], sges),
		RemoteSTag: ddp.STag(host.Uint32(b[remoteSTagAt:])),
		Invalidate: ddp.STag(host.Uint32(b[invalidateAt:])),
		RemoteTO:   ddp.TO(host.Uint64(b[remoteTOAt:])),
		Imm:        [rdmap.ImmLen]byte(b[immAt:dataAt]),
		Data:       host.Uint64(b[dataAt:]), Mask: host.Uint64(b[maskAt:]),
		Compare:     host.Uint64(b[compareAt:]),
		CompareMask: host.Uint64(b[compareMaskAt:]),
		Region:      ddp.STag(host.Uint32(b[regionAt:])), Access: ddp.Access(b[accessAt]),
	}
	if inline > 0 {
		wr.Inline = b[sendHead+maxSGE*sgeLen:][:inline]
	}
	return nil
}

// PutRecv writes wr into a slot that has room for it.
func PutRecv(b []byte, wr *rdmap.RecvWR) {
	host.PutUint64(b[idAt:], wr.ID)
	host.PutUint64(b[recvPiecesAt:], 0)
	b[recvPiecesAt], b[recvFlagsAt] = byte(len(wr.SGL)), byte(wr.Flags)
	putSGL(b[recvHead:], wr.SGL)
}

// ParseRecv decodes wr from a private copy of a slot. It reuses wr.SGL.
func ParseRecv(b []byte, maxSGE int, wr *rdmap.RecvWR) error {
	n := int(b[recvPiecesAt])
	if len(b) < RecvSlot(maxSGE) || n > maxSGE {
		return fmt.Errorf("%w: %d SGEs; the queue pair allows %d", ErrEntry, n, maxSGE)
	}
	wr.ID, wr.Flags = host.Uint64(b[idAt:]), rdmap.WRFlags(b[recvFlagsAt])
	wr.SGL = parseSGL(wr.SGL[:0], b[recvHead:], n)
	return nil
}

func putSGL(b []byte, list []rdmap.SGE) {
	for i, e := range list {
		p := b[i*sgeLen:]
		host.PutUint32(p, uint32(e.STag))
		host.PutUint32(p[sgeLenAt:], e.Len)
		host.PutUint64(p[sgeTOAt:], uint64(e.TO))
	}
}

func parseSGL(list []rdmap.SGE, b []byte, n int) []rdmap.SGE {
	for i := range n {
		p := b[i*sgeLen:]
		list = append(list, rdmap.SGE{
			STag: ddp.STag(host.Uint32(p)), Len: host.Uint32(p[sgeLenAt:]),
			TO: ddp.TO(host.Uint64(p[sgeTOAt:])),
		})
	}
	return list
}

// CompletionSlot is the length of a slot of a completion queue, in bytes. Its layout:
//
//	 0 id   8 number of the queue pair   12 op   13 status   14 flags   15 -
//	16 byte count (4)   20 invalidated stag   24 immediate (8)   32 -
const CompletionSlot = 64

const (
	cqeQPAt          = 8
	cqeOpAt          = 12
	cqeStatusAt      = 13
	cqeFlagsAt       = 14
	cqeLenAt         = 16
	cqeInvalidatedAt = 20
	cqeImmAt         = 24
)

// PutCompletion encodes a completion of queue pair qpn into a slot.
func PutCompletion(b []byte, qpn uint32, c *rdmap.Completion) {
	host.PutUint64(b[idAt:], c.ID)
	host.PutUint32(b[cqeQPAt:], qpn)
	b[cqeOpAt], b[cqeStatusAt] = byte(c.Op), byte(c.Status)
	b[cqeFlagsAt], b[cqeFlagsAt+1] = byte(c.Flags), 0
	host.PutUint32(b[cqeLenAt:], c.ByteLen)
	host.PutUint32(b[cqeInvalidatedAt:], uint32(c.Invalidated))
	copy(b[cqeImmAt:][:rdmap.ImmLen], c.Imm[:])
}

// ParseCompletion decodes a completion, and the number of its queue pair, from a slot.
func ParseCompletion(b []byte) (qpn uint32, c rdmap.Completion) {
	return host.Uint32(b[cqeQPAt:]), rdmap.Completion{
		ID: host.Uint64(b[idAt:]), Op: rdmap.WROp(b[cqeOpAt]), Status: rdmap.Status(b[cqeStatusAt]),
		Flags: rdmap.CompletionFlags(b[cqeFlagsAt]), ByteLen: host.Uint32(b[cqeLenAt:]),
		Invalidated: ddp.STag(host.Uint32(b[cqeInvalidatedAt:])),
		Imm:         [rdmap.ImmLen]byte(b[cqeImmAt:]),
	}
}
