package stack

import (
	"encoding/binary"
	"math/bits"

	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/wire"
)

// DefaultHopLimit is the TTL or hop limit of packets if Config.HopLimit is zero.
const DefaultHopLimit = 64

// maxHeader is the maximum header length of a frame of a run: Ethernet with a tag, IPv6, and TCP with timestamps.
const maxHeader = ip.EthernetLen + ip.VLANTagLen + ip.Len6 + wire.HeaderLen + wire.TimestampsLen

// template has the headers of a connection's frames without the fields that differ between frames. Within a run of
// segments these are sequence number, flags and checksum, and in the last segment the length. In other frames they are
// the TCP header and the fields that setIP writes.
//
//	| Ethernet 14 or 18 | IPv4 20 or IPv6 40 | TCP 20..60 | payload
type template struct {
	hdr   [maxHeader]byte // headers of the current run; without a run only Ethernet and IP
	n     int             // length of Ethernet and IP headers
	ipAt  int             // offset of the IP header
	v6    bool
	tos   uint8  // of the IP header, without the ECN field
	sum   uint64 // of addresses and protocol, for the TCP checksum
	ipSum uint64 // of the IPv4 header without length, TOS and checksum, in 32 bits

	end    int    // length of the headers of the current run; 0: no run
	size   int    // payload bytes for which hdr is valid
	tcpSum uint64 // of hdr's TCP header and pseudo-header, in 32 bits, without sequence number and flags
	runSum uint64 // tcpSum without the length
}

func (f *template) init(cfg *Config, t *tcp.Tuple) {
	*f = template{v6: !t.Remote.Is4(), ipAt: ip.EthernetLen, tos: cfg.TOS}
	b := f.hdr[:]
	f.setSource(cfg.MAC)
	etherType := b[12:14]
	if cfg.VLAN != 0 {
		binary.BigEndian.PutUint16(b[12:], uint16(ip.TypeVLAN))
		binary.BigEndian.PutUint16(b[14:], cfg.VLAN)
		etherType, f.ipAt = b[16:18], ip.EthernetLen+ip.VLANTagLen
	}
	h := b[f.ipAt:]
	if f.v6 {
		binary.BigEndian.PutUint16(etherType, uint16(ip.TypeIPv6))
		h[0], h[6], h[7] = 0x60, ip.ProtoTCP, cfg.HopLimit
		flow := flowLabel(t)
		h[1], h[2], h[3] = flow[0], flow[1], flow[2]
		copy(h[8:24], t.Local[:])
		copy(h[24:40], t.Remote[:])
		f.n = f.ipAt + ip.Len6
		f.sum = wire.PseudoSum6(t.Local, t.Remote, ip.ProtoTCP, 0)
		return
	}
	binary.BigEndian.PutUint16(etherType, uint16(ip.TypeIPv4))
	src, dst := t.Local.As4(), t.Remote.As4()
	h[0], h[8], h[9] = 0x45, cfg.HopLimit, ip.ProtoTCP
	h[6] = 0x40 // don't fragment
	copy(h[12:16], src[:])
	copy(h[16:20], dst[:])
	f.n = f.ipAt + ip.Len4
	f.sum = wire.PseudoSum4(src, dst, ip.ProtoTCP, 0)
	f.ipSum = narrow(wire.Sum(h[:ip.Len4], 0))
}

// setSource sets the source MAC address.
func (f *template) setSource(mac [6]byte) { copy(f.hdr[6:12], mac[:]) }

// flowLabel returns a constant label for a connection (RFC 6437): a mix of its ports and addresses.
func flowLabel(t *tcp.Tuple) [3]byte {
	x := uint32(t.LocalPort)<<16 | uint32(t.RemotePort)
	for i := 0; i < 16; i += 4 {
		x = (x ^ binary.BigEndian.Uint32(t.Remote[i:])) * 0x9e3779b1
		x ^= x >> 15
	}
	return [3]byte{byte(x>>16) & 0x0f, byte(x >> 8), byte(x)}
}

