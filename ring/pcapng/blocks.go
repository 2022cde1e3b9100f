package pcapng

import (
	"encoding/binary"
	"runtime"
)

// Types of blocks, codes of options and other numbers of draft-ietf-opsawg-pcapng.
const (
	blockSection   = 0x0a0d0d0a
	blockInterface = 1
	blockStats     = 5
	blockPacket    = 6

	byteOrder = 0x1a2b3c4d // shows readers the byte order of the section
	ethernet  = 1          // LINKTYPE_ETHERNET

	optEndOfOptions = 0
	optApplication  = 4  // of the section
	optName         = 2  // of an interface
	optResolution   = 9  // of its time stamps, as a negative power of 10
	optOS           = 12 // of its host
	optEndTime      = 3  // of statistics
	optReceived     = 4  // packets that the interface had
	optDropped      = 5  // packets that the file lacks
)

var le = binary.LittleEndian

// block is a block under construction. end sets its length.
type block []byte

// newBlock starts a block of a type in the memory of b.
func newBlock(b block, kind uint32) block {
	return le.AppendUint32(le.AppendUint32(b[:0], kind), 0)
}

// option appends an option.
func (b block) option(code uint16, v []byte) block {
	b = le.AppendUint16(le.AppendUint16(b, code), uint16(len(v)))
	return b.bytes(v)
}

func (b block) option64(code uint16, v uint64) block {
	return b.option(code, le.AppendUint64(nil, v))
}

// bytes appends v, and zeros up to a multiple of four.
func (b block) bytes(v []byte) block {
	b = append(b, v...)
	return append(b, make([]byte, -len(v)&3)...)
}

// time appends nanoseconds since 1970.
func (b block) time(at int64) block {
	return le.AppendUint32(le.AppendUint32(b, uint32(at>>32)), uint32(at))
}

// end completes the block: it writes the block's length at both ends.
func (b block) end() block {
	b = le.AppendUint32(b, uint32(len(b)+4))
	copy(b[4:8], b[len(b)-4:])
	return b
}

// section returns the block that a file begins with. Its section length is -1: unknown.
func section(b block) block {
	b = le.AppendUint32(newBlock(b, blockSection), byteOrder)
	b = le.AppendUint64(le.AppendUint16(le.AppendUint16(b, 1), 0), 1<<64-1) // version 1.0
	return b.option(optApplication, []byte("xwarp")).option(optEndOfOptions, nil).end()
}

// describeBlock returns the block that describes an interface called name.
func describeBlock(b block, name string) block {
	b = le.AppendUint32(newBlock(b, blockInterface), ethernet)
	b = le.AppendUint32(b, 0) // packets of any length
	return b.option(optName, []byte(name)).option(optOS, []byte(runtime.GOOS)).
		option(optResolution, []byte{9}).option(optEndOfOptions, nil).end()
}

// packetBlock returns the block of a packet of length bytes, of which data holds the first ones.
func packetBlock(b block, id int, at int64, data []byte, length int) block {
	b = block(le.AppendUint32(newBlock(b, blockPacket), uint32(id))).time(at)
	b = le.AppendUint32(le.AppendUint32(b, uint32(len(data))), uint32(length))
	return b.bytes(data).end()
}

// statsBlock returns the block that says how many packets an interface received and dropped until time at.
func statsBlock(b block, id int, at int64, received, dropped uint64) block {
	b = block(le.AppendUint32(newBlock(b, blockStats), uint32(id))).time(at)
	return b.option(optEndTime, block(nil).time(at)).option64(optReceived, received).
		option64(optDropped, dropped).option(optEndOfOptions, nil).end()
}
