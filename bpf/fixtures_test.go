package bpf

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

type fixture struct {
	name   string
	frame  []byte
	want   Outcome
	padded bool // bytes follow the datagram, so cutting them off is not a truncation
}

const (
	protoTCP     = layers.IPProtocolTCP
	protoHop     = layers.IPProtocolIPv6HopByHop
	protoRouting = layers.IPProtocolIPv6Routing
	protoFrag    = layers.IPProtocolIPv6Fragment
	protoAH      = layers.IPProtocolAH
	protoDest    = layers.IPProtocolIPv6Destination
)

// fixtures returns frames whose outcome does not depend on earlier frames.
func fixtures() []fixture {
	return slices.Concat(linkFixtures(), fixtures4(), fixtures6(), extensionFixtures(),
		icmpFixtures4(), icmpFixtures6(), espFixtures())
}

// ourSPI is the SPI of the SAs on which the engine receives, for each remote host.
const ourSPI = 0x12345678

// theirSPI is the SPI of the SAs on which the engine sends, for each remote host.
const theirSPI = 0x9abcdef0

// sentESP4 returns an ESP packet from the given address to remote4.
func sentESP4(from netip.Addr, spi uint32) []byte {
	return serialize(ip4(remote4, layers.IPProtocolESP, from4(from)), esp(spi))
}

// esp returns the payload of an IP packet of the SA with this SPI.
func esp(spi uint32) gopacket.Payload {
	return raw(binary.BigEndian.AppendUint32(nil, spi), make([]byte, 60))
}

func espFixtures() []fixture {
	const proto = layers.IPProtocolESP
	ours4 := frame(ether4(), ip4(local4, proto), esp(ourSPI))
	ours6 := frame(ether6(), ip6(local6, proto), esp(ourSPI))
	return []fixture{
		{name: "esp of ours v4", frame: ours4, want: ESP},
		{name: "esp of ours v6", frame: ours6, want: ESP},
		{name: "esp behind options v6", frame: frame(ether6(), ip6(local6, protoDest),
			raw(options(proto, 8), esp(ourSPI))), want: ESP},
		{name: "esp in priority tag", frame: frame(ether(layers.EthernetTypeDot1Q),
			tag(0, layers.EthernetTypeIPv4), ip4(local4, proto), esp(ourSPI)), want: ESP},
		{name: "esp in a vlan", frame: frame(ether(layers.EthernetTypeDot1Q),
			tag(7, layers.EthernetTypeIPv4), ip4(local4, proto), esp(ourSPI)), want: PassVLAN},
		{name: "esp of a VPN", frame: frame(ether4(), ip4(local4, proto), esp(ourSPI+1)),
			want: PassNotTCP},
		{name: "esp of ours byte-swapped", frame: frame(ether4(), ip4(local4, proto),
			esp(0x78563412)), want: PassNotTCP},
		{name: "esp of ours from another host", frame: frame(ether4(),
			ip4(local4, proto, from4(other4)), esp(ourSPI)), want: PassNotTCP},
		{name: "esp of ours to another address", frame: frame(ether4(), ip4(other4, proto),
			esp(ourSPI)), want: PassNotTCP},
		{name: "esp of three bytes", frame: frame(ether4(), ip4(local4, proto),
			gopacket.Payload(esp(ourSPI)[:3])), want: PassMalformed},
		{name: "icmp about our esp", frame: icmp4(3, 4, sentESP4(local4, theirSPI)), want: ICMP},
		{name: "icmp about 8 bytes of our esp",
			frame: icmp4(3, 4, sentESP4(local4, theirSPI)[:28]), want: ICMP},
		{name: "icmp about 7 bytes of our esp",
			frame: icmp4(3, 4, sentESP4(local4, theirSPI)[:27]), want: PassMalformed},
		{name: "icmp about esp of a VPN", frame: icmp4(3, 4, sentESP4(local4, theirSPI+1)),
			want: PassNotTCP},
		{name: "icmp about esp that we receive", frame: icmp4(3, 4, sentESP4(local4, ourSPI)),
			want: PassNotTCP},
		{name: "icmp about esp of another host", frame: icmp4(3, 4, sentESP4(other4, theirSPI)),
			want: PassNotTCP},
		{name: "udp that begins as our esp", frame: frame(ether4(),
			ip4(local4, layers.IPProtocolUDP), esp(ourSPI)), want: PassNotTCP},
	}
}

