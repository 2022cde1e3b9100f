package stack

import (
	"encoding/binary"
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/wire"
)

// TestIgnoredIsCounted: segments that get no answer, SYNs answered with cookies, ICMP errors and invalid fragments are
// counted, and the counts stay when the listener is closed.
func TestIgnoredIsCounted(t *testing.T) {
	own, peer := v4(192, 0, 2, 1), v4(198, 51, 100, 9)
	tu := tcp.Tuple{Local: peer, Remote: own, LocalPort: 4000, RemotePort: 7}
	segment := func(port uint16, f wire.Flags) []byte {
		tu := tu
		tu.LocalPort = port
		return frame(macs[1], tu, wire.Header{Flags: f, Seq: 1000})
	}
	const more, marked = 1 << 13, 1 << 14 // of the fragment field; packet replaces marked by CE
	packet := func(proto uint8, payload []byte, frag uint16) []byte {
		e := ip.Ethernet{Dst: macs[0], Src: macs[1], Type: ip.TypeIPv4}
		x := ip.Header{Src: peer, Dst: own, Proto: proto, TTL: 64, PayloadLen: len(payload),
			TOS: uint8(frag >> 14 * 3)}
		frag &^= marked
		b := make([]byte, ip.EthernetLen+ip.Len4)
		h := b[e.Put(b):]
		x.Put(h)
		binary.BigEndian.PutUint16(h[6:], frag)
		binary.BigEndian.PutUint16(h[10:], 0)
		binary.BigEndian.PutUint16(h[10:], wire.Finish(wire.Sum(h, 0)))
		return append(b, payload...)
	}
	quote := make([]byte, 8+ip.Len4+8) // port unreachable, with the head of an unknown segment
	quote[0], quote[1] = 3, 3
	x := ip.Header{Src: own, Dst: peer, Proto: ip.ProtoTCP, TTL: 64, PayloadLen: 20}
	x.Put(quote[8:])
	binary.BigEndian.PutUint16(quote[2:], wire.Finish(wire.Sum(quote, 0)))
	for _, c := range []struct {
		name   string
		cfg    ListenConfig
		frames [][]byte
		want   func(n Stats) uint64
	}{
		{"RST for nothing", ListenConfig{}, [][]byte{segment(1, wire.RST)}, func(n Stats) uint64 {
			return n.DropListener
		}},
		{"neither SYN nor ACK", ListenConfig{}, [][]byte{segment(1, wire.FIN)},
			func(n Stats) uint64 {
				return n.DropListener
			}},
		{"backlog full", ListenConfig{Backlog: 1, Cookies: tcp.CookiesNever},
			[][]byte{segment(1, wire.SYN), segment(2, wire.SYN)},
			func(n Stats) uint64 { return n.DropSYN }},
		{"cookie", ListenConfig{Cookies: tcp.CookiesAlways}, [][]byte{segment(1, wire.SYN)},
			func(n Stats) uint64 {
				return n.SYNCookies
			}},
		{"ICMP about nobody", ListenConfig{}, [][]byte{packet(ip.ProtoICMP, quote, 0)},
			func(n Stats) uint64 {
				return n.DropICMP
			}},
		{"fragment of odd length", ListenConfig{},
			[][]byte{packet(ip.ProtoTCP, make([]byte, 15), more)},
			func(n Stats) uint64 { return n.DropFragments }},
		{"overlapping fragments", ListenConfig{},
			[][]byte{packet(ip.ProtoTCP, make([]byte, 16), more),
				packet(ip.ProtoTCP, make([]byte, 16), more|1)},
			func(n Stats) uint64 { return n.DropFragments }},
		{"fragments with CE and without ECN", ListenConfig{},
			[][]byte{packet(ip.ProtoTCP, make([]byte, 16), more|marked),
				packet(ip.ProtoTCP, make([]byte, 16), 2)},
			func(n Stats) uint64 { return n.DropFragments }},
	} {
		h := newHost(t, nil)
		h.listen(c.cfg)
		h.s.SetHop(peer, macs[1], nil)
		for _, f := range c.frames {
			h.give(f)
		}
		if n := h.s.Stats(); c.want(n) != 1 {
			t.Errorf("%s: %+v", c.name, n)
		}
		h.s.Unlisten(ip.AddrFrom4([4]byte{}), 7)
		if n := h.s.Stats(); c.want(n) != 1 {
			t.Errorf("%s, with the listener gone: %+v", c.name, n)
		}
	}
	h := newHost(t, nil)
	h.s.Inject(&Stray{Tuple: tu}, h.now)
	h.s.Inject(&Stray{Tuple: tu, ICMP: &ip.ICMPError{}}, h.now)
	if n := h.s.Stats(); n.DropNoConnection != 1 || n.DropICMP != 1 {
		t.Errorf("handed over for a closed connection: %+v", n)
	}
}
