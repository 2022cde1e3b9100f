package stack

import (
	"encoding/binary"
	"math/bits"

	"xwarp/tcp"
	"xwarp/tcp/wire"
)

// runHeader is the headers of a segment of a run. Those of the next ones differ in IP length and checksum, TCP sequence
// number, flags and checksum. Its sums have no more than 32 bits: some can be added without a carry.
type runHeader struct {
	hdr    [maxRunHeader]byte
	n      int // octets of hdr, 0 for none
	ipAt   int
	tcpAt  int
	v6     bool
	offset uint16 // the data offset, in the word that it shares with the flags
	ipSum  uint64 // of the IPv4 header without length and checksum
	// of the pseudo header without length, and of the TCP header without sequence number, flags and checksum
	tcpSum uint64
}

// maxRunHeader is Ethernet with a tag, IPv6, and TCP with timestamps.
const maxRunHeader = etherLen + vlanLen + ipv6Len + wire.HeaderLen + wire.TimestampsLen

// Where things are in a TCP header.
const (
	seqAt      = 4
	flagsAt    = 12 // after the data offset, in the same word
	checksumAt = 16
)

// begin takes the headers of the segment in b, the payload of which is at at; false when they are too long.
func (r *runHeader) begin(f *template, b []byte, at int) bool {
	if at > len(r.hdr) || len(b) < len(r.hdr) {
		return false
	}
	r.n, r.ipAt, r.tcpAt, r.v6 = at, f.ipAt, f.headAt, f.v6
	copy(r.hdr[:], b[:at])
	r.ipSum = narrow(f.ipSum + uint64(b[f.ipAt+1])<<8) // TOS
	h := r.hdr[r.tcpAt:r.n]
	r.offset = uint16(h[flagsAt]&0xf0) << 8
	binary.BigEndian.PutUint32(h[seqAt:], 0)
	binary.BigEndian.PutUint16(h[flagsAt:], r.offset)
	binary.BigEndian.PutUint16(h[checksumAt:], 0)
	r.tcpSum = narrow(wire.Sum(h, f.sum))
	return true
}

// narrow folds a running sum to 32 bits.
func narrow(sum uint64) uint64 {
	sum = sum>>32 + sum&0xffffffff
	return sum>>32 + sum&0xffffffff
}

// build writes all headers of o to b, but for the TCP checksum, and returns where the payload goes.
func (r *runHeader) build(b []byte, o *tcp.Out) int {
	*(*[maxRunHeader]byte)(b) = r.hdr
	segment := r.n - r.tcpAt + o.Payload.Len()
	if h := b[r.ipAt : r.ipAt+ipv4Len]; r.v6 {
		binary.BigEndian.PutUint16(h[4:], uint16(segment))
	} else {
		putLength4(h, r.ipSum, ipv4Len+segment)
	}
	t := b[r.tcpAt : r.tcpAt+wire.HeaderLen]
	binary.BigEndian.PutUint32(t[seqAt:], uint32(o.Seq))
	binary.BigEndian.PutUint16(t[flagsAt:], r.offset|uint16(o.Flags&wire.FlagMask))
	return r.n
}

// finish fills the TCP checksum in; sum is that of the payload. It returns the length of the frame.
func (r *runHeader) finish(b []byte, o *tcp.Out, sum uint64) int {
	end := r.n + o.Payload.Len()
	words := uint32(end-r.tcpAt)<<16 | uint32(o.Flags&wire.FlagMask)
	sum = addSum(sum, r.tcpSum+uint64(bits.ReverseBytes32(words))+uint64(
		bits.ReverseBytes32(uint32(o.Seq))))
	wire.PutChecksum(b[r.tcpAt:], wire.Finish(sum))
	return end
}