func linkFixtures() []fixture {
	arp := &layers.ARP{AddrType: 1, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6,
		ProtAddressSize: 4, Operation: 1,
		SourceHwAddress: peerMAC, SourceProtAddress: remote4.AsSlice(), DstHwAddress: make([]byte,
			6), DstProtAddress: local4.AsSlice()}
	seg := []gopacket.SerializableLayer{ip4(local4, protoTCP), segmentTo(listenPort), payload}
	tagged := func(outer layers.EthernetType, tags ...gopacket.SerializableLayer) []byte {
		return frame(slices.Concat([]gopacket.SerializableLayer{ether(outer)}, tags, seg)...)
	}
	const q, ad, v4 = layers.EthernetTypeDot1Q, layers.EthernetTypeQinQ, layers.EthernetTypeIPv4
	return []fixture{
		{name: "arp", frame: frame(ether(layers.EthernetTypeARP), arp), want: PassNotIP},
		{name: "arp in vlan", frame: frame(ether(q), tag(7, layers.EthernetTypeARP), arp),
			want: PassVLAN},
		{name: "lldp", frame: frame(ether(layers.EthernetTypeLinkLayerDiscovery), payload),
			want: PassNotIP},
		{name: "802.3 length", frame: frame(ether(60), payload), want: PassNotIP},
		{name: "type zero", frame: frame(ether(0), payload), want: PassNotIP},
		{name: "ethernet header alone", frame: frame(ether4())[:14], want: PassMalformed},
		{name: "vlan", frame: tagged(q, tag(7, v4)), want: PassVLAN},
		{name: "vlan 4095", frame: tagged(q, tag(4095, v4)), want: PassVLAN},
		{name: "vlan 256", frame: tagged(q, tag(256, v4)), want: PassVLAN},
		{name: "vlan priority tag", frame: tagged(q, tag(0, v4)), want: Listener},
		{name: "vlan priority tag with priority", frame: patch(tagged(q, tag(0, v4)), 14, 0xf0),
			want: Listener},
		{name: "vlan ipv6", frame: frame(ether(q), tag(7, layers.EthernetTypeIPv6),
			ip6(local6, protoTCP), segmentTo(listenPort)), want: PassVLAN},
		{name: "vlan flow", frame: frame(ether(q), tag(7, v4), ip4(local4, protoTCP),
			flowSegment()), want: PassVLAN},
		{name: "qinq 802.1ad", frame: tagged(ad, tag(9, q), tag(7, v4)), want: PassVLAN},
		{name: "qinq vlan in priority tag", frame: tagged(ad, tag(0, q), tag(7, v4)),
			want: PassVLAN},
		{name: "qinq of two priority tags", frame: tagged(ad, tag(0, q), tag(0, v4)),
			want: Listener},
		{name: "three priority tags", frame: tagged(ad, tag(0, ad), tag(0, q), tag(0, v4)),
			want: PassVLANDepth},
		{name: "vlan without the rest", frame: tagged(q, tag(0, v4))[:16], want: PassMalformed},
		{name: "for a machine behind a bridge", frame: to(net.HardwareAddr{0x52, 0x54, 0, 1, 2, 3},
			tagged(v4)), want: PassOtherMAC},
		{name: "flow while our address changes",
			frame: to(peerMAC, frame(ether4(), ip4(local4, protoTCP), flowSegment())), want: Flow},
		{name: "tcp of nobody for another address",
			frame: to(peerMAC, frame(ether4(), ip4(local4, protoTCP), segmentTo(unusedPort))),
			want:  PassOtherMAC},
		{name: "udp for another address",
			frame: to(peerMAC, frame(ether4(), ip4(local4, layers.IPProtocolUDP), payload)),
			want:  PassNotTCP},
		{name: "first half of our address", frame: to(net.HardwareAddr{2, 0, 0, 0, 1, 1},
			tagged(v4)), want: PassOtherMAC},
		{name: "second half of our address", frame: to(net.HardwareAddr{2, 1, 0, 0, 0, 1},
			tagged(v4)), want: PassOtherMAC},
		{name: "tcp to everybody", frame: to(net.HardwareAddr{255, 255, 255, 255, 255, 255},
			tagged(v4)), want: PassOtherMAC},
		{name: "tcp to a group", frame: to(net.HardwareAddr{3, 0, 0, 0, 0, 1}, tagged(v4)),
			want: PassOtherMAC},
		{name: "priority tag for another address", frame: to(peerMAC, tagged(q, tag(0, v4))),
			want: PassOtherMAC},
		{name: "ipv6 type with ipv4 inside",
			frame: frame(slices.Concat([]gopacket.SerializableLayer{ether6()}, seg)...),
			want:  PassMalformed},
		{name: "ipv4 type with ipv6 inside", frame: frame(ether4(), ip6(local6, protoTCP),
			segmentTo(listenPort)), want: PassMalformed},
	}
}

