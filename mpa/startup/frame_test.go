package startup

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"xwarp/mpa/ulpdu"
)

// TestParseSMBD: the header of [MS-SMBD], 6.1, is IRD and ORD in network order, both above 0. Data that cannot be such
// a header stay private data. An IRD that is small only in little-endian order shows that an early sender wrote both
// numbers in that order.
//
//req:smbd-1
func TestParseSMBD(t *testing.T) {
	for _, c := range []struct {
		pd       string
		ird, ord uint32
		rest     string // what the consumer gets
		ok       bool
	}{
		{"", 0, 0, "", false},
		{"00000010 000000", 0, 0, "00000010 000000", false},
		{"00000010 00000001", 16, 1, "", true},
		{"00000010 00000001 09", 16, 1, "09", true},
		{"00000001 00000001", 1, 1, "", true},
		{"00000000 00000001", 0, 0, "00000000 00000001", false},
		{"00000001 00000000", 0, 0, "00000001 00000000", false},
		{"00000000 00000000 07", 0, 0, "00000000 00000000 07", false},
		{"0000ffff 00010002", 0xffff, 0x10002, "", true},
		{"00010000 00020000", 0x100, 0x200, "", true}, // large in network order: little-endian
		{"ffff0000 01000000 05", 0xffff, 1, "05", true},
		{"00000100 00000200", 0x100, 0x200, "", true}, // large as little-endian
		{"00010001 00000002", 0x10001, 2, "", true},   // large in either order
		{"10000000 00000000", 0, 0, "10000000 00000000", false},
	} {
		ird, ord, rest, ok := ParseSMBD(unhex(t, c.pd))
		if ird != c.ird || ord != c.ord || ok != c.ok || string(rest) != string(unhex(t, c.rest)) {
			t.Errorf("%s: IRD %d, ORD %d, rest %x, %v", c.pd, ird, ord, rest, ok)
		}
	}
	for n, want := range map[uint32]uint16{0: 0, 1: 1, NotNegotiated - 1: NotNegotiated - 1,
		NotNegotiated: NotNegotiated - 1, NotNegotiated + 1: NotNegotiated - 1,
		1 << 16: NotNegotiated - 1, 1<<32 - 1: NotNegotiated - 1} {
		if got := clamp14(n); got != want {
			t.Errorf("clamp14(%#x) = %#x, want %#x", n, got, want)
		}
	}
}

// TestWrongKeyFailsAtFirstByte: the start-up fails at the first byte that differs from the expected key, not later. The
// message names the usual mistakes.
//
//req:rfc5044-7.1.1-2
func TestWrongKeyFailsAtFirstByte(t *testing.T) {
	const req, rep, text = "MPA ID Req Frame", "MPA ID Rep Frame", "MPA ID Rtr Frame"
	sides := map[string]func() (func([]byte) (int, *ulpdu.Error), func() Stage){
		"initiator": func() (func([]byte) (int, *ulpdu.Error), func() Stage) {
			i := new(Initiator)
			i.Init(Config{})
			return i.Input, i.Stage
		},
		"responder": func() (func([]byte) (int, *ulpdu.Error), func() Stage) {
			r := new(Responder)
			r.Init(Config{})
			return r.Input, r.Stage
		},
	}
	try := func(side, key string, wrong int, message string) {
		t.Helper()
		for _, chunk := range []int{1, 7, 100} {
			input, stage := sides[side]()
			b := append([]byte(key), 0, 0, 0, 0)
			for at := 0; at < len(b); at += chunk {
				k := min(chunk, len(b)-at)
				n, err := input(b[at : at+k])
				if bad := at+k > wrong; (err != nil) != bad || n != k {
					t.Fatalf("%s, %q: %d bytes from %d on: used %d, %v; byte %d is wrong", side,
						key, k, at, n, err, wrong)
				} else if !bad {
					continue
				}
				want := &ulpdu.Error{Layer: ulpdu.MPA, Code: ulpdu.CodeStartup}
				if !err.Is(want) || !strings.Contains(err.Detail, message) ||
					stage() != StageFailed {
					t.Errorf("%s, %q: %v, want %q; %v", side, key, err, message, stage())
				}
				if n, again := input(b); n != 0 || again != err {
					t.Errorf("%s, %q: then used %d, %v", side, key, n, again)
				}
				break
			}
		}
	}
	for side, key := range map[string]string{"initiator": rep, "responder": req} {
		for k := range key {
			b := []byte(key)
			b[k] ^= 0x80
			message := map[string]string{"initiator": "no MPA Reply: the stream begins with ",
				"responder": "no MPA Request: the stream begins with "}
			try(side, string(b), k, message[side])
		}
	}
	try("initiator", req, strings.Index(req, "q"), "both sides are initiators")
	try("responder", rep, strings.Index(rep, "p"), "this side is a responder")
	try("initiator", text, strings.Index(text, "tr"), "no MPA Reply")
	try("responder", text, strings.Index(text, "tr"), "no MPA Request")
}

