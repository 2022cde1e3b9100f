package bpf

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// Addresses of RFC 5737 and RFC 3849. local* and other* belong to this host.
var (
	local4   = netip.MustParseAddr("192.0.2.1")
	other4   = netip.MustParseAddr("192.0.2.2")
	remote4  = netip.MustParseAddr("198.51.100.9")
	local6   = netip.MustParseAddr("2001:db8::1")
	other6   = netip.MustParseAddr("2001:db8::2")
	remote6  = netip.MustParseAddr("2001:db8:9::9")
	routed4  = netip.MustParseAddr("203.0.113.77") // of other hosts, for which this one routes
	routed6  = netip.MustParseAddr("2001:db8:7::77")
	localMAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	peerMAC  = net.HardwareAddr{2, 0, 0, 0, 0, 2}
)

const (
	listenPort  = 4420  // listener at local4 and local6
	anyPort     = 5000  // wildcard listener, both families
	any4Port    = 5004  // wildcard listener, IPv4
	any6Port    = 5006  // wildcard listener, IPv6
	flowPort    = 7777  // exact flow from remote4 and remote6, flowRemote
	flowRemote  = 40000 // the peer's port of the exact flows
	unusedPort  = 4421
	datagramID  = 0x1234
	payloadSize = 64
)

var payload = gopacket.Payload(slices.Repeat([]byte("xwarp..."), payloadSize/8))

// frame serializes layers with gopacket, an encoder independent of steer.c, and removes the Ethernet padding to 60
// bytes.
func frame(ls ...gopacket.SerializableLayer) []byte {
	b := serialize(ls...)
	return b[:14+len(serialize(ls[1:]...))]
}

// serialize serializes layers without a link header, for quotes and fragments.
func serialize(ls ...gopacket.SerializableLayer) []byte {
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true},
		ls...); err != nil {
		panic(err)
	}
	return slices.Clone(buf.Bytes())
}

func ether(t layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{DstMAC: localMAC, SrcMAC: peerMAC, EthernetType: t}
}

func ether4() *layers.Ethernet { return ether(layers.EthernetTypeIPv4) }
func ether6() *layers.Ethernet { return ether(layers.EthernetTypeIPv6) }

func tag(vlan uint16, next layers.EthernetType) *layers.Dot1Q {
	return &layers.Dot1Q{VLANIdentifier: vlan, Type: next}
}

func ip4(dst netip.Addr, proto layers.IPProtocol, edit ...func(*layers.IPv4)) *layers.IPv4 {
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: remote4.AsSlice(),
		DstIP: dst.AsSlice(), Flags: layers.IPv4DontFragment}
	for _, e := range edit {
		e(ip)
	}
	return ip
}

func ip6(dst netip.Addr, proto layers.IPProtocol, edit ...func(*layers.IPv6)) *layers.IPv6 {
	ip := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: proto, SrcIP: remote6.AsSlice(),
		DstIP: dst.AsSlice()}
	for _, e := range edit {
		e(ip)
	}
	return ip
}

// from4 and from6 set the source address.
func from4(a netip.Addr) func(*layers.IPv4) {
	return func(ip *layers.IPv4) { ip.SrcIP = a.AsSlice() }
}
func from6(a netip.Addr) func(*layers.IPv6) {
	return func(ip *layers.IPv6) { ip.SrcIP = a.AsSlice() }
}

// part makes a packet the IPv4 fragment with this identification and offset in bytes. more means that others follow.
func part(id uint16, offset int, more bool) func(*layers.IPv4) {
	return func(ip *layers.IPv4) {
		ip.Id, ip.Flags, ip.FragOffset = id, 0, uint16(offset/8)
		if more {
			ip.Flags = layers.IPv4MoreFragments
		}
	}
}

func tcp(src, dst layers.TCPPort, options ...layers.TCPOption) *layers.TCP {
	return &layers.TCP{SrcPort: src, DstPort: dst, Seq: 1, Ack: 2, ACK: true, Window: 1000,
		Options: options}
}

