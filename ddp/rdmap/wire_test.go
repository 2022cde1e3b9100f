package rdmap

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"xwarp/ddp"
	"xwarp/engine/testkit/havoc"
)

// unhex decodes hex with spaces.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func zeros(n int) string { return strings.Repeat("00", n) }

// TestVectors makes the ULPDUs of the reference vectors with a queue pair.
//
//req:rfc5041-4.1-2 rfc5041-4.1-5 rfc5041-4.2-2 rfc5041-4.3-3 rfc5040-4.1-1 rfc5040-4.1-2 rfc5040-4.1-4 rfc5040-4.1-5
//req:rfc5040-4.1-6 rfc5040-4.4-1 rfc5040-4.4-2 rfc5040-5.1-1 rfc5040-5.2.1-1 rfc5040-5.2.2-1 rfc5040-5.3-1 rfc7306-5.2-1
//req:rfc7306-5.2.1-1 rfc7306-5.2.2-1 rfc7306-6.3-1
func TestVectors(t *testing.T) {
	ietf := Params{Version: ddp.IETF, IRD: 4, ORD: 4}
	rdmac := Params{Version: ddp.RDMAC, IRD: 4, ORD: 4}
	rtr := func(k RTRKind) Params { return Params{Version: ddp.IETF, ORD: 1, IRD: 1, SendRTR: k} }
	write := SendWR{Op: WRWrite, RemoteSTag: 0x12345678, RemoteTO: 0x1000}
	thousand := make([]byte, 1000)
	for i := range thousand {
		thousand[i] = byte(i)
	}
	write.Inline = thousand
	for _, c := range []struct {
		name string
		p    Params
		wr   []SendWR
		want []string
	}{
		{"RFC 5044 figures: Sends of 24 zero bytes, MSN 1 and 2", ietf,
			[]SendWR{{Op: WRSend, Inline: make([]byte, 24)},
				{Op: WRSend, Inline: make([]byte, 24)}},
			[]string{"4143 00000000 00000000 00000001 00000000" +
				zeros(24), "4143 00000000 00000000 00000002 00000000" + zeros(24)}},
		{"draft-culley: the same in version 0", rdmac,
			[]SendWR{{Op: WRSend, Inline: make([]byte, 24)}},
			[]string{"4003 00000000 00000000 00000001 00000000" + zeros(24)}},
		{"RTR Write", rtr(RTRWrite), nil, []string{"c14000000001 0000000000000000"}},
		{"RTR Send", rtr(RTRSend), nil, []string{"4143 00000000 00000000 00000001 00000000"}},
		{"RTR Read", rtr(RTRRead), nil, []string{"4141 00000000 00000001 00000001 00000000 " +
			"00000001 0000000000000000 00000000 00000001 0000000000000000"}},
		{"Send after RTR Send is message 2", rtr(RTRSend), []SendWR{{Op: WRSend}},
			[]string{"4143 00000000 00000000 00000001 00000000",
				"4143 00000000 00000000 00000002 00000000"}},
		{"Send 1 byte", ietf, []SendWR{{Op: WRSend, Inline: []byte{1}}},
			[]string{"4143 00000000 00000000 00000001 00000000 01"}},
		{"Send 3 bytes", ietf, []SendWR{{Op: WRSend, Inline: []byte{1, 2, 3}}},
			[]string{"4143 00000000 00000000 00000001 00000000 010203"}},
		{"Immediate", ietf, []SendWR{{Op: WRImm, Imm: [8]byte{0x11, 0x22, 0x33, 0x44, 0x55, 0x66,
			0x77, 0x88}}},
			[]string{"4148 00000000 00000000 00000001 00000000 1122334455667788"}},
		{"RDMA Write of 1000 bytes", ietf, []SendWR{write},
			[]string{"c140 12345678 0000000000001000" + hex.EncodeToString(thousand)}},
		{"Send with Invalidate, SE, both, Immediate SE", ietf,
			[]SendWR{{Op: WRSendInv, Invalidate: 0x11223344}, {Op: WRSendSE},
				{Op: WRSendSEInv, Invalidate: 0x55667788}, {Op: WRImmSE}},
			[]string{"4144 11223344 00000000 00000001 00000000",
				"4145 00000000 00000000 00000002 00000000",
				"4146 55667788 00000000 00000003 00000000",
				"4149 00000000 00000000 00000004 00000000" + zeros(8)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, 1).open(func(cfg *Config) { cfg.MaxInline = 1000 }, c.p)
			for _, wr := range c.wr {
				h.send(wr)
			}
			frames := h.pullAll(1500)
			if len(frames) != len(c.want) {
				t.Fatalf("%d ULPDUs, want %d", len(frames), len(c.want))
			}
			for i, f := range frames {
				if want := unhex(t, c.want[i]); !bytes.Equal(f.b, want) {
					t.Errorf("ULPDU %d:\n got %x\nwant %x", i, f.b, want)
				}
			}
		})
	}
}

