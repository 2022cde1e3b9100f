package stack

import (
	"encoding/binary"
	"math/bits"

	"xwarp/tcp"
	"xwarp/tcp/wire"
)

const (
	etherLen    = 14
	vlanLen     = 4
	ipv4Len     = 20
	ipv6Len     = 40
	typeIPv4    = 0x0800
	typeIPv6    = 0x86dd
	typeVLAN    = 0x8100
	typeQinQ    = 0x88a8
	protoTCP    = 6
	defaultHops = 64
)

// template is the Ethernet and IP header of a connection's frames, ready but for what differs from frame to frame.
//
//	| Ethernet 14 or 18 | IPv4 20 or IPv6 40 | TCP 20..60 | payload
type template struct {
	hdr    [etherLen + vlanLen + ipv6Len]byte
	n      int // octets of hdr
	ipAt   int // where the IP header begins
	v6     bool
	sum    uint64 // of the addresses and the protocol, for the TCP checksum
	ipSum  uint64 // of the IPv4 header as it stands in hdr, in 32 bits
	headAt int    // where build put the TCP header
}

func (f *template) init(cfg *Config, t *tcp.Tuple) {
	*f = template{v6: !t.Remote.Is4(), ipAt: etherLen}
	b := f.hdr[:]
	f.setSource(cfg.MAC)
	etherType := b[12:14]
	if cfg.VLAN != 0 {
		binary.BigEndian.PutUint16(b[12:], typeVLAN)
		binary.BigEndian.PutUint16(b[14:], cfg.VLAN)
		etherType, f.ipAt = b[16:18], etherLen+vlanLen
	}
	h := b[f.ipAt:]
	if f.v6 {
		binary.BigEndian.PutUint16(etherType, typeIPv6)
		h[0], h[6], h[7] = 0x60, protoTCP, defaultHops
		flow := flowLabel(t)
		h[1], h[2], h[3] = flow[0], flow[1], flow[2]
		copy(h[8:24], t.Local[:])
		copy(h[24:40], t.Remote[:])
		f.n = f.ipAt + ipv6Len
		f.sum = wire.PseudoSum6(t.Local, t.Remote, protoTCP, 0)
		return
	}
	binary.BigEndian.PutUint16(etherType, typeIPv4)
	src, dst := t.Local.As4(), t.Remote.As4()
	h[0], h[8], h[9] = 0x45, defaultHops, protoTCP
	h[6] = 0x40 // don't fragment
	copy(h[12:16], src[:])
	copy(h[16:20], dst[:])
	f.n = f.ipAt + ipv4Len
	f.sum = wire.PseudoSum4(src, dst, protoTCP, 0)
	f.ipSum = narrow(wire.Sum(h[:ipv4Len], 0))
}

// setSource says from which Ethernet address frames come.
func (f *template) setSource(mac [6]byte) { copy(f.hdr[6:12], mac[:]) }

// flowLabel is a label that stays the same for a connection (RFC 6437): a mix of its ports and addresses.
func flowLabel(t *tcp.Tuple) [3]byte {
	x := uint32(t.LocalPort)<<16 | uint32(t.RemotePort)
	for i := 0; i < 16; i += 4 {
		x = (x ^ binary.BigEndian.Uint32(t.Remote[i:])) * 0x9e3779b1
		x ^= x >> 15
	}
	return [3]byte{byte(x>>16) & 0x0f, byte(x >> 8), byte(x)}
}

// build writes all headers of o to b, but for the TCP checksum, and returns where the payload goes.
func (f *template) build(b []byte, o *tcp.Out, mac [6]byte) int {
	*(*[len(f.hdr)]byte)(b) = f.hdr
	*(*[6]byte)(b) = mac
	f.headAt = f.n
	at := f.n + o.Header.Put(b[f.n:])
	segment := at - f.n + o.Payload.Len()
	if h := b[f.ipAt : f.ipAt+ipv4Len]; f.v6 {
		h[1] = h[1]&0x0f | byte(o.ECN)<<4
		binary.BigEndian.PutUint16(h[4:], uint16(segment))
	} else {
		h[1] = byte(o.ECN)
		putLength4(h, f.ipSum+uint64(o.ECN)<<8, ipv4Len+segment)
	}
	return at
}

// putLength4 fills the length of an IPv4 packet and its checksum in; sum is that of the rest of the header,
// in 32 bits. The identification stays 0: packets that must not be fragmented need none (RFC 6864, 4.1), and
// a counter would tell one peer how much the others are sent.
func putLength4(h []byte, sum uint64, n int) {
	v := bits.ReverseBytes16(uint16(n))
	binary.LittleEndian.PutUint16(h[2:], v)
	binary.BigEndian.PutUint16(h[10:], wire.Finish(sum+uint64(v)))
}

// finish fills the TCP checksum in, now that n octets of payload follow the headers that end at at; sum is
// theirs. It returns the length of the frame.
func (f *template) finish(b []byte, at, n int, sum uint64) int {
	sum = wire.Sum(b[f.headAt:at], addSum(sum, addLength(f.sum, at+n-f.headAt)))
	wire.PutChecksum(b[f.headAt:], wire.Finish(sum))
	return at + n
}

// addLength adds a length field to the running sum of a pseudo header.
func addLength(sum uint64, n int) uint64 {
	return addSum(sum, uint64(n>>8&0xff|n<<8&0xff00))
}

// addSum adds one running sum to another.
func addSum(a, b uint64) uint64 {
	a += b
	if a < b {
		a++
	}
	return a
}
