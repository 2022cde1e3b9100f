package impair

import (
	"encoding/binary"

	"xwarp/tcp/wire"
)

// corrupt damages the payload of a TCP segment in the configured way. Other frames, and segments with no more payload
// than CorruptAbove, stay unchanged.
func (p *Path) corrupt(b *Buf) {
	v := &b.view
	n := v.end - v.payload
	if v.kind != kindTCP || n <= 0 || n <= p.cfg.CorruptAbove {
		return
	}
	switch p.cfg.CorruptMode {
	case CorruptRaw:
		b.Data[v.payload+p.corruptRand.IntN(n)] ^= 1 << p.corruptRand.IntN(8)
	case CorruptSealed:
		p.corruptSealed(b.Data[:v.end], v)
	case CorruptPair:
		if !p.corruptPair(b.Data[v.payload:v.end]) {
			p.c.CorruptImpossible++
			return
		}
	}
	p.c.Corrupted++
}

// corruptSealed changes one byte of the payload and updates the TCP checksum for it.
func (p *Path) corruptSealed(f []byte, v *view) {
	at := v.payload + p.corruptRand.IntN(v.end-v.payload)
	word := v.l4 + (at-v.l4)&^1
	was := wordAt(f, word)
	f[at] ^= byte(1 + p.corruptRand.IntN(255))
	segment := f[v.l4:]
	sum := binary.BigEndian.Uint16(segment[wire.ChecksumAt:])
	wire.PutChecksum(segment, updated(sum, was, wordAt(f, word)))
}

// wordAt returns the 16-bit word at offset i, as the checksum sees it: a zero byte follows the last byte of f.
func wordAt(f []byte, i int) uint16 {
	w := uint16(f[i]) << 8
	if i+1 < len(f) {
		w |= uint16(f[i+1])
	}
	return w
}

// corruptPair clears a bit in one 16-bit word and sets the same bit in another, which keeps the checksum. It begins its
// search for such a pair at a random bit and word, and reports whether it found one. Payload begins at a word of the
// checksum, because the length of a TCP header is even.
func (p *Path) corruptPair(payload []byte) bool {
	words := len(payload) / 2
	if words < 2 {
		return false
	}
	startBit, startWord := p.corruptRand.IntN(16), p.corruptRand.IntN(words)
	for i := range 16 {
		index, mask := 0, byte(1)<<((startBit+i)%8)
		if (startBit+i)%16 >= 8 {
			index = 1
		}
		first := 2*startWord + index
		for j := 1; j < words; j++ {
			other := 2*((startWord+j)%words) + index
			if (payload[first]^payload[other])&mask != 0 {
				payload[first] ^= mask
				payload[other] ^= mask
				return true
			}
		}
	}
	return false
}
