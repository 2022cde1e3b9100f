package ip

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"xwarp/engine/testkit/havoc"
	"xwarp/tcp/wire"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestEthernet(t *testing.T) {
	for _, c := range []struct {
		name, hex string
		want      Ethernet
		err       error
	}{
		{"plain", "020000000002 020000000001 0800", Ethernet{Dst: MAC{2, 0, 0, 0, 0, 2},
			Src: MAC{2, 0, 0, 0, 0, 1}, Type: TypeIPv4}, nil},
		{"one tag", "020000000002 020000000001 8100 6064 86dd", Ethernet{Dst: MAC{2, 0, 0, 0, 0, 2},
			Src: MAC{2, 0, 0, 0, 0, 1}, NVLAN: 1,
			VLAN: [2]VLANTag{{TypeVLAN, 0x6064}}, Type: TypeIPv6}, nil},
		{"two tags", "020000000002 020000000001 88a8 0001 8100 0002 0806",
			Ethernet{Dst: MAC{2, 0, 0, 0, 0, 2}, Src: MAC{2, 0, 0, 0, 0, 1}, NVLAN: 2,
				VLAN: [2]VLANTag{{TypeVLANS, 1}, {TypeVLAN, 2}}, Type: 0x0806}, nil},
		{"three tags", "020000000002 020000000001 88a8 0001 8100 0002 8100 0003 0800", Ethernet{},
			ErrVLAN},
	} {
		b := unhex(t, c.hex)
		var e Ethernet
		off, err := e.Decode(b)
		if err != c.err || err == nil && (off != len(b) || e != c.want) {
			t.Errorf("%s: %v, offset %d: %s", c.name, err, off, cmp.Diff(c.want, e))
			continue
		}
		for n := range b {
			if _, err := e.Decode(b[:n]); err == nil {
				t.Errorf("%s: %d of %d bytes decode", c.name, n, len(b))
			}
		}
		out := make([]byte, EthernetLen+maxVLAN*VLANTagLen)
		if err == nil && (c.want.Put(out) != c.want.Len() || !bytes.Equal(out[:c.want.Len()], b)) {
			t.Errorf("%s: Put wrote %x", c.name, out)
		}
	}
	if e := (Ethernet{VLAN: [2]VLANTag{{TCI: 0x6064}}}); e.VLAN[0].ID() != 100 {
		t.Error("VLAN identifier")
	}
}

var (
	v4a, v4b = AddrFrom4([4]byte{192, 0, 2, 1}), AddrFrom4([4]byte{192, 0, 2, 2})
	v6a      = Addr{0x20, 1, 0xd, 0xb8, 15: 1}
	v6b      = Addr{0x20, 1, 0xd, 0xb8, 15: 2}
)

// TestIPv4Golden decodes an IPv4 header that is a common example for the checksum of RFC 1071: 0xb861.
func TestIPv4Golden(t *testing.T) {
	b := unhex(t, "4500 0073 0000 4000 4011 b861 c0a8 0001 c0a8 00c7")
	b = append(b, make([]byte, 0x73-20+7)...) // and link padding
	var h Header
	off, err := h.Decode(b)
	if err != nil || off != 20 || h.PayloadLen != 0x73-20 || h.Proto != 17 || !h.DF ||
		h.TTL != 64 || h.Fragment ||
		h.Src != AddrFrom4([4]byte{192, 168, 0, 1}) ||
		h.Dst != AddrFrom4([4]byte{192, 168, 0, 199}) {
		t.Fatalf("%v %d %+v", err, off, h)
	}
	out := make([]byte, 20)
	if h.Put(out); !bytes.Equal(out, b[:20]) {
		t.Errorf("Put wrote %x", out)
	}
	b[8]-- // TTL
	if _, err := h.Decode(b); err != ErrChecksum {
		t.Errorf("bad checksum: %v", err)
	}
}