// build writes all headers of o to b except the TCP checksum, and returns the offset of the payload.
func (f *template) build(b []byte, o *tcp.Out, mac [6]byte) int {
	if o.Run == tcp.RunNext && f.end > 0 {
		return f.buildNext(b, o)
	}
	f.end = 0
	*(*[maxHeader]byte)(b) = f.hdr
	*(*[6]byte)(b) = mac
	at := f.n + o.Header.Put(b[f.n:])
	f.setIP(b, o.ECN, at-f.n+o.Payload.Len())
	if o.Run != tcp.RunNone && o.Flags&wire.PSH == 0 && at <= maxHeader { // more segments of the run will follow
		f.startFrame(b, at, o.Payload.Len())
	}
	return at
}

// setIP writes the fields of an IP header that depend on the ECN bits and on the length n of the segment.
func (f *template) setIP(b []byte, ecn tcp.ECN, n int) {
	h := (*[ip.Len4]byte)(b[f.ipAt:])
	tos := f.tos | byte(ecn)
	if f.v6 {
		h[0], h[1] = 0x60|tos>>4, tos<<4|h[1]&0x0f
		binary.BigEndian.PutUint16(h[4:], uint16(n))
		return
	}
	// The identification stays 0: unfragmentable packets need none (RFC 6864, 4.1), and a counter would leak the
	// traffic of others.
	h[1] = tos
	v := bits.ReverseBytes16(uint16(ip.Len4 + n))
	binary.LittleEndian.PutUint16(h[2:], v)
	binary.BigEndian.PutUint16(h[10:], wire.Finish(f.ipSum+uint64(tos)<<8+uint64(v)))
}

// startFrame starts a run with the headers of the segment in b, whose payload of size bytes is at offset at.
func (f *template) startFrame(b []byte, at, size int) {
	f.end, f.size = at, size
	copy(f.hdr[:], b[:at])
	t := f.hdr[f.n:at]
	binary.BigEndian.PutUint32(t[wire.SeqAt:], 0)
	t[wire.FlagsAt] &= 0xf0
	t[wire.FlagsAt+1] = 0
	f.runSum = narrow(wire.Sum(t, f.sum))
	f.tcpSum = narrow(addLength(f.runSum, len(t)+size))
}

// buildNext is build for a segment that continues a run: it sets what differs from the one before.
func (f *template) buildNext(b []byte, o *tcp.Out) int {
	if n := o.Payload.Len(); n != f.size {
		f.size = n
		n += f.end - f.n
		f.setIP(f.hdr[:], o.ECN, n)
		f.tcpSum = narrow(addLength(f.runSum, n))
	}
	*(*[maxHeader]byte)(b) = f.hdr
	t := (*[wire.HeaderLen]byte)(b[f.n:])
	binary.BigEndian.PutUint32(t[wire.SeqAt:], uint32(o.Seq))
	flags := uint16(f.end-f.n)/4<<12 | uint16(o.Flags&wire.FlagMask)
	binary.BigEndian.PutUint16(t[wire.FlagsAt:], flags)
	return f.end
}

// finish writes the TCP checksum of the frame in b, whose headers end at offset at, where o's payload begins. sum is
// the sum of the payload. It returns the length of the frame.
func (f *template) finish(b []byte, at int, o *tcp.Out, sum uint64) int {
	end := at + o.Payload.Len()
	if f.end > 0 {
		sum = addSum(sum, f.tcpSum+uint64(bits.ReverseBytes16(uint16(o.Flags&wire.FlagMask)))+
			uint64(bits.ReverseBytes32(uint32(o.Seq))))
	} else {
		sum = wire.Sum(b[f.n:at], addSum(sum, addLength(f.sum, end-f.n)))
	}
	wire.PutChecksum(b[f.n:], wire.Finish(sum))
	return end
}

// narrow folds a running sum to 32 bits, so that several can be added without a carry.
func narrow(sum uint64) uint64 {
	sum = sum>>32 + sum&0xffffffff
	return sum>>32 + sum&0xffffffff
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