func fixtures4() []fixture {
	listener := func(edit ...func(*layers.IPv4)) []byte {
		return frame(ether4(), ip4(local4, protoTCP, edit...), segmentTo(listenPort), payload)
	}
	// 40 bytes of options, the most that fit (RFC 791 3.1): ihl 15.
	fullOptions := func(ip *layers.IPv4) {
		ip.Options = []layers.IPv4Option{{OptionType: 7, OptionLength: 39,
			OptionData: make([]byte, 37)}, {OptionType: 0}}
	}
	alert := func(ip *layers.IPv4) {
		ip.Options = []layers.IPv4Option{{OptionType: 148, OptionLength: 4,
			OptionData: []byte{0, 0}}}
	}
	jumbo := gopacket.Payload(make([]byte, 8900))
	return []fixture{
		{name: "flow v4", frame: frame(ether4(), ip4(local4, protoTCP), flowSegment(), payload),
			want: Flow},
		{name: "flow v4 pure ack", frame: frame(ether4(), ip4(local4, protoTCP), flowSegment()),
			want: Flow},
		{name: "flow v4 timestamps", frame: frame(ether4(), ip4(local4, protoTCP),
			tcp(flowRemote, flowPort, timestamps), payload), want: Flow},
		{name: "flow v4 jumbo", frame: frame(ether4(), ip4(local4, protoTCP), flowSegment(), jumbo),
			want: Flow},
		{name: "flow v4 padded to 60", frame: append(frame(ether4(), ip4(local4, protoTCP),
			flowSegment()), make([]byte, 6)...), want: Flow, padded: true},
		{name: "listener v4", frame: listener(), want: Listener},
		{name: "listener v4 at other address", frame: frame(ether4(), ip4(other4, protoTCP),
			segmentTo(listenPort)), want: PassNoMatch},
		{name: "listener any v4", frame: frame(ether4(), ip4(other4, protoTCP), segmentTo(anyPort)),
			want: Listener},
		{name: "listener any4 v4", frame: frame(ether4(), ip4(other4, protoTCP),
			segmentTo(any4Port)), want: Listener},
		{name: "listener any6 v4", frame: frame(ether4(), ip4(other4, protoTCP),
			segmentTo(any6Port)), want: PassNoMatch},
		{name: "listener any v4 of another host", frame: frame(ether4(), ip4(routed4, protoTCP),
			segmentTo(anyPort)), want: PassNotLocal},
		{name: "listener any4 v4 of another host", frame: frame(ether4(), ip4(routed4, protoTCP),
			segmentTo(any4Port)), want: PassNotLocal},
		{name: "unused port of another host", frame: frame(ether4(), ip4(routed4, protoTCP),
			segmentTo(unusedPort)), want: PassNoMatch},
		{name: "tcp other port", frame: frame(ether4(), ip4(local4, protoTCP),
			segmentTo(unusedPort)), want: PassNoMatch},
		{name: "ssh", frame: frame(ether4(), ip4(local4, protoTCP), segmentTo(22)),
			want: PassNoMatch},
		{name: "our port as source", frame: frame(ether4(), ip4(local4, protoTCP),
			tcp(listenPort, 40001)), want: PassNoMatch},
		{name: "byte-swapped port", frame: frame(ether4(), ip4(local4, protoTCP),
			segmentTo(listenPort&0xff<<8|listenPort>>8)), want: PassNoMatch},
		{name: "udp", frame: frame(ether4(), ip4(local4, layers.IPProtocolUDP),
			&layers.UDP{SrcPort: flowRemote, DstPort: listenPort}, payload), want: PassNotTCP},
		{name: "sctp", frame: frame(ether4(), ip4(local4, layers.IPProtocolSCTP), payload),
			want: PassNotTCP},
		{name: "ah v4", frame: frame(ether4(), ip4(local4, protoAH), raw(authentication(protoTCP),
			serialize(segmentTo(listenPort)))), want: PassNotTCP},
		{name: "esp v4", frame: frame(ether4(), ip4(local4, layers.IPProtocolESP), payload),
			want: PassNotTCP},
		{name: "ip in ip", frame: frame(ether4(), ip4(local4, layers.IPProtocolIPv4),
			ip4(local4, protoTCP), segmentTo(listenPort)), want: PassNotTCP},
		{name: "options v4", frame: listener(alert), want: Listener},
		{name: "options v4 full", frame: listener(fullOptions), want: Listener},
		{name: "ihl below 5", frame: patch(listener(), 14, 0x44), want: PassMalformed},
		{name: "ihl beyond length", frame: patch(listener(), 14, 0x4f, 16, 0, 17, 59),
			want: PassMalformed},
		{name: "version 5", frame: patch(listener(), 14, 0x55), want: PassMalformed},
		{name: "length beyond frame", frame: patch(listener(), 16, 0xff, 17, 0xff),
			want: PassMalformed},
		{name: "length zero", frame: patch(listener(), 16, 0, 17, 0), want: PassMalformed},
		{name: "length without tcp header", frame: patch(listener(), 16, 0, 17, 39),
			want: PassMalformed},
		{name: "tcp offset below 5", frame: patch(listener(), 14+20+12, 0x40), want: PassMalformed},
		{name: "tcp offset beyond length", frame: patch(frame(ether4(), ip4(local4, protoTCP),
			segmentTo(listenPort)), 14+20+12, 0x60), want: PassMalformed},
		{name: "tcp offset full", frame: patch(listener(), 14+20+12, 0xf0), want: Listener},
		{name: "later fragment alone",
			frame: frame(ether4(), ip4(local4, protoTCP, part(1, 24, false)), payload),
			want:  PassFragment},
		{name: "later fragment udp", frame: frame(ether4(), ip4(local4, layers.IPProtocolUDP,
			part(1, 24, false)), payload), want: PassNotTCP},
		{name: "tiny first fragment",
			frame: frame(ether4(), ip4(local4, protoTCP, part(2, 0, true)),
				gopacket.Payload(serialize(segmentTo(listenPort))[:16])), want: PassMalformed},
		{name: "fragment at 8 overwrites header",
			frame: frame(ether4(), ip4(local4, protoTCP, part(2, 8, false)), payload),
			want:  PassFragment},
	}
}