// TestDataLength: a frame is complete with the last byte of its private data, and not before; at most 512 bytes are
// allowed (RFC 5044, 7.1.1).
//
//req:rfc5044-7.1.1-9
func TestDataLength(t *testing.T) {
	for _, n := range []int{0, 1, MaxPrivateData - 1, MaxPrivateData, MaxPrivateData + 1,
		1<<16 - 1} {
		b := append([]byte("MPA ID Req Frame"), flagC, 1)
		b = append(binary.BigEndian.AppendUint16(b, uint16(n)), make([]byte, n)...)
		for _, chunk := range []int{1, 19, 20, 21, len(b)} {
			var r Responder
			r.Init(Config{})
			used := 0
			var err *ulpdu.Error
			for used < len(b) && err == nil {
				if r.Stage() != StageAwaitRequest {
					t.Fatalf("PD_Length %d: %v with %d bytes", n, r.Stage(), used)
				}
				var k int
				k, err = r.Input(b[used:min(used+chunk, len(b))])
				used += k
			}
			good := err == nil && r.Stage() == StageDecide && used == len(b) &&
				len(r.Request().PrivateData) == n
			if n > MaxPrivateData {
				message := fmt.Sprintf("PD_Length of %d bytes, at most 512", n)
				good = err != nil && r.Stage() == StageFailed && used == frameLen &&
					strings.Contains(err.Detail, message)
			}
			if !good {
				t.Errorf("PD_Length %d, chunks of %d: used %d, %v, %v", n, chunk, used, r.Stage(),
					err)
			}
		}
	}
}

// TestLongFPDUsNeedRevision2: the bit that offers FPDUs longer than a segment is reserved in revision 1 (RFC 5044,
// 7.1.1), and is ignored by a side that does not offer it.
func TestLongFPDUsNeedRevision2(t *testing.T) {
	for _, c := range []struct {
		cfg      Config
		req, rep string // the frame from the flags on
		long     bool   // long FPDUs are agreed
		ownReply string // our own Reply to req
	}{
		{Config{Revision: 1, LongFPDUs: true}, "48 01 0000", "48 01 0000", false, "40 01 0000"},
		{Config{LongFPDUs: true}, "58 02 0004 0000 0000", "58 02 0004 0000 0000", true,
			"58 02 0004 0000 0000"},
		{Config{LongFPDUs: true}, "50 02 0004 0000 0000", "50 02 0004 0000 0000", false,
			"50 02 0004 0000 0000"},
		{Config{}, "58 02 0004 0000 0000", "58 02 0004 0000 0000", false, "50 02 0004 0000 0000"},
	} {
		var i Initiator
		var r Responder
		i.Init(c.cfg)
		r.Init(c.cfg)
		i.Input(unhex(t, repKey+c.rep))
		r.Input(unhex(t, reqKey+c.req))
		if err := r.Accept(Answer{}); err != nil {
			t.Fatal(err)
		}
		if i.Stage() != StageEstablished || i.Params().LongFPDUs != c.long ||
			r.Params().LongFPDUs != c.long {
			t.Errorf("%+v, %s: %v, initiator %v, responder %v", c.cfg, c.req, i.Stage(),
				i.Params().LongFPDUs, r.Params().LongFPDUs)
		}
		if got := r.Output(); string(got) != string(unhex(t, repKey+c.ownReply)) {
			t.Errorf("%+v, %s: Reply %x, want %s", c.cfg, c.req, got[flagsAt:], c.ownReply)
		}
	}
}

// TestStringsOfValues checks the names of values that messages print.
func TestStringsOfValues(t *testing.T) {
	for want, s := range map[string]fmt.Stringer{
		"none":                               RTR(0),
		"Send":                               RTRSend,
		"Write":                              RTRWrite,
		"Read":                               RTRRead,
		"Write+Read":                         RTRWrite | RTRRead,
		"Send+Write+Read":                    allRTR,
		"waiting for the MPA Request":        StageAwaitRequest,
		"waiting for the consumer to accept": StageDecide,
		"waiting for the MPA Reply":          StageAwaitReply,
		"waiting for the Rtr frame":          StageAwaitRtr,
		"established":                        StageEstablished,
		"rejected":                           StageRejected,
		"failed":                             StageFailed,
		"stage 7":                            StageFailed + 1,
		"do not retry":                       RetryNone,
		"retry with revision 1":              RetryRevision1,
		"retry without markers":              RetryNoMarkers,
		"retry 3":                            RetryNoMarkers + 1,
		"IETF non-permissive":                NonPermissive,
		"IETF permissive":                    Permissive,
		"RDMAC":                              RDMAC,
		"role 3":                             RDMAC + 1,
	} {
		if got := s.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