// TestSegmentation is the arithmetic of RFC 5041, 5.2: 2048 bytes at a MULPDU of 1500.
//
//req:rfc5041-2.3-1 rfc5041-4.1-2 rfc5041-4.2-2 rfc5041-4.3-2 rfc5041-4.3-5 rfc5041-5.2-1 rfc5041-5.2-4
func TestSegmentation(t *testing.T) {
	a, _ := twins(t, func(c *Config) { c.MaxInline = 2048 }, Params{})
	a.send(SendWR{Op: WRSend, Inline: make([]byte, 2048)})
	a.send(SendWR{Op: WRWrite, Inline: make([]byte, 2048), RemoteSTag: 5, RemoteTO: 16384})
	var got []string
	for _, f := range a.pullAll(1500) {
		if h, rest, err := ddp.ParseUntagged(f.b); err == nil {
			got = append(got, strings.Join([]string{h.String(),
				hex.EncodeToString([]byte{byte(len(rest) >> 8), byte(len(rest))})}, " "))
		}
		if h, rest, err := ddp.ParseTagged(f.b); err == nil {
			got = append(got, strings.Join([]string{h.String(),
				hex.EncodeToString([]byte{byte(len(rest) >> 8), byte(len(rest))})}, " "))
		}
	}
	want := []string{ // 1482 = 0x05ca and 566 = 0x0236; 1486 = 0x05ce and 562 = 0x0232
		"untagged DV 1 ULP 0x43 word 0x00000000 QN 0 MSN 1 MO 0 05ca",
		"untagged last DV 1 ULP 0x43 word 0x00000000 QN 0 MSN 1 MO 1482 0236",
		"tagged DV 1 ULP 0x40 STag 0x00000005 TO 0x4000 05ce",
		"tagged last DV 1 ULP 0x40 STag 0x00000005 TO 0x45ce 0232",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

const (
	vectorFetchAdd = "414a 00000000 00000001 00000001 00000000 00000000 00000007 00000100 " +
		"0000000000001000 0000000000000001 0000000000000000 0000000000000000 ffffffffffffffff"
	vectorResponse = "414b 00000000 00000003 00000001 00000000 00000007 0000000000000029"
	vectorReadResp = "c142 00000001 0000000000000000"
)

// TestHeaders checks the headers of RDMAP against the reference vectors, both ways.
//
//req:rfc5040-3.1-1 rfc5040-4.4-1 rfc7306-5.2-1
func TestHeaders(t *testing.T) {
	req := AtomicRequest{Op: FetchAdd, ID: 7, STag: 0x100, TO: 0x1000, Data: 1,
		CompareMask: ^uint64(0)}
	wire := unhex(t, vectorFetchAdd)[ddp.UntaggedLen:]
	if got, rest, err := ParseAtomicRequest(wire); err != nil || len(rest) != 0 || got != req {
		t.Errorf("parse: %v %x %v", got, rest, err)
	}
	if got := AppendAtomicRequest(nil, req); !bytes.Equal(got, wire) {
		t.Errorf("append: %x", got)
	}
	resp := AtomicResponse{ID: 7, Value: 41}
	wire = unhex(t, vectorResponse)[ddp.UntaggedLen:]
	if got, rest, err := ParseAtomicResponse(wire); err != nil || len(rest) != 0 || got != resp {
		t.Errorf("parse: %v %x %v", got, rest, err)
	}
	if got := AppendAtomicResponse(nil, resp); !bytes.Equal(got, wire) {
		t.Errorf("append: %x", got)
	}
	read := ReadRequest{SinkSTag: 0x01020304, SinkTO: 0x1112131415161718, Size: 0x21222324,
		SrcSTag: 0x31323334, SrcTO: 0x4142434445464748}
	wire = unhex(t, "01020304 1112131415161718 21222324 31323334 4142434445464748") // RFC 5040, figure 6
	if got, rest, err := ParseReadRequest(wire); err != nil || len(rest) != 0 || got != read {
		t.Errorf("parse: %v %x %v", got, rest, err)
	}
	if got := AppendReadRequest(nil, read); !bytes.Equal(got, wire) {
		t.Errorf("append: %x", got)
	}
	for n := range AtomicRequestLen {
		b := make([]byte, n)
		if _, _, err := ParseAtomicRequest(b); err == nil {
			t.Errorf("atomic request of %d bytes parsed", n)
		}
		if _, _, err := ParseReadRequest(b); (err == nil) != (n >= ReadRequestLen) {
			t.Errorf("read request of %d bytes: %v", n, err)
		}
		if _, _, err := ParseAtomicResponse(b); (err == nil) != (n >= AtomicRespLen) {
			t.Errorf("atomic response of %d bytes: %v", n, err)
		}
	}
	reserved := unhex(t, vectorFetchAdd)[ddp.UntaggedLen:]
	reserved[0], reserved[1], reserved[2], reserved[3] = 0xff, 0xff, 0xff, 0xf0
	if got, _, _ := ParseAtomicRequest(reserved); got != req {
		t.Errorf("reserved bits count: %v", got)
	}
}

// TestOpcodes checks the properties of all opcodes against RFC 5040, figure 4 and RFC 7306,
// figure 2.
//
//req:rfc5040-4.1-3 rfc7306-4.1-1
func TestOpcodes(t *testing.T) {
	for _, c := range []struct {
		op       Opcode
		qn       int8
		inv, sol bool
	}{
		{0, -1, false, false}, {1, 1, false, false}, {2, -1, false, false}, {3, 0, false, false},
		{4, 0, true, false}, {5, 0, false, true},
		{6, 0, true, true}, {7, 2, false, false}, {8, 0, false, false}, {9, 0, false, true},
		{10, 1, false, false}, {11, 3, false, false},
	} {
		if queueOf[c.op] != c.qn || c.op.Invalidates() != c.inv || c.op.Solicited() != c.sol {
			t.Errorf("%v: queue %d, invalidates %v, solicited %v", c.op, queueOf[c.op],
				c.op.Invalidates(), c.op.Solicited())
		}
	}
}

// bitwiseFetchAdd is the pseudocode of RFC 7306, 5.1.1.
func bitwiseFetchAdd(old, add, mask uint64) (v uint64) {
	carry := uint64(0)
	for bit := range 64 {
		at := uint64(1) << bit
		sum := carry + (old&at)>>bit + (add&at)>>bit
		carry = (sum & 2) >> 1
		if sum&1 != 0 {
			v |= at
		}
		if mask&at != 0 {
			carry = 0
		}
	}
	return v
}

//req:rfc7306-5-2 rfc7306-5.1-1 rfc7306-5.1-3
func TestAtomicArithmetic(t *testing.T) {
	for _, c := range []struct {
		name      string
		r         AtomicRequest
		old, want uint64
	}{
		{"add", AtomicRequest{Op: FetchAdd, Data: 1}, 41, 42},
		{"add wraps", AtomicRequest{Op: FetchAdd, Data: 1}, ^uint64(0), 0},
		{"add to two words", AtomicRequest{Op: FetchAdd, Data: 0x00000001_00000001,
			Mask: 0x80000000_80000000}, 0xffffffff_ffffffff, 0},
		{"add to the high word only", AtomicRequest{Op: FetchAdd, Data: 0x00000001_00000000,
			Mask: 0x80000000_80000000}, 0x00000005_ffffffff, 0x00000006_ffffffff},
		{"single bits", AtomicRequest{Op: FetchAdd, Data: 0x0f, Mask: ^uint64(0)}, 0x3c, 0x33},
		{"swap", AtomicRequest{Op: CmpSwap, Data: 7, Mask: ^uint64(0), Compare: 5,
			CompareMask: ^uint64(0)}, 5, 7},
		{"no match", AtomicRequest{Op: CmpSwap, Data: 7, Mask: ^uint64(0), Compare: 5,
			CompareMask: ^uint64(0)}, 6, 6},
		{"compare mask", AtomicRequest{Op: CmpSwap, Data: 0xaa, Mask: 0xff, Compare: 0x1200,
			CompareMask: 0xff00}, 0x9912cc, 0x9912aa},
		{"swap mask 0", AtomicRequest{Op: CmpSwap, Data: ^uint64(0), Compare: 1, CompareMask: 1},
			0x55, 0x55},
		{"compare mask 0 always swaps", AtomicRequest{Op: CmpSwap, Data: 3, Mask: ^uint64(0),
			Compare: 9}, 0x55, 3},
	} {
		if got, ok := c.r.Apply(c.old); !ok || got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
		}
	}
	if got, ok := (AtomicRequest{Op: 1}).Apply(5); ok || got != 5 {
		t.Errorf("reserved operation: %v %v", got, ok)
	}
}

//req:rfc7306-5.1-1
func FuzzFetchAdd(f *testing.F) {
	f.Add(uint64(1), uint64(2), uint64(0))
	f.Add(^uint64(0), uint64(1), uint64(0x8080808080808080))
	havoc.Fuzz(f, func(t *testing.T, old, add, mask uint64) {
		got, _ := AtomicRequest{Op: FetchAdd, Data: add, Mask: mask}.Apply(old)
		if want := bitwiseFetchAdd(old, add, mask); got != want {
			t.Fatalf("%#x + %#x by %#x = %#x, want %#x", old, add, mask, got, want)
		}
	})
}