func fixtures6() []fixture {
	nd := []byte{135, 0, 0, 0, 0, 0, 0, 0}
	mapped := ip6(local6, protoTCP)
	mapped.SrcIP, mapped.DstIP = addr16(remote4), addr16(local4)
	listener := func() []byte {
		return frame(ether6(), ip6(local6, protoTCP), segmentTo(listenPort), payload)
	}
	return []fixture{
		{name: "flow v6", frame: frame(ether6(), ip6(local6, protoTCP), flowSegment(), payload),
			want: Flow},
		{name: "flow v6 jumbo", frame: frame(ether6(), ip6(local6, protoTCP), flowSegment(),
			gopacket.Payload(make([]byte, 8900))), want: Flow},
		{name: "listener v6", frame: listener(), want: Listener},
		{name: "listener v6 at other address", frame: frame(ether6(), ip6(other6, protoTCP),
			segmentTo(listenPort)), want: PassNoMatch},
		{name: "listener any v6", frame: frame(ether6(), ip6(other6, protoTCP), segmentTo(anyPort)),
			want: Listener},
		{name: "listener any6 v6", frame: frame(ether6(), ip6(other6, protoTCP),
			segmentTo(any6Port)), want: Listener},
		{name: "listener any v6 of another host", frame: frame(ether6(), ip6(routed6, protoTCP),
			segmentTo(anyPort)), want: PassNotLocal},
		{name: "listener any4 v6", frame: frame(ether6(), ip6(other6, protoTCP),
			segmentTo(any4Port)), want: PassNoMatch},
		{name: "ssh v6", frame: frame(ether6(), ip6(local6, protoTCP), segmentTo(22)),
			want: PassNoMatch},
		{name: "udp v6", frame: frame(ether6(), ip6(local6, layers.IPProtocolUDP),
			&layers.UDP{SrcPort: flowRemote, DstPort: listenPort}, payload), want: PassNotTCP},
		{name: "neighbour solicitation",
			frame: frame(ether6(), ip6(local6, layers.IPProtocolICMPv6), raw(nd, addr16(local6))),
			want:  PassNotTCP},
		{name: "no next header", frame: frame(ether6(), ip6(local6, layers.IPProtocolNoNextHeader),
			payload), want: PassNotTCP},
		{name: "esp v6", frame: frame(ether6(), ip6(local6, layers.IPProtocolESP), payload),
			want: PassNotTCP},
		{name: "mapped addresses on the wire", frame: frame(ether6(), mapped, flowSegment(),
			payload), want: PassMalformed},
		{name: "version 4 in ipv6", frame: patch(listener(), 14, 0x40), want: PassMalformed},
		{name: "payload length zero", frame: patch(listener(), 18, 0, 19, 0), want: PassMalformed},
		{name: "payload length beyond frame", frame: patch(listener(), 18, 0xff, 19, 0xff),
			want: PassMalformed},
		{name: "payload length without tcp header", frame: patch(listener(), 18, 0, 19, 19),
			want: PassMalformed},
		{name: "traffic class and flow label", frame: patch(listener(), 14, 0x6f, 15, 0xff, 16,
			0xff, 17, 0xff), want: Listener},
	}
}

