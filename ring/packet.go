package ring

// frag is one piece of a packet: bytes [off, off+n) of the packet's memory.
type frag struct{ off, n uint32 }

// Packet is a received frame, in up to MaxFrags pieces that alias the UMEM. It is valid until Release. A Packet may be
// copied; only one of the copies may be released.
type Packet struct {
	mem   []byte // the UMEM
	size  uint32 // bytes in all pieces
	n     uint32 // pieces
	frags [MaxFrags]frag
}

// Len returns the number of bytes of the frame.
func (p *Packet) Len() int { return int(p.size) }

// NumFrags returns the number of pieces; 0 after Release.
func (p *Packet) NumFrags() int { return int(p.n) }

// Frag returns piece i, or nil if there is none. It aliases the UMEM; its capacity ends with the piece.
func (p *Packet) Frag(i int) []byte {
	if uint(i) >= uint(p.n) || i >= MaxFrags {
		return nil
	}
	f := &p.frags[i]
	return p.mem[f.off : f.off+f.n : f.off+f.n]
}

// Frags appends the pieces to dst.
func (p *Packet) Frags(dst [][]byte) [][]byte {
	for i := range p.NumFrags() {
		dst = append(dst, p.Frag(i))
	}
	return dst
}

// AppendTo appends the bytes of the frame to dst.
func (p *Packet) AppendTo(dst []byte) []byte {
	for i := range p.NumFrags() {
		dst = append(dst, p.Frag(i)...)
	}
	return dst
}

// TxBuf is a transmit slot owned by its writer until Send or CancelTx.
type TxBuf struct {
	// Data is the contiguous memory of the slot; the frame starts at Data[0]. It aliases the UMEM and has old contents.
	Data []byte
	slot uint32
}

// NewTxBuf returns a TxBuf for a transmit slot that a decorator provides itself. The decorator recognises it by its
// slot number in Send and CancelTx, and must not pass it to the Port below.
func NewTxBuf(data []byte, slot uint32) TxBuf { return TxBuf{Data: data, slot: slot} }

// Slot returns the number of the slot.
func (b TxBuf) Slot() uint32 { return b.slot }