//req:rfc9293-MUST-50
func TestIPv4Edges(t *testing.T) {
	mk := func(edit func(b []byte)) []byte {
		b := make([]byte, 60)
		h := Header{Src: v4a, Dst: v4b, Proto: 6, TTL: 1, PayloadLen: 40}
		h.Put(b)
		edit(b)
		n := min(int(b[0]&15)*4, len(b))
		if n >= 20 {
			b[10], b[11] = 0, 0
			binary.BigEndian.PutUint16(b[10:], wire.Finish(wire.Sum(b[:n], 0)))
		}
		return b
	}
	for _, c := range []struct {
		name string
		b    []byte
		off  int
		err  error
	}{
		{"plain", mk(func(b []byte) {}), 20, nil},
		{"options", mk(func(b []byte) { b[0] = 0x4a }), 40, nil},
		{"no payload", mk(func(b []byte) { b[3] = 20 }), 20, nil},
		{"reserved flag", mk(func(b []byte) { b[6] |= 0x80 }), 20, nil},
		{"header of 16", mk(func(b []byte) { b[0] = 0x44 }), 0, ErrHeader},
		{"total below header", mk(func(b []byte) { b[2], b[3] = 0, 19 }), 0, ErrHeader},
		{"total beyond packet", mk(func(b []byte) { b[3] = 61 }), 0, ErrShort},
		{"version 5", mk(func(b []byte) { b[0] = 0x55 }), 0, ErrVersion},
	} {
		var h Header
		if off, err := h.Decode(c.b); off != c.off || err != c.err {
			t.Errorf("%s: offset %d, error %v", c.name, off, err)
		}
	}
	var h Header
	if _, err := h.Decode(nil); err != ErrShort {
		t.Error(err)
	}
}

func TestIPv6Extensions(t *testing.T) {
	ext := func(next byte, words byte) []byte {
		return append([]byte{next, words, 1, 4}, make([]byte, 4+8*int(words))...)
	}
	routing := func(next, left byte) []byte { return []byte{next, 0, 0, left, 0, 0, 0, 0} }
	cat := func(p ...[]byte) (b []byte) {
		for _, x := range p {
			b = append(b, x...)
		}
		return b
	}
	frag := func(next byte, off int, more bool) []byte {
		b := make([]byte, 8)
		b[0] = next
		v := uint16(off)
		if more {
			v |= 1
		}
		binary.BigEndian.PutUint16(b[2:], v)
		binary.BigEndian.PutUint32(b[4:], 0x1020304)
		return b
	}
	tcp := []byte("tcp segment.........")
	for _, c := range []struct {
		name  string
		first byte
		body  []byte
		off   int
		frag  bool
		err   error
	}{
		{"none", 6, tcp, 40, false, nil},
		{"hop-by-hop", 0, cat(ext(6, 0), tcp), 48, false, nil},
		{"all of them", 0, cat(ext(60, 1), ext(43, 0), routing(60, 0), ext(6, 2), tcp),
			40 + 16 + 8 + 8 + 24, false, nil},
		{"hop-by-hop not first", 60, cat(ext(0, 0), ext(6, 0), tcp), 0, false, ErrExtension},
		{"routing with segments left", 43, cat(routing(6, 1), tcp), 0, false, ErrExtension},
		{"first fragment", 44, cat(frag(6, 0, true), tcp), 48, true, nil},
		{"later fragment", 44, cat(frag(6, 8, false), tcp), 48, true, nil},
		{"atomic fragment", 44, cat(frag(60, 0, false), ext(6, 0), tcp), 56, false, nil},
		{"fragment in fragment", 44, cat(frag(44, 0, false), frag(6, 0, false), tcp), 0, false,
			ErrExtension},
		{"authentication header", 51, cat(ext(6, 0), tcp), 0, false, ErrExtension},
		{"no next header", 59, tcp, 0, false, ErrExtension},
		{"longer than the packet", 60, []byte{6, 200, 0, 0, 0, 0, 0, 0}, 0, false, ErrShort},
		{"cut", 60, []byte{6, 0, 0}, 0, false, ErrShort},
		{"cut fragment header", 44, []byte{6, 0, 0}, 0, false, ErrShort},
		{"too many", 60, cat(ext(60, 0), ext(60, 0), ext(60, 0), ext(60, 0), ext(60, 0), ext(60, 0),
			ext(60, 0), ext(60, 0), ext(6, 0), tcp), 0, false, ErrExtension},
	} {
		b := make([]byte, 40, 200)
		h := Header{V6: true, Src: v6a, Dst: v6b, Proto: c.first, TTL: 9, Flow: 0xabcde, TOS: 0x5a,
			PayloadLen: len(c.body)}
		h.Put(b)
		b = append(b, c.body...)
		var got Header
		off, err := got.Decode(b)
		if off != c.off || err != c.err || err == nil && (got.Fragment != c.frag ||
			c.frag && got.ID != 0x1020304 ||
			got.Src != v6a || got.Dst != v6b || got.Flow != 0xabcde ||
			got.TOS != 0x5a || !c.frag &&
			(got.Proto != 6 || !bytes.Equal(b[off:off+got.PayloadLen], tcp))) {
			t.Errorf("%s: offset %d, error %v, %+v", c.name, off, err, got)
		}
	}
	h := Header{V6: true, Src: v4a, Dst: v6b, Proto: 6}
	b := make([]byte, 40)
	h.Put(b)
	if _, err := h.Decode(b); err != ErrSource {
		t.Errorf("mapped source: %v", err)
	}
}

