package ip

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"xwarp/tcp/wire"
)

// icmpPacket encodes an ICMP error that quotes a packet with gopacket, and returns the IP header and the ICMP message.
func icmpPacket(t testing.TB, v6 bool, typ, code uint8, mtu uint16, quote []byte) (h Header,
	payload []byte) {
	t.Helper()
	buf := gopacket.NewSerializeBuffer()
	o := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	var err error
	if v6 {
		n := &layers.IPv6{Version: 6, SrcIP: v6b[:], DstIP: v6a[:],
			NextHeader: layers.IPProtocolICMPv6, HopLimit: 64}
		i := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(typ, code)}
		if err := i.SetNetworkLayerForChecksum(n); err != nil {
			t.Fatal(err)
		}
		body := append(binary.BigEndian.AppendUint32(nil, uint32(mtu)), quote...)
		err = gopacket.SerializeLayers(buf, o, n, i, gopacket.Payload(body))
	} else {
		n := &layers.IPv4{Version: 4, SrcIP: v4b[12:], DstIP: v4a[12:],
			Protocol: layers.IPProtocolICMPv4, TTL: 64}
		i := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(typ, code), Seq: mtu}
		err = gopacket.SerializeLayers(buf, o, n, i, gopacket.Payload(quote))
	}
	if err != nil {
		t.Fatal(err)
	}
	off, err := h.Decode(buf.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return h, buf.Bytes()[off:]
}

func quote(v6 bool, n int) []byte {
	h := Header{V6: v6, Src: v4a, Dst: v4b, Proto: 6, TTL: 60, PayloadLen: 1000}
	if v6 {
		h.Src, h.Dst = v6a, v6b
	}
	b := make([]byte, h.Len()+20)
	off := h.Put(b)
	s := wire.Header{SrcPort: 4000, DstPort: 7, Seq: 0xfffffffe, Flags: wire.ACK}
	s.Put(b[off:])
	return b[:off+n]
}

func TestICMP(t *testing.T) {
	for _, c := range []struct {
		v6        bool
		typ, code uint8
		mtu       uint16
		kind      ICMPKind
	}{
		{false, 3, 0, 0, NetUnreachable}, {false, 3, 1, 0, HostUnreachable},
		{false, 3, 2, 0, ProtoUnreachable}, {false, 3, 3, 0, PortUnreachable},
		{false, 3, 4, 1400, PacketTooBig}, {false, 3, 4, 0, PacketTooBig},
		{false, 3, 13, 0, Prohibited}, {false, 11, 0, 0, TimeExceeded},
		{false, 12, 0, 0, ParameterProblem}, {false, 4, 0, 0, ICMPNone}, {false, 5, 1, 0, ICMPNone},
		{false, 8, 0, 0, ICMPNone},
		{true, 1, 0, 0, NetUnreachable}, {true, 1, 1, 0, Prohibited},
		{true, 1, 3, 0, HostUnreachable}, {true, 1, 4, 0, PortUnreachable},
		{true, 2, 0, 1280, PacketTooBig}, {true, 3, 0, 0, TimeExceeded},
		{true, 4, 1, 0, ProtoUnreachable}, {true, 128, 0, 0, ICMPNone},
	} {
		for _, n := range []int{8, 20} {
			h, p := icmpPacket(t, c.v6, c.typ, c.code, c.mtu, quote(c.v6, n))
			var e ICMPError
			err := e.DecodeICMP(&h, p)
			if c.kind == ICMPNone {
				if err != ErrICMP {
					t.Errorf("type %d code %d: %v", c.typ, c.code, err)
				}
				continue
			}
			want := ICMPError{Kind: c.kind, From: h.Src, Local: h.Dst, Remote: h.Src,
				LocalPort: 4000, RemotePort: 7, Seq: 0xfffffffe, Len: 1020}
			if c.v6 {
				want.Len += 20
			}
			if c.kind == PacketTooBig {
				want.MTU = int(c.mtu)
			}
			if err != nil || e != want {
				t.Errorf("IPv6 %v type %d code %d: %v\n%s", c.v6, c.typ, c.code, err,
					cmp.Diff(want, e))
			}
			p[4] ^= 1
			if err := e.DecodeICMP(&h, p); err != ErrChecksum {
				t.Errorf("bad checksum: %v", err)
			}
		}
		h, p := icmpPacket(t, c.v6, c.typ, c.code, c.mtu, quote(c.v6, 7))
		var e ICMPError
		if err := e.DecodeICMP(&h, p); err == nil {
			t.Error("a quote without sequence number is taken")
		}
	}
}

// TestICMPOfOtherVersion: ICMPv4 in an IPv6 packet, or ICMPv6 in an IPv4 packet, is rejected whatever its checksum is.
func TestICMPOfOtherVersion(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		h, p := icmpPacket(t, v6, 1, 1, 0, quote(v6, 20))
		h.V6 = !v6
		var e ICMPError
		if err := e.DecodeICMP(&h, p); err != ErrICMP {
			t.Errorf("ICMP of IPv6 %v in a packet of IPv6 %v: %v", v6, h.V6, err)
		}
	}
}

