package wire

import (
	"encoding/hex"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"xwarp/engine/testkit/havoc"
	"xwarp/tcp/seq"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// golden are option layouts from the figures of the named RFCs, in headers made by hand after RFC 9293, figure 1.
var golden = []struct {
	name string
	hex  string
	want Header
	// canonical: Put writes the same bytes.
	canonical bool
}{
	{"plain ACK", "9c40 0007 01020304 05060708 5010 1000 0000 0000",
		Header{SrcPort: 40000, DstPort: 7, Seq: 0x01020304, Ack: 0x05060708, Flags: ACK,
			Window: 0x1000}, true},
	{"every flag, urgent", "0001 0002 ffffffff 00000000 51ff ffff 0000 8001",
		Header{SrcPort: 1, DstPort: 2, Seq: 0xffffffff, Flags: FlagMask, Window: 0xffff,
			Urgent: 0x8001}, true},
	{"reserved bits set", "0001 0002 00000001 00000002 5e10 0003 0000 0000",
		Header{SrcPort: 1, DstPort: 2, Seq: 1, Ack: 2, Flags: ACK, Window: 3}, false},
	{"MSS (9293, 3.2)", "0001 0002 00000001 00000000 6002 0003 0000 0000 020405b4",
		Header{SrcPort: 1, DstPort: 2, Seq: 1, Flags: SYN, Window: 3, Opt: Options{Present: HasMSS,
			MSS: 1460}}, true},
	{"timestamps in 12 bytes (7323, appendix A)", "0001 0002 00000001 00000002 8010 0003 0000 " +
		"0000 0101080a 11223344 55667788",
		Header{SrcPort: 1, DstPort: 2, Seq: 1, Ack: 2, Flags: ACK, Window: 3,
			Opt: Options{Present: HasTS, TSVal: 0x11223344, TSEcr: 0x55667788}}, true},
	{"two SACK blocks (2018, 3)", "0001 0002 00000001 00000002 a010 0003 0000 0000 01010512 " +
		"00001b58 00001d4c 00001964 00001a5e",
		Header{SrcPort: 1, DstPort: 2, Seq: 1, Ack: 2, Flags: ACK, Window: 3,
			Opt: Options{Present: HasSACK, NSACK: 2,
				SACK: [4]seq.Range{{Start: 7000, End: 7500}, {Start: 6500, End: 6750}}}}, true},
	{"SYN of a full stack", "0001 0002 00000001 00000000 a002 ffff 0000 0000 020405b4 0402080a " +
		"00000001 00000000 01030307",
		Header{SrcPort: 1, DstPort: 2, Seq: 1, Flags: SYN, Window: 0xffff,
			Opt: Options{Present: HasMSS | HasSACKPermitted | HasTS | HasWScale,
				MSS: 1460, WScale: 7, TSVal: 1}}, true},
	{"user timeout (5482, 3)", "0001 0002 00000001 00000002 6010 0003 0000 0000 1c048005",
		Header{SrcPort: 1, DstPort: 2, Seq: 1, Ack: 2, Flags: ACK, Window: 3,
			Opt: Options{Present: HasUTO, UTO: UserTimeout{Minutes: true, Value: 5}}}, true},
	{"AccECN order 0, three counters (9768, 3.2.3)", "0001 0002 00000001 00000002 8010 0003 0000 " +
		"0000 01ac0b 000001 000002 000003",
		Header{SrcPort: 1, DstPort: 2, Seq: 1, Ack: 2, Flags: ACK, Window: 3,
			Opt: Options{Present: HasAccECN0, NAccECN: 3, AccECN: [3]uint32{1, 2, 3}}}, true},
	{"AccECN order 1, one counter",
		"0001 0002 00000001 00000002 7010 0003 0000 0000 010101ae05 fffffe",
		Header{SrcPort: 1, DstPort: 2, Seq: 1, Ack: 2, Flags: ACK, Window: 3,
			Opt: Options{Present: HasAccECN1, NAccECN: 1, AccECN: [3]uint32{0xfffffe}}}, true},
	{"unknown kind and fast open are skipped", "0001 0002 00000001 00000000 8002 0003 0000 0000 " +
		"220601020304 fd04 f989 0101",
		Header{SrcPort: 1, DstPort: 2, Seq: 1, Flags: SYN, Window: 3, Opt: Options{}}, false},
	{"end of list hides the rest", "0001 0002 00000001 00000000 7002 0003 0000 0000 00020405 " +
		"b4000000",
		Header{SrcPort: 1, DstPort: 2, Seq: 1, Flags: SYN, Window: 3}, false},
	{"length 0 stops", "0001 0002 00000001 00000000 7002 0003 0000 0000 02040218 0800 0000",
		Header{SrcPort: 1, DstPort: 2, Seq: 1, Flags: SYN, Window: 3,
			Opt: Options{Present: HasMSS | Malformed, MSS: 536}}, false},
	{"length 1 stops", "0001 0002 00000001 00000000 6002 0003 0000 0000 03010000",
		Header{SrcPort: 1, DstPort: 2, Seq: 1, Flags: SYN, Window: 3,
			Opt: Options{Present: Malformed}}, false},
	{"option past the header", "0001 0002 00000001 00000000 6002 0003 0000 0000 01010204",
		Header{SrcPort: 1, DstPort: 2, Seq: 1, Flags: SYN, Window: 3,
			Opt: Options{Present: Malformed}}, false},
	{"kind as last byte", "0001 0002 00000001 00000000 6002 0003 0000 0000 01010102",
		Header{SrcPort: 1, DstPort: 2, Seq: 1, Flags: SYN, Window: 3,
			Opt: Options{Present: Malformed}}, false},
	{"MSS of a wrong length is skipped, the last of two counts", "0001 0002 00000001 00000000 " +
		"9002 0003 0000 0000 0203ff01 02040100 02040200 01010101",
		Header{SrcPort: 1, DstPort: 2, Seq: 1, Flags: SYN, Window: 3, Opt: Options{Present: HasMSS,
			MSS: 512}}, false},
	{"SACK of a wrong length is skipped", "0001 0002 00000001 00000002 8010 0003 0000 0000 0509 " +
		"00000001000000 010101",
		Header{SrcPort: 1, DstPort: 2, Seq: 1, Ack: 2, Flags: ACK, Window: 3}, false},
}

func squeeze(s string) string {
	b := []byte{}
	for _, c := range []byte(s) {
		if c != ' ' {
			b = append(b, c)
		}
	}
	return string(b)
}

//req:rfc9768-3.2.3-1 rfc9768-3.2.3-2
//req:rfc9293-MUST-4 rfc9293-MUST-68
func TestGolden(t *testing.T) {
	for _, c := range golden {
		t.Run(c.name, func(t *testing.T) {
			b := unhex(t, squeeze(c.hex))
			if int(b[12]>>4)*4 != len(b) {
				t.Fatalf("the test's data offset says %d bytes, there are %d", int(b[12]>>4)*4,
					len(b))
			}
			h, off, err := parse(append(b, "payload"...))
			if err != nil || off != len(b) {
				t.Fatalf("offset %d of %d, error %v", off, len(b), err)
			}
			if d := cmp.Diff(c.want, h); d != "" {
				t.Error(d)
			}
			if c.canonical {
				out := make([]byte, h.Len())
				if n := h.Put(out); n != len(b) ||
					hex.EncodeToString(out) != hex.EncodeToString(b) {
					t.Errorf("Put wrote\n%x, want\n%x", out[:n], b)
				}
			}
			for n := range b {
				if _, _, err := parse(b[:n]); err == nil {
					t.Errorf("%d of %d bytes parse", n, len(b))
				}
			}
		})
	}
	if _, _, err := parse(unhex(t, "0001000200000001000000024010000300000000")); err != ErrOffset {
		t.Errorf("data offset 4: %v", err)
	}
}

// randomHeader returns a random header whose options fit into MaxOptionsLen bytes.
func randomHeader(r *rand.Rand) Header {
	for {
		h := Header{SrcPort: uint16(r.Uint32()), DstPort: uint16(r.Uint32()),
			Seq: seq.Num(r.Uint32()), Ack: seq.Num(r.Uint32()),
			Flags: Flags(r.Uint32()) & FlagMask, Window: uint16(r.Uint32()),
			Urgent: uint16(r.Uint32())}
		o := &h.Opt
		o.Present = OptSet(r.Uint32()&r.Uint32()) & (HasMSS | HasWScale | HasSACKPermitted |
			HasSACK | HasTS | HasUTO | HasAccECN0)
		if o.Present.Has(HasAccECN0) {
			if r.IntN(2) == 0 {
				o.Present ^= HasAccECN0 | HasAccECN1
			}
			o.NAccECN = uint8(r.IntN(4))
			for i := range o.NAccECN {
				o.AccECN[i] = r.Uint32() & 0xffffff
			}
		}
		if o.Present.Has(HasSACK) {
			o.NSACK = uint8(1 + r.IntN(4))
			for i := range o.NSACK {
				o.SACK[i] = seq.Range{Start: seq.Num(r.Uint32()), End: seq.Num(r.Uint32())}
			}
		}
		if o.Present.Has(HasMSS) {
			o.MSS = uint16(r.Uint32())
		}
		if o.Present.Has(HasWScale) {
			o.WScale = uint8(r.Uint32())
		}
		if o.Present.Has(HasTS) {
			o.TSVal, o.TSEcr = r.Uint32(), r.Uint32()
		}
		if o.Present.Has(HasUTO) {
			o.UTO = UserTimeout{Minutes: r.IntN(2) == 0, Value: uint16(r.Uint32()) & 0x7fff}
		}
		if h.Len() <= MaxHeaderLen {
			return h
		}
	}
}

//req:rfc9293-MUST-64 rfc9293-MUST-68 rfc9293-MUST-69
func TestRoundTripAndGopacket(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 20000 {
		h := randomHeader(r)
		b := make([]byte, h.Len())
		if n := h.Put(b); n != len(b) {
			t.Fatalf("Put wrote %d, Len says %d: %v", n, len(b), &h)
		}
		got, off, err := parse(b)
		if err != nil || off != len(b) || got != h {
			t.Fatalf("%v\ncomes back as %v, error %v\n%s", &h, &got, err, cmp.Diff(h, got))
		}
		gopacketAgrees(t, &h, b)
	}
}

// gopacketAgrees fails t unless gopacket, an independent implementation, decodes h from b.
func gopacketAgrees(t *testing.T, h *Header, b []byte) {
	t.Helper()
	var l layers.TCP
	if err := l.DecodeFromBytes(b, gopacket.NilDecodeFeedback); err != nil {
		t.Fatalf("gopacket: %v: %v", err, h)
	}
	f := Flags(0)
	for i, on := range []bool{l.FIN, l.SYN, l.RST, l.PSH, l.ACK, l.URG, l.ECE, l.CWR, l.NS} {
		if on {
			f |= 1 << i
		}
	}
	if uint16(l.SrcPort) != h.SrcPort || uint16(l.DstPort) != h.DstPort || l.Seq != uint32(h.Seq) ||
		l.Ack != uint32(h.Ack) ||
		f != h.Flags || l.Window != h.Window || l.Urgent != h.Urgent {
		t.Fatalf("gopacket reads %+v, sent %v", l, h)
	}
	kinds := map[layers.TCPOptionKind]int{}
	for _, o := range l.Options {
		kinds[o.OptionType]++
		if o.OptionType == layers.TCPOptionKindSACK && len(o.OptionData) != int(h.Opt.NSACK)*8 {
			t.Fatalf("gopacket reads %d bytes of SACK, sent %v", len(o.OptionData), h)
		}
	}
	for kind, bit := range map[layers.TCPOptionKind]OptSet{2: HasMSS, 3: HasWScale,
		4: HasSACKPermitted, 5: HasSACK, 8: HasTS, 28: HasUTO, 172: HasAccECN0, 174: HasAccECN1} {
		if (kinds[kind] == 1) != h.Opt.Present.Has(bit) || kinds[kind] > 1 {
			t.Fatalf("gopacket finds option %d %d times, sent %v", kind, kinds[kind], h)
		}
	}
}

// slowSum returns the sum of RFC 1071, section 4.1, byte by byte.
func slowSum(b []byte) uint16 {
	var s uint32
	for i, v := range b {
		if i%2 == 0 {
			s += uint32(v) << 8
		} else {
			s += uint32(v)
		}
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// TestFlagsString: String uses tcpdump's letters for the flags.
func TestFlagsString(t *testing.T) {
	for f, want := range map[Flags]string{
		0: "none", 1 << 9: "none", SYN: "S", SYN | ACK: "S.", FIN | ACK: "F.",
		RST | PSH | URG: "RPU",
		SYN | ECE | CWR: "SEW", AE: "A",
	} {
		if got := f.String(); got != want {
			t.Errorf("%#x: %q, want %q", uint16(f), got, want)
		}
	}
}

// TestHeaderString: String shows each option that is present, and no other.
func TestHeaderString(t *testing.T) {
	counts := [3]uint32{1, 2, 3}
	for want, o := range map[string]Options{
		"":                  {},
		" <mss 1460>":       {Present: HasMSS, MSS: 1460},
		" <wscale 7>":       {Present: HasWScale, WScale: 7},
		" <sackOK>":         {Present: HasSACKPermitted},
		" <TS val 3 ecr 4>": {Present: HasTS, TSVal: 3, TSEcr: 4},
		" <sack 5:6> <sack 8:9>": {Present: HasSACK, NSACK: 2,
			SACK: [4]seq.Range{{Start: 5, End: 6}, {Start: 8, End: 9}, {Start: 11, End: 12}}},
		" <uto 2 minutes=true>":       {Present: HasUTO, UTO: UserTimeout{Value: 2, Minutes: true}},
		" <accecn0 [1]>":              {Present: HasAccECN0, NAccECN: 1, AccECN: counts},
		" <accecn1 [1 2 3]>":          {Present: HasAccECN1, NAccECN: 3, AccECN: counts},
		" <malformed>":                {Present: Malformed},
		" <mss 536> <TS val 0 ecr 0>": {Present: HasMSS | HasTS, MSS: 536},
	} {
		h := Header{SrcPort: 1, DstPort: 2, Seq: 3, Ack: 4, Flags: ACK, Window: 5, Opt: o}
		if got, want := h.String(), "1>2 [.] seq 3 ack 4 win 5"+want; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

//req:rfc9293-MUST-2
func TestChecksum(t *testing.T) {
	// RFC 1071, section 3.
	if got := Fold(Sum([]byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7}, 0)); got != 0xddf2 {
		t.Errorf("RFC 1071's example sums to %#x", got)
	}
	r := rand.New(rand.NewPCG(2, 2))
	same := func(a, b uint16) bool { return a == b || a%0xffff == b%0xffff }
	for n := range 700 {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
			if n%3 == 0 {
				b[i] = 0xff
			}
		}
		want := slowSum(b)
		if got := Fold(Sum(b, 0)); !same(got, want) {
			t.Fatalf("%d bytes: %#x, want %#x", n, got, want)
		}
	}
}

//req:rfc9293-MUST-2
func TestPseudoHeader(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 200 {
		h := randomHeader(r)
		n := r.IntN(1200)
		b := make([]byte, h.Len()+n)
		off := h.Put(b)
		for i := range b[off:] {
			b[off+i] = byte(r.Uint32())
		}
		var s4, d4 [4]byte
		var s6, d6 [16]byte
		for i := range 16 {
			s6[i], d6[i] = byte(r.Uint32()), byte(r.Uint32())
		}
		copy(s4[:], s6[:])
		copy(d4[:], d6[:])
		four := &layers.IPv4{SrcIP: s4[:], DstIP: d4[:], Protocol: 6, Version: 4}
		six := &layers.IPv6{SrcIP: s6[:], DstIP: d6[:], NextHeader: 6, Version: 6}
		for i, net := range []gopacket.NetworkLayer{four, six} {
			acc := PseudoSum4(s4, d4, 6, len(b))
			if i == 1 {
				acc = PseudoSum6(s6, d6, 6, len(b))
			}
			var l layers.TCP
			if err := l.DecodeFromBytes(b, gopacket.NilDecodeFeedback); err != nil {
				t.Fatal(err)
			}
			l.SetNetworkLayerForChecksum(net)
			want, err := l.ComputeChecksum()
			if err != nil {
				t.Fatal(err)
			}
			if got := Finish(Sum(b, acc)); got != want {
				t.Fatalf("version %d: %#x, gopacket says %#x", 4+2*i, got, want)
			}
			PutChecksum(b, want)
			if Fold(Sum(b, acc)) != 0xffff {
				t.Fatal("the segment does not verify")
			}
			PutChecksum(b, 0)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	h := randomHeader(r)
	b := make([]byte, 1500)
	var got Header
	if n := testing.AllocsPerRun(100, func() {
		off := h.Put(b)
		got.Decode(b[:off])
		PutChecksum(b, Finish(Sum(b, PseudoSum4([4]byte{}, [4]byte{}, 6, len(b)))))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

//req:rfc9293-MUST-7
func FuzzParse(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 50 {
		h := randomHeader(r)
		b := make([]byte, h.Len()+r.IntN(8))
		h.Put(b)
		f.Add(b)
	}
	havoc.Fuzz(f, func(t *testing.T, b []byte) {
		h, off, err := parse(b)
		if err != nil {
			return
		}
		if off < HeaderLen || off > len(b) || off > MaxHeaderLen {
			t.Fatalf("payload at %d of %d", off, len(b))
		}
		if h.Len() > MaxHeaderLen+8 { // no such header is sent: the padding of its options makes it too long
			return
		}
		c := make([]byte, 128)
		n := h.Put(c)
		h.Opt.Present &^= Malformed
		if n <= MaxHeaderLen {
			again, _, err := parse(c[:n])
			if err != nil || again.Opt.Present != h.Opt.Present || again.Seq != h.Seq ||
				again.Flags != h.Flags {
				t.Fatalf("%v comes back as %v: %v", &h, &again, err)
			}
		}
	})
}

// TestTimestamps: Decode's fast path for a lone timestamps option gives the same result as parse.
func TestTimestamps(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 100_000 {
		b := make([]byte, HeaderLen+TimestampsLen)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		b[12] = 8<<4 | b[12]&15
		copy(b[HeaderLen:], []byte{kindNop, kindNop, kindTimestamps, lenTimestamps})
		if r.IntN(8) == 0 {
			b[HeaderLen+r.IntN(4)] ^= 1 << r.IntN(8)
		}
		got, _, err := parse(b)
		var want Header
		want.fixed((*[HeaderLen]byte)(b))
		want.Opt.parse(b[HeaderLen:])
		if err != nil || got != want {
			t.Fatalf("% x: %+v, want %+v, %v", b, got, want, err)
		}
	}
}

// parse decodes the header at the start of b and returns it and the offset of the payload.
func parse(b []byte) (h Header, payloadOff int, err error) {
	payloadOff, err = h.Decode(b)
	return h, payloadOff, err
}

// TestAccECNLengths: "if the AccECN Option is of any other length, implementations MUST use those whole 3-byte
// fields that fit within the length and ignore the remainder of the option" (RFC 9768, 3.2.3).
//
//req:rfc9768-3.2.3-3 rfc9768-3.2.3-4
func TestAccECNLengths(t *testing.T) {
	for n := range 19 {
		b := make([]byte, HeaderLen+20)
		b[12] = byte(len(b) / 4 << 4)
		o := b[HeaderLen:]
		o[0], o[1] = kindAccECN0, byte(2+n)
		for i := range n {
			o[2+i] = byte(i + 1)
		}
		var h Header
		off, err := h.Decode(b)
		fields := min(n/3, 3)
		if err != nil || off != len(b) || h.Opt.Present != HasAccECN0 ||
			int(h.Opt.NAccECN) != fields {
			t.Fatalf("%d bytes: %v, %v", n, &h.Opt, err)
		}
		for i, v := range h.Opt.AccECN[:fields] {
			k := uint32(3*i + 1)
			if v != k<<16|(k+1)<<8|k+2 {
				t.Errorf("%d bytes: field %d is %#x", n, i, v)
			}
		}
	}
}