// TestGopacket decodes encoded headers with gopacket, an independent implementation, and compares the fields.
func TestGopacket(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		h := Header{V6: r.IntN(2) == 0, Proto: 6, TOS: uint8(r.Uint32()), TTL: uint8(r.Uint32()),
			DF: r.IntN(2) == 0,
			ID: r.Uint32() & 0xffff, PayloadLen: r.IntN(1400), Flow: r.Uint32() & 0xfffff, Src: v4a,
			Dst: v4b}
		if h.V6 {
			h.Src, h.Dst, h.ID, h.DF = v6a, v6b, 0, false
		} else {
			h.Flow = 0
		}
		e := Ethernet{Src: MAC{2, 1}, Dst: MAC{2, 2}, NVLAN: uint8(r.IntN(3)),
			VLAN: [2]VLANTag{{TypeVLAN, 5}, {TypeVLAN, 6}}, Type: TypeIPv4}
		for i := e.NVLAN; i < 2; i++ {
			e.VLAN[i] = VLANTag{}
		}
		if h.V6 {
			e.Type = TypeIPv6
		}
		b := make([]byte, e.Len()+h.Len()+h.PayloadLen)
		h.Put(b[e.Put(b):])
		p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.Default)
		if h.V6 {
			l, ok := p.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
			if !ok || !l.SrcIP.Equal(net.IP(h.Src[:])) || !l.DstIP.Equal(net.IP(h.Dst[:])) ||
				l.TrafficClass != h.TOS || l.FlowLabel != h.Flow ||
				l.HopLimit != h.TTL || int(l.Length) != h.PayloadLen || l.NextHeader != 6 {
				t.Fatalf("gopacket reads %+v, sent %+v", l, h)
			}
		} else {
			l, ok := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
			if !ok || !l.SrcIP.Equal(net.IP(h.Src[12:])) || !l.DstIP.Equal(net.IP(h.Dst[12:])) ||
				l.TOS != h.TOS || l.TTL != h.TTL ||
				uint32(l.Id) != h.ID || (l.Flags&layers.IPv4DontFragment != 0) != h.DF ||
				int(l.Length) != 20+h.PayloadLen {
				t.Fatalf("gopacket reads %+v, sent %+v", l, h)
			}
		}
		var e2 Ethernet
		var h2 Header
		off, err := e2.Decode(b)
		if err != nil || e2 != e {
			t.Fatalf("%v %s", err, cmp.Diff(e, e2))
		}
		if _, err := h2.Decode(b[off:]); err != nil || h2 != h {
			t.Fatalf("%v %s", err, cmp.Diff(h, h2))
		}
	}
}