func extensionFixtures() []fixture {
	seg := serialize(segmentTo(listenPort), payload)
	chain := func(first layers.IPProtocol, headers ...[]byte) []byte {
		return frame(ether6(), ip6(local6, first), raw(append(headers, seg)...))
	}
	dests := func(n int) []byte { // n destination options, then TCP
		var hs [][]byte
		for i := range n {
			next := protoDest
			if i == n-1 {
				next = protoTCP
			}
			hs = append(hs, options(next, 8))
		}
		return chain(protoDest, hs...)
	}
	long := patch(chain(protoDest, options(protoTCP, 8)), 14+40+1, 200)
	return []fixture{
		{name: "hop-by-hop", frame: chain(protoHop, options(protoTCP, 8)), want: Listener},
		{name: "hop-by-hop of 2048", frame: chain(protoHop, options(protoTCP, 2048)),
			want: Listener},
		{name: "destination options", frame: chain(protoDest, options(protoTCP, 16)),
			want: Listener},
		{name: "routing done", frame: chain(protoRouting, routing(protoTCP, 0)), want: Listener},
		{name: "routing under way", frame: chain(protoRouting, routing(protoTCP, 1)),
			want: PassNotTCP},
		{name: "ah v6", frame: chain(protoAH, authentication(protoTCP)), want: PassNotTCP},
		{name: "ah after options", frame: chain(protoHop, options(protoDest, 8),
			options(protoAH, 8), authentication(protoTCP)), want: PassNotTCP},
		{name: "ah in a fragment", frame: frame(ether6(), ip6(local6, protoFrag),
			raw(fragment6(protoAH, 82, 0, true), authentication(protoTCP), seg)), want: PassNotTCP},
		{name: "atomic fragment", frame: chain(protoFrag, fragment6(protoTCP, 77, 0, false)),
			want: Listener},
		{name: "later fragment v6 alone", frame: frame(ether6(), ip6(local6, protoFrag),
			raw(fragment6(protoTCP, 78, 64, false), payload)), want: PassFragment},
		{name: "tiny first fragment v6", frame: frame(ether6(), ip6(local6, protoFrag),
			raw(fragment6(protoTCP, 79, 0, true), seg[:16])), want: PassMalformed},
		{name: "first fragment without tcp", frame: frame(ether6(), ip6(local6, protoFrag),
			raw(fragment6(protoDest, 80, 0, true), options(protoTCP, 8))), want: PassMalformed},
		{name: "all kinds in order", frame: chain(protoHop, options(protoDest, 8),
			options(protoRouting, 24), routing(protoFrag, 0),
			fragment6(protoDest, 81, 0, false), options(protoTCP, 8)), want: Listener},
		{name: "six headers", frame: dests(6), want: Listener},
		{name: "seven headers", frame: dests(7), want: PassExtensionDepth},
		{name: "hop-by-hop not first", frame: chain(protoDest, options(protoHop, 8),
			options(protoTCP, 8)), want: PassNotTCP},
		{name: "headers before udp", frame: chain(protoHop, options(protoDest, 8),
			options(layers.IPProtocolUDP, 8)), want: PassNotTCP},
		{name: "header longer than datagram", frame: long, want: PassMalformed},
		{name: "headers beyond first buffer", frame: chain(protoDest, options(protoDest, 2048),
			options(protoTCP, 1944)), want: PassHeaderSplit},
		{name: "headers beyond limit", frame: chain(protoDest, options(protoDest, 2048),
			options(protoDest, 2048), options(protoTCP, 2048)), want: PassHeaderSplit},
	}
}

