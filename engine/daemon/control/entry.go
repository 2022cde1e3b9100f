package control

import (
	"encoding/binary"
	"fmt"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
)

// Layout of a send slot. Gather list and inline data follow each other; their room is that of the queue pair.
//
//	 0 id        8 op   9 flags  10 pieces  11 -   12 inline octets (16 bits)  14 -
//	16 remote stag      20 stag to invalidate      24 remote offset
//	32 immediate (8)    40 data    48 mask    56 compare    64 compare mask    72 -
//	80 pieces: stag (4), length (4), offset (8) each;  then inline data
//
// Layout of a receive slot: 0 id, 8 pieces, 16 pieces as above. All numbers have the host's byte order.
const (
	sendHead = 80
	recvHead = 16
	sgeLen   = 16
)

// SendSlot and RecvSlot return the octets of a slot for these limits, without rounding.
func SendSlot(maxSGE, maxInline int) int { return sendHead + maxSGE*sgeLen + maxInline }

// RecvSlot is SendSlot for receives.
func RecvSlot(maxSGE int) int { return recvHead + maxSGE*sgeLen }

var host = binary.NativeEndian

// ErrEntry is wrapped when a slot does not hold what it may.
var ErrEntry = fmt.Errorf("%w: bad work queue entry", ErrFrame)

// PutSend writes wr into a slot that has room for it.
func PutSend(b []byte, maxSGE int, wr *rdmap.SendWR) {
	host.PutUint64(b, wr.ID)
	b[8], b[9], b[10], b[11] = byte(wr.Op), byte(wr.Flags), byte(len(wr.SGL)), 0
	host.PutUint16(b[12:], uint16(len(wr.Inline)))
	host.PutUint16(b[14:], 0)
	host.PutUint32(b[16:], uint32(wr.RemoteSTag))
	host.PutUint32(b[20:], uint32(wr.Invalidate))
	host.PutUint64(b[24:], uint64(wr.RemoteTO))
	copy(b[32:40], wr.Imm[:])
	host.PutUint64(b[40:], wr.Data)
	host.PutUint64(b[48:], wr.Mask)
	host.PutUint64(b[56:], wr.Compare)
	host.PutUint64(b[64:], wr.CompareMask)
	host.PutUint64(b[72:], 0)
	putSGL(b[sendHead:], wr.SGL)
	copy(b[sendHead+maxSGE*sgeLen:], wr.Inline)
}

// ParseSend reads wr from a private copy of a slot. wr.SGL is used again; wr.Inline aliases b.
func ParseSend(b []byte, maxSGE, maxInline int, wr *rdmap.SendWR) error {
	sges, inline := int(b[10]), int(host.Uint16(b[12:]))
	if len(b) < SendSlot(maxSGE, maxInline) || sges > maxSGE || inline > maxInline {
		return fmt.Errorf("%w: %d pieces and %d inline octets, the queue pair takes %d and %d",
			ErrEntry, sges, inline, maxSGE, maxInline)
	}
	*wr = rdmap.SendWR{
		ID: host.Uint64(b), Op: rdmap.WROp(b[8]), Flags: rdmap.WRFlags(b[9]),
		SGL:        parseSGL(wr.SGL[:0], b[sendHead:], sges),
		RemoteSTag: ddp.STag(host.Uint32(b[16:])), Invalidate: ddp.STag(host.Uint32(b[20:])),
		RemoteTO: ddp.TO(host.Uint64(b[24:])),
		Imm:      [rdmap.ImmLen]byte(b[32:40]),
		Data:     host.Uint64(b[40:]), Mask: host.Uint64(b[48:]), Compare: host.Uint64(b[56:]),
		CompareMask: host.Uint64(b[64:]),
	}
	if inline > 0 {
		wr.Inline = b[sendHead+maxSGE*sgeLen:][:inline]
	}
	return nil
}

// PutRecv writes wr into a slot that has room for it.
func PutRecv(b []byte, wr *rdmap.RecvWR) {
	host.PutUint64(b, wr.ID)
	host.PutUint64(b[8:], 0)
	b[8] = byte(len(wr.SGL))
	putSGL(b[recvHead:], wr.SGL)
}

// ParseRecv reads wr from a private copy of a slot. wr.SGL is used again.
func ParseRecv(b []byte, maxSGE int, wr *rdmap.RecvWR) error {
	n := int(b[8])
	if len(b) < RecvSlot(maxSGE) || n > maxSGE {
		return fmt.Errorf("%w: %d pieces, the queue pair takes %d", ErrEntry, n, maxSGE)
	}
	wr.ID, wr.SGL = host.Uint64(b), parseSGL(wr.SGL[:0], b[recvHead:], n)
	return nil
}

func putSGL(b []byte, list []rdmap.SGE) {
	for i, e := range list {
		p := b[i*sgeLen:]
		host.PutUint32(p, uint32(e.STag))
		host.PutUint32(p[4:], e.Len)
		host.PutUint64(p[8:], uint64(e.TO))
	}
}

func parseSGL(list []rdmap.SGE, b []byte, n int) []rdmap.SGE {
	for i := range n {
		p := b[i*sgeLen:]
		list = append(list, rdmap.SGE{STag: ddp.STag(host.Uint32(p)), Len: host.Uint32(p[4:]),
			TO: ddp.TO(host.Uint64(p[8:]))})
	}
	return list
}

// CompletionSlot is the length of a slot of a completion queue:
//
//	0 id   8 queue pair   12 op   13 status   14 flags   15 -   16 octets   20 invalidated stag   24 immediate (8)   32 -
const CompletionSlot = 64

// Completion is an entry of a completion queue.
type Completion struct {
	ID          uint64
	QP          Handle
	Op          rdmap.WROp
	Status      rdmap.Status
	Flags       rdmap.CompletionFlags
	ByteLen     uint32
	Invalidated uint32
	Imm         [rdmap.ImmLen]byte
}

// Put writes c into a slot.
func (c *Completion) Put(b []byte) {
	host.PutUint64(b, c.ID)
	host.PutUint32(b[8:], uint32(c.QP))
	b[12], b[13], b[14], b[15] = byte(c.Op), byte(c.Status), byte(c.Flags), 0
	host.PutUint32(b[16:], c.ByteLen)
	host.PutUint32(b[20:], c.Invalidated)
	copy(b[24:32], c.Imm[:])
}

// Parse reads c from a slot.
func (c *Completion) Parse(b []byte) {
	*c = Completion{
		ID: host.Uint64(b), QP: Handle(host.Uint32(b[8:])), Op: rdmap.WROp(b[12]),
		Status: rdmap.Status(b[13]),
		Flags:  rdmap.CompletionFlags(b[14]), ByteLen: host.Uint32(b[16:]),
		Invalidated: host.Uint32(b[20:]),
		Imm:         [rdmap.ImmLen]byte(b[24:32]),
	}
}