// segmentTo returns a segment from a peer's port that has no flow.
func segmentTo(port layers.TCPPort) *layers.TCP { return tcp(33333, port) }
func flowSegment() *layers.TCP                  { return tcp(flowRemote, flowPort) }

var timestamps = layers.TCPOption{OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10,
	OptionData: make([]byte, 8)}

// raw joins parts: the bytes after an IP header.
func raw(parts ...[]byte) gopacket.Payload { return slices.Concat(parts...) }

// options returns an IPv6 extension header of size bytes with the layout of RFC 8200 4.3, filled with padding options.
func options(next layers.IPProtocol, size int) []byte {
	b := make([]byte, size)
	b[0], b[1], b[2] = byte(next), byte(size/8-1), 1
	for off := 2; off < size; {
		n := min(size-off, 257)
		if n == 1 {
			b[off] = 0
		} else {
			b[off], b[off+1] = 1, byte(n-2)
		}
		off += n
	}
	return b
}

// routing returns a routing header (RFC 8200 4.4) of type 253, which is for experiments.
func routing(next layers.IPProtocol, segmentsLeft byte) []byte {
	return []byte{byte(next), 0, 253, segmentsLeft, 0, 0, 0, 0}
}

// authentication returns an AH header (RFC 4302 2) with a check value of 12 bytes.
func authentication(next layers.IPProtocol) []byte {
	b := make([]byte, 24)
	b[0], b[1] = byte(next), 24/4-2
	return b
}

// fragment6 returns a fragment header (RFC 8200 4.5). offset is in bytes.
func fragment6(next layers.IPProtocol, id uint32, offset int, more bool) []byte {
	b := make([]byte, 8)
	b[0] = byte(next)
	binary.BigEndian.PutUint16(b[2:], uint16(offset))
	if more {
		b[3] |= 1
	}
	binary.BigEndian.PutUint32(b[4:], id)
	return b
}

// sent4 and sent6 return a datagram that the engine sent, as an ICMP error quotes it.
func sent4(src, dst netip.AddrPort) []byte {
	ip := ip4(dst.Addr(), layers.IPProtocolTCP, from4(src.Addr()))
	return serialize(ip, tcp(layers.TCPPort(src.Port()), layers.TCPPort(dst.Port())), payload)
}

func sent6(src, dst netip.AddrPort) []byte {
	ip := ip6(dst.Addr(), layers.IPProtocolTCP, from6(src.Addr()))
	return serialize(ip, tcp(layers.TCPPort(src.Port()), layers.TCPPort(dst.Port())), payload)
}

func at(a netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(a, port) }

// icmp4 returns a frame with an ICMP message from a router to local4.
func icmp4(kind, code uint8, quote []byte) []byte {
	router := netip.MustParseAddr("203.0.113.5")
	return frame(ether4(), ip4(local4, layers.IPProtocolICMPv4, from4(router)),
		&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(kind, code)}, gopacket.Payload(quote))
}

// icmp6 returns a frame with an ICMPv6 message from a router to local6. It adds the four bytes after the checksum,
// which gopacket's layer lacks.
func icmp6(kind, code uint8, quote []byte) []byte {
	router := netip.MustParseAddr("2001:db8:5::5")
	return frame(ether6(), ip6(local6, layers.IPProtocolICMPv6, from6(router)),
		&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, code)},
		raw(make([]byte, 4), quote))
}

// patch sets bytes of b and returns b. pairs are offset, value, offset, value ...
func patch(b []byte, pairs ...int) []byte {
	for ; len(pairs) > 1; pairs = pairs[2:] {
		b[pairs[0]] = byte(pairs[1])
	}
	return b
}

// hosts returns the host prefix of each address.
func hosts(addrs ...netip.Addr) (ps []netip.Prefix) {
	for _, a := range addrs {
		ps = append(ps, netip.PrefixFrom(a, a.BitLen()))
	}
	return ps
}

// to sets the destination address of an Ethernet frame and returns the frame.
func to(mac net.HardwareAddr, f []byte) []byte {
	copy(f, mac)
	return f
}

func addr16(a netip.Addr) []byte {
	b := a.As16()
	return b[:]
}