func icmpFixtures4() []fixture {
	ours := sent4(at(local4, flowPort), at(remote4, flowRemote))
	listening := sent4(at(local4, listenPort), at(remote4, 33333))
	quotedFragment := slices.Clone(ours)
	quotedFragment[7] = 3
	udp := slices.Clone(ours)
	udp[9] = byte(layers.IPProtocolUDP)
	withOptions := serialize(ip4(remote4, protoTCP, from4(local4), func(ip *layers.IPv4) {
		ip.Options = []layers.IPv4Option{{OptionType: 148, OptionLength: 4,
			OptionData: []byte{0, 0}}}
	}), tcp(flowPort, flowRemote), payload)
	others := sent4(at(other4, flowPort), at(remote4, flowRemote))
	longer := patch(slices.Clone(ours[:28]), 2, 5, 3, 220) // the quoted packet had 1500 bytes
	return []fixture{
		{name: "fragmentation needed", frame: icmp4(3, 4, ours), want: ICMP},
		{name: "port unreachable", frame: icmp4(3, 3, ours), want: ICMP},
		{name: "time exceeded", frame: icmp4(11, 0, ours), want: ICMP},
		{name: "parameter problem", frame: icmp4(12, 0, ours), want: ICMP},
		{name: "error for listener", frame: icmp4(3, 1, listening), want: ICMP},
		{name: "error with options in quote", frame: icmp4(3, 4, withOptions), want: ICMP},
		{name: "quote of 28 bytes", frame: icmp4(3, 4, ours[:28]), want: ICMP},
		{name: "quote promises more", frame: icmp4(3, 4, longer), want: ICMP},
		{name: "quote of 27 bytes", frame: icmp4(3, 4, ours[:27]), want: PassMalformed},
		{name: "quote without header", frame: icmp4(3, 4, ours[:19]), want: PassMalformed},
		{name: "no quote", frame: icmp4(3, 4, nil), want: PassMalformed},
		{name: "error for foreign flow",
			frame: icmp4(3, 4, sent4(at(local4, 22), at(remote4, flowRemote))), want: PassNotTCP},
		{name: "error for flow not reversed",
			frame: icmp4(3, 4, sent4(at(remote4, flowRemote), at(local4, flowPort))),
			want:  PassNotTCP},
		{name: "error to another host", frame: icmp4(3, 4, others), want: PassNotTCP},
		{name: "error for listener of another host",
			frame: frame(ether4(), ip4(routed4, layers.IPProtocolICMPv4),
				&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 4)},
				gopacket.Payload(sent4(at(routed4, anyPort), at(remote4, 33333)))),
			want: PassNotTCP},
		{name: "error for udp", frame: icmp4(3, 3, udp), want: PassNotTCP},
		{name: "quote of later fragment", frame: icmp4(3, 4, quotedFragment), want: PassNotTCP},
		{name: "source quench", frame: icmp4(4, 0, ours), want: PassNotTCP},
		{name: "redirect", frame: icmp4(5, 1, ours), want: PassNotTCP},
		{name: "echo request", frame: icmp4(8, 0, ours), want: PassNotTCP},
		{name: "echo reply", frame: icmp4(0, 0, ours), want: PassNotTCP},
		{name: "fragmented icmp", frame: frame(ether4(), ip4(local4, layers.IPProtocolICMPv4,
			part(5, 0, true)),
			&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 4)}, gopacket.Payload(ours)),
			want: PassNotTCP},
		{name: "icmpv6 in ipv4", frame: frame(ether4(), ip4(local4, layers.IPProtocolICMPv6),
			gopacket.Payload(ours)), want: PassNotTCP},
	}
}