func TestAddr(t *testing.T) {
	for _, c := range []struct {
		a                   Addr
		s                   string
		is4, multi, unspeci bool
	}{
		{v4a, "192.0.2.1", true, false, false},
		{v6a, "2001:db8:0:0:0:0:0:1", false, false, false},
		{AddrFrom4([4]byte{239, 1, 1, 1}), "239.1.1.1", true, true, false},
		{AddrFrom4([4]byte{255, 255, 255, 255}), "255.255.255.255", true, true, false},
		{AddrFrom4([4]byte{}), "0.0.0.0", true, false, true},
		{Addr{}, "0:0:0:0:0:0:0:0", false, false, true},
		{Addr{0: 0xff, 1: 2, 15: 1}, "ff02:0:0:0:0:0:0:1", false, true, false},
	} {
		if c.a.String() != c.s || c.a.Is4() != c.is4 || c.a.IsMulticast() != c.multi ||
			c.a.IsUnspecified() != c.unspeci {
			t.Errorf("%v: %v %v %v", c.a, c.a.Is4(), c.a.IsMulticast(), c.a.IsUnspecified())
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, v6 := range []bool{false, true} {
		e := Ethernet{Type: TypeIPv4, NVLAN: 1, VLAN: [2]VLANTag{{TypeVLAN, 5}}}
		if v6 {
			e.Type = TypeIPv6
		}
		q := quote(v6, 20)
		b := make([]byte, e.Len()+len(q))
		copy(b[e.Put(b):], q)
		f.Add(b)
		h, p := icmpPacket(f, v6, 3-2*btoi(v6), 4, 1400, q)
		b = make([]byte, e.Len()+h.Len()+len(p))
		n := e.Put(b)
		n += h.Put(b[n:])
		copy(b[n:], p)
		f.Add(b)
	}
	havoc.Fuzz(f, func(t *testing.T, b []byte) {
		b = bytes.Clone(b)
		var e Ethernet
		off, err := e.Decode(b)
		if err != nil {
			return
		}
		repair(b[off:])
		var h Header
		n, err := h.Decode(b[off:])
		if err != nil {
			return
		}
		if n < 20 || n+h.PayloadLen > len(b)-off {
			t.Fatalf("payload %d..%d of %d", n, n+h.PayloadLen, len(b)-off)
		}
		p := b[off+n : off+n+h.PayloadLen]
		if h.Fragment {
			var re Reassembler
			re.Init(1)
			re.Add(&h, p, 0)
			return
		}
		var i ICMPError
		_ = i.DecodeICMP(&h, p)
		_ = h.ValidTCP()
	})
}

// repair corrects the checksums of an IPv4 header and of an ICMP message. A fuzzer hardly ever guesses them.
func repair(b []byte) {
	if len(b) >= Len4 && b[0]>>4 == 4 && b[0]&15 >= 5 && len(b) >= int(b[0]&15)*4 {
		head := b[:int(b[0]&15)*4]
		head[10], head[11] = 0, 0
		binary.BigEndian.PutUint16(head[10:], wire.Finish(wire.Sum(head, 0)))
	}
	var h Header
	n, err := h.Decode(b)
	if err != nil || h.Fragment || h.PayloadLen < 8 || n+h.PayloadLen > len(b) {
		return
	}
	p := b[n : n+h.PayloadLen]
	acc := uint64(0)
	if h.V6 {
		acc = h.PseudoSum(len(p))
	}
	if h.Proto == ProtoICMP || h.Proto == ProtoICMPv6 {
		p[2], p[3] = 0, 0
		binary.BigEndian.PutUint16(p[2:], wire.Finish(wire.Sum(p, acc)))
	}
}

func btoi(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