// TestICMPKindString checks the names of some kinds, and that of an unknown kind.
func TestICMPKindString(t *testing.T) {
	for k, want := range map[ICMPKind]string{ICMPNone: "none", PacketTooBig: "packet too big",
		ParameterProblem: "parameter problem", ParameterProblem + 1: "?", 255: "?"} {
		if got := k.String(); got != want {
			t.Errorf("%d: %q, want %q", k, got, want)
		}
	}
}

// TestICMPOfNoSegment: the quote must be the first fragment of a TCP segment. A message about a UDP packet between the
// same addresses and ports is not about the connection.
func TestICMPOfNoSegment(t *testing.T) {
	unreachable := map[bool]uint8{false: 3, true: 1}
	for _, c := range []struct {
		name  string
		v6    bool
		at    int
		value byte
	}{
		{"UDP", false, 9, 17}, {"UDP", true, 6, 17}, {"version 6 in 4", false, 0, 0x65},
		{"version 4 in 6", true, 0, 0x45}, {"header of 16 bytes", false, 0, 0x44},
		{"header beyond the quote", false, 0, 0x4f}, {"a later fragment", false, 7, 1},
	} {
		q := quote(c.v6, 20)
		q[c.at] = c.value
		h, p := icmpPacket(t, c.v6, unreachable[c.v6], 1, 0, q)
		var e ICMPError
		if err := e.DecodeICMP(&h, p); err != ErrICMP {
			t.Errorf("%s, IPv6 %v: %v", c.name, c.v6, err)
		}
	}
}

// TestICMPCodes checks all types and codes of errors that concern connections: RFC 792, RFC 1122, 3.2.2.1 and RFC 1812,
// 5.2.7.1 for version 4; RFC 4443, 3 and RFC 4861 for version 6. The adjacent types and codes mean ICMPNone.
func TestICMPCodes(t *testing.T) {
	const (
		net, host, proto = NetUnreachable, HostUnreachable, ProtoUnreachable
		port, none       = PortUnreachable, ICMPNone
	)
	for _, c := range []struct {
		kind  func(typ, code byte) ICMPKind
		typ   byte
		codes []ICMPKind // from 0 on
	}{
		{icmp4, 2, []ICMPKind{none, none}},
		{icmp4, 3, []ICMPKind{net, host, proto, port, PacketTooBig, host, net, host, host,
			Prohibited, Prohibited, net, host, Prohibited, host, host, none}},
		{icmp4, 4, []ICMPKind{none, none}}, {icmp4, 10, []ICMPKind{none}},
		{icmp4, 11, []ICMPKind{TimeExceeded, TimeExceeded}},
		{icmp4, 12, []ICMPKind{ParameterProblem, ParameterProblem, ParameterProblem}},
		{icmp4, 13, []ICMPKind{none}}, {icmp6, 0, []ICMPKind{none}},
		{icmp6, 1, []ICMPKind{net, Prohibited, host, host, port, Prohibited, Prohibited, none}},
		{icmp6, 2, []ICMPKind{PacketTooBig, PacketTooBig}},
		{icmp6, 3, []ICMPKind{TimeExceeded, TimeExceeded}},
		{icmp6, 4, []ICMPKind{ParameterProblem, proto, ParameterProblem}},
		{icmp6, 5, []ICMPKind{none}},
	} {
		for code, want := range c.codes {
			if got := c.kind(c.typ, byte(code)); got != want {
				t.Errorf("type %d code %d: %v, want %v", c.typ, code, got, want)
			}
		}
	}
}

// TestICMPLengths: the header of a message is eight bytes long. The MTU of version 6 has 32 bits (RFC 4443, 3.2); a
// value above 65536 is read as 65536, which is more than any packet has.
func TestICMPLengths(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		h, p := icmpPacket(t, v6, 3-btoi(v6), 4*btoi(!v6), 1400, quote(v6, 20))
		for n, want := range map[int]error{0: ErrShort, 7: ErrShort, 8: ErrICMP} {
			b := append([]byte{}, p[:n]...)
			if n == 8 {
				fixSum(v6, &h, b)
			}
			var e ICMPError
			if err := e.DecodeICMP(&h, b); err != want {
				t.Errorf("IPv6 %v, %d bytes: %v, want %v", v6, n, err, want)
			}
		}
		if !v6 {
			continue
		}
		for mtu, want := range map[uint32]int{65535: 65535, 65536: 65536, 65537: 65536,
			1<<32 - 1: 65536} {
			binary.BigEndian.PutUint32(p[4:], mtu)
			fixSum(v6, &h, p)
			var e ICMPError
			if err := e.DecodeICMP(&h, p); err != nil || e.MTU != want {
				t.Errorf("MTU %d: %d, %v", mtu, e.MTU, err)
			}
		}
	}
}

// fixSum sets the checksum of an ICMP message to the correct value.
func fixSum(v6 bool, h *Header, p []byte) {
	acc := uint64(0)
	if v6 {
		acc = h.PseudoSum(len(p))
	}
	p[2], p[3] = 0, 0
	binary.BigEndian.PutUint16(p[2:], wire.Finish(wire.Sum(p, acc)))
}