func icmpFixtures6() []fixture {
	ours := sent6(at(local6, flowPort), at(remote6, flowRemote))
	extended := serialize(ip6(remote6, protoDest, from6(local6)), raw(options(protoTCP, 8),
		serialize(tcp(flowPort, flowRemote))))
	return []fixture{
		{name: "destination unreachable v6", frame: icmp6(1, 4, ours), want: ICMP},
		{name: "packet too big", frame: icmp6(2, 0, ours), want: ICMP},
		{name: "time exceeded v6", frame: icmp6(3, 0, ours), want: ICMP},
		{name: "parameter problem v6", frame: icmp6(4, 0, ours), want: ICMP},
		{name: "error with extension in quote", frame: icmp6(2, 0, extended), want: ICMP},
		{name: "error for listener v6",
			frame: icmp6(1, 4, sent6(at(local6, anyPort), at(remote6, 33333))), want: ICMP},
		{name: "quote of 48 bytes", frame: icmp6(2, 0, ours[:48]), want: ICMP},
		{name: "quote of 47 bytes", frame: icmp6(2, 0, ours[:47]), want: PassMalformed},
		{name: "quote without header v6", frame: icmp6(2, 0, ours[:39]), want: PassMalformed},
		{name: "error for foreign flow v6",
			frame: icmp6(2, 0, sent6(at(local6, 22), at(remote6, flowRemote))), want: PassNotTCP},
		{name: "error to another host v6",
			frame: icmp6(2, 0, sent6(at(other6, anyPort), at(remote6, 33333))), want: PassNotTCP},
		{name: "private error type", frame: icmp6(100, 0, ours), want: PassNotTCP},
		{name: "echo request v6", frame: icmp6(128, 0, ours), want: PassNotTCP},
		{name: "multicast listener report", frame: icmp6(143, 0, make([]byte, 24)),
			want: PassNotTCP},
		{name: "router advertisement", frame: icmp6(134, 0, make([]byte, 16)), want: PassNotTCP},
	}
}
