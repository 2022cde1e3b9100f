package startup

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"xwarp/mpa/ulpdu"
)

const (
	reqKey = "4d504120494420526571204672616d65"
	repKey = "4d504120494420526570204672616d65"
)

// TestConfigRefused: both sides refuse invalid configurations, and the error names the field.
func TestConfigRefused(t *testing.T) {
	for want, cfg := range map[string]Config{
		"": {Role: RDMAC, Revision: RevEnhanced, IRD: NotNegotiated, ORD: NotNegotiated,
			RTRs: allRTR},
		"invalid role 3":      {Role: RDMAC + 1},
		"invalid revision 3":  {Revision: RevEnhanced + 1},
		"IRD 16384":           {IRD: NotNegotiated + 1},
		"ORD 16384":           {ORD: NotNegotiated + 1},
		"invalid RTR set 0x8": {RTRs: allRTR + 1},
	} {
		var i Initiator
		var r Responder
		errs := map[string]error{"initiator": i.Init(cfg), "responder": r.Init(cfg)}
		for side, err := range errs {
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", side, err, want)
			}
		}
	}
}

// exchange runs a start-up until neither side has output, in steps of at most chunk bytes. If one side fails, the other
// sees it close.
func exchange(i *Initiator, r *Responder, a Answer, chunk int) {
	for range 4 {
		for b := i.Output(); b != nil; b = i.Output() {
			feed(r.Input, b, chunk)
		}
		if r.Stage() == StageDecide {
			if err := r.Accept(a); err != nil {
				panic(err)
			}
		}
		for b := r.Output(); b != nil; b = r.Output() {
			feed(i.Input, b, chunk)
		}
	}
	if r.Stage() == StageFailed {
		i.PeerClosed("the peer closed")
	}
	if i.Stage() == StageFailed {
		r.Closed("the peer closed")
	}
}

func feed(input func([]byte) (int, *ulpdu.Error), b []byte, chunk int) {
	for len(b) > 0 {
		k := min(chunk, len(b))
		n, err := input(b[:k])
		if err != nil || n < k {
			return
		}
		b = b[k:]
	}
}

// TestInterop runs every cell of the figures of RFC 5044, appendix C.
//
//req:rfc5044-7.1.1-3 rfc5044-C-1 rfc5044-C-2 rfc5044-C-3 rfc5044-C-4 carrier-2-1
func TestInterop(t *testing.T) {
	golden, err := os.ReadFile("testdata/interop.txt")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := regexp.MustCompile(`(RDMAC|IETF non-permissive|IETF permissive) M=([01])`)
	parse := func(s string) (cs []Config) {
		for _, m := range endpoint.FindAllStringSubmatch(s, -1) {
			c := Config{Markers: m[2] == "1", Revision: RevIETF}
			for c.Role.String() != m[1] {
				c.Role++
			}
			cs = append(cs, c)
		}
		return cs
	}
	cells, figure := 0, ""
	var columns []Config
	for line := range strings.Lines(string(golden)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
			continue
		case strings.HasPrefix(line, "figure"):
			figure, columns = line[:8], parse(line)
			continue
		}
		row := parse(line)[0]
		results := regexp.MustCompile(`close|V=[01] M=[01]/[01]\*?`).FindAllString(line, -1)
		if len(results) != len(columns) {
			t.Fatalf("%s: %d results for %d columns: %q", figure, len(results), len(columns), line)
		}
		for c, want := range results {
			cells++
			want = strings.TrimSuffix(want, "*")
			if got := cell(row, columns[c]); got != want {
				t.Errorf("%s: %v markers %v with %v markers %v: %s, want %s", figure, row.Role,
					row.Markers, columns[c].Role, columns[c].Markers, got, want)
			}
		}
	}
	if cells != 9+9+16 {
		t.Errorf("%d cells, want 34", cells)
	}
}

func cell(initiator, responder Config) string {
	var i Initiator
	var r Responder
	if err := i.Init(initiator); err != nil {
		return err.Error()
	}
	if err := r.Init(responder); err != nil {
		return err.Error()
	}
	exchange(&i, &r, Answer{}, 1000)
	if i.Stage() == StageFailed {
		return "close" // the responder may have been established until it saw the close
	}
	p, q := i.Params(), r.Params()
	if i.Stage() != StageEstablished || r.Stage() != StageEstablished || p.Version != q.Version ||
		p.Send != q.Receive || p.Receive != q.Send {
		return fmt.Sprintf("%v %+v, %v %+v", i.Stage(), p, r.Stage(), q)
	}
	if p.Version == 0 && (!p.Send.CRC || !p.Receive.CRC) {
		return "version 0 without CRC"
	}
	bit := map[bool]int{true: 1}
	return fmt.Sprintf("V=%d M=%d/%d", p.Version, bit[p.Receive.Markers], bit[q.Receive.Markers])
}

// TestStartupFrames checks the bytes of Requests and Replies against frames written by hand from RFC 5044 figure 8 and
// RFC 6581 sections 6 and 9.
//
//req:rfc5044-4.4-1 rfc5044-7.1.1-1 rfc5044-7.1.1-5 rfc5044-7.1.1-7 rfc5044-7.1.2-1 rfc5044-7.1.2-4 rfc6581-6-1 rfc6581-6-2
//req:rfc6581-6-3 rfc6581-9-1 rfc6581-9.1-1 rfc6581-9.1-5 rfc6581-9.2-1 rfc6581-9.2-2 rfc6581-9.2-3 rfc6581-9.2-6 rfc6581-10-1
//req:rfc6581-10-2 ptp-1 smbd-1
func TestStartupFrames(t *testing.T) {
	for _, c := range []struct {
		name       string
		i, r       Config
		answer     Answer
		reject     bool
		req, reply string
	}{
		{"revision 1, private data", Config{Revision: 1, PrivateData: []byte("hello")},
			Config{}, Answer{PrivateData: []byte("ok")}, false,
			reqKey + "40 01 0005 68656c6c6f", repKey + "40 01 0002 6f6b"},
		{"revision 1, markers, no CRC", Config{Revision: 1, Markers: true, NoCRC: true},
			Config{Markers: true, NoCRC: true}, Answer{}, false,
			reqKey + "80 01 0000", repKey + "80 01 0000"},
		{"revision 1, rejected", Config{Revision: 1}, Config{},
			Answer{PrivateData: []byte{7}}, true,
			reqKey + "40 01 0000", repKey + "60 01 0001 07"},
		{"revision 2, client-server", Config{IRD: 16, ORD: 8}, Config{},
			Answer{IRD: 32, ORD: 32}, false,
			reqKey + "50 02 0004 0010 0008", repKey + "50 02 0004 0020 0010"},
		{"revision 2, peer-to-peer with Read", Config{IRD: 1, ORD: 0, RTRs: RTRRead},
			Config{}, Answer{}, false,
			reqKey + "50 02 0004 8001 4000", repKey + "50 02 0004 8001 4000"},
		{"revision 2, peer-to-peer, all offered, one answered", Config{IRD: 2, ORD: 3,
			RTRs: allRTR}, Config{}, Answer{IRD: 4, ORD: 4}, false,
			reqKey + "50 02 0004 c002 c003", repKey + "50 02 0004 8004 4002"},
		{"revision 2, only Write offered", Config{IRD: 2, ORD: 3, RTRs: RTRWrite},
			Config{}, Answer{IRD: 4, ORD: 4}, false,
			reqKey + "50 02 0004 8002 8003", repKey + "50 02 0004 8004 8002"},
		{"revision 2, only Send offered", Config{RTRs: RTRSend}, Config{},
			Answer{IRD: 4, ORD: 4}, false,
			reqKey + "50 02 0004 c000 0000", repKey + "50 02 0004 c004 0000"},
		{"revision 2, not negotiated", Config{IRD: NotNegotiated, ORD: NotNegotiated},
			Config{}, Answer{IRD: 4, ORD: 5}, false,
			reqKey + "50 02 0004 3fff 3fff", repKey + "50 02 0004 3fff 3fff"},
		{"revision 2, rejected with the ORD it needs", Config{IRD: 2, ORD: 2},
			Config{}, Answer{IRD: 4, ORD: 9}, true,
			reqKey + "50 02 0004 0002 0002", repKey + "70 02 0004 0004 0009"},
		{"revision 0", Config{Role: RDMAC, PrivateData: []byte{1}},
			Config{Role: Permissive}, Answer{PrivateData: []byte{2}}, false,
			reqKey + "c0 00 0001 01", repKey + "c0 00 0001 02"},
		{"Rtr frame", Config{Revision: 1, RtrFrame: true}, Config{RtrFrame: true},
			Answer{}, false,
			reqKey + "50 01 0000", repKey + "50 01 0000"},
		{"Rtr frame not known", Config{Revision: 1, RtrFrame: true}, Config{},
			Answer{}, false,
			reqKey + "50 01 0000", repKey + "40 01 0000"},
		{"[MS-SMBD]", Config{Revision: 1, SMBD: true, IRD: 16, ORD: 1,
			PrivateData: []byte{9}}, Config{SMBD: true}, Answer{IRD: 2, ORD: 300}, false,
			reqKey + "40 01 0009 00000010 00000001 09", repKey + "40 01 0008 00000002 00000010"},
		{"[MS-SMBD], the least", Config{Revision: 1, SMBD: true, IRD: 1, ORD: 1},
			Config{SMBD: true}, Answer{IRD: 1, ORD: 1}, false,
			reqKey + "40 01 0008 00000001 00000001", repKey + "40 01 0008 00000001 00000001"},
		{"[MS-SMBD], none is written as the least", Config{Revision: 1, SMBD: true},
			Config{SMBD: true}, Answer{}, false,
			reqKey + "40 01 0008 00000001 00000001", repKey + "40 01 0008 00000001 00000001"},
		{"[MS-SMBD], rejected with the ORD it needs", Config{Revision: 1, SMBD: true, IRD: 16,
			ORD: 1}, Config{SMBD: true}, Answer{IRD: 2, ORD: 300, PrivateData: []byte{7}}, true,
			reqKey + "40 01 0008 00000010 00000001", repKey + "60 01 0009 00000002 0000012c 07"},
		{"rejected, and not because of the markers", Config{Revision: 1, Markers: true}, Config{},
			Answer{}, true,
			reqKey + "c0 01 0000", repKey + "e0 01 0000"},
		{"rejected by a side that asks for markers", Config{Revision: 1}, Config{Markers: true},
			Answer{}, true,
			reqKey + "40 01 0000", repKey + "60 01 0000"},
		{"Rtr frame, rejected", Config{Revision: 1, RtrFrame: true}, Config{RtrFrame: true},
			Answer{}, true,
			reqKey + "50 01 0000", repKey + "60 01 0000"},
		{"Rtr frame not asked for", Config{Revision: 1}, Config{RtrFrame: true}, Answer{}, false,
			reqKey + "40 01 0000", repKey + "40 01 0000"},
		{"long FPDUs", Config{LongFPDUs: true}, Config{LongFPDUs: true}, Answer{}, false,
			reqKey + "58 02 0004 0000 0000", repKey + "58 02 0004 0000 0000"},
		{"long FPDUs, rejected", Config{LongFPDUs: true}, Config{LongFPDUs: true}, Answer{}, true,
			reqKey + "58 02 0004 0000 0000", repKey + "70 02 0004 0000 0000"},
		{"long FPDUs with revision 1", Config{Revision: 1, LongFPDUs: true},
			Config{LongFPDUs: true}, Answer{}, false,
			reqKey + "40 01 0000", repKey + "40 01 0000"},
		{"revision 2, IRD not negotiated", Config{IRD: NotNegotiated, ORD: 8}, Config{},
			Answer{IRD: 4, ORD: 5}, false,
			reqKey + "50 02 0004 3fff 0008", repKey + "50 02 0004 0004 3fff"},
		{"revision 2, ORD not negotiated", Config{IRD: 2, ORD: NotNegotiated}, Config{},
			Answer{IRD: 4, ORD: 5}, false,
			reqKey + "50 02 0004 0002 3fff", repKey + "50 02 0004 3fff 0002"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var i Initiator
			var r Responder
			if err := i.Init(c.i); err != nil {
				t.Fatal(err)
			}
			if err := r.Init(c.r); err != nil {
				t.Fatal(err)
			}
			req := i.Output()
			if want := unhex(t, c.req); !bytes.Equal(req, want) {
				t.Errorf("Request\n got %x\nwant %x", req, want)
			}
			if n, err := r.Input(req); n != len(req) || err != nil {
				t.Fatal(n, err)
			}
			if !bytes.Equal(r.Request().PrivateData, c.i.PrivateData) {
				t.Errorf("private data %q, want %q", r.Request().PrivateData, c.i.PrivateData)
			}
			answer := r.Accept
			if c.reject {
				answer = r.Reject
			}
			if err := answer(c.answer); err != nil {
				t.Fatal(err)
			}
			reply := r.Output()
			if want := unhex(t, c.reply); !bytes.Equal(reply, want) {
				t.Errorf("Reply\n got %x\nwant %x", reply, want)
			}
			if i.Output() != nil || r.Output() != nil {
				t.Error("a frame came out twice")
			}
			// The Reply may be followed by bytes of full operation.
			if n, err := i.Input(append(reply, "FPDU"...)); n != len(reply) || err != nil {
				t.Errorf("Input of the Reply used %d of %d bytes, %v", n, len(reply), err)
			}
			want := StageEstablished
			if c.reject {
				want = StageRejected
			}
			if i.Stage() != want || !bytes.Equal(i.Params().PrivateData, c.answer.PrivateData) {
				t.Errorf("initiator %v, private data %q", i.Stage(), i.Params().PrivateData)
			}
		})
	}
}

// TestRtrFrameKeys checks that both spellings of the key of the proposal are accepted, and no other key.
//
//req:ptp-1
func TestRtrFrameKeys(t *testing.T) {
	for key, ok := range map[string]bool{"MPA ID RtR Frame": true, "MPA ID Rtr Frame": true,
		"MPA ID Req Frame": false, "MPA ID RTR Frame": false} {
		var r Responder
		r.Init(Config{RtrFrame: true})
		r.Input(unhex(t, reqKey+"50 01 0000"))
		if err := r.Accept(Answer{}); err != nil {
			t.Fatal(err)
		}
		f := append([]byte(key), 0xff, 1, 0, 0) // flags are ignored
		n, err := r.Input(append(f, "FPDU"...))
		if got := err == nil && n == len(f) && r.Stage() == StageEstablished; got != ok {
			t.Errorf("%q: used %d, %v, %v", key, n, err, r.Stage())
		}
	}
	var i Initiator
	i.Init(Config{Revision: RevIETF, RtrFrame: true})
	i.Output()
	i.Input(unhex(t, repKey+"50 01 0000"))
	if got, want := i.Output(),
		unhex(t, "4d504120494420527452204672616d65 00 01 0000"); !bytes.Equal(got, want) {
		t.Errorf("Rtr frame\n got %x\nwant %x", got, want)
	}
}

// TestStartupClosed checks the error of a lost connection at several stages, and what Retry suggests.
//
//req:rfc5044-8-1 rfc6581-10-4
func TestStartupClosed(t *testing.T) {
	var i Initiator
	for _, c := range []struct {
		cfg   Config
		input string
		retry Retry
	}{
		{Config{}, "", RetryRevision1},
		{Config{Revision: 1, Markers: true}, "", RetryNoMarkers},
		{Config{Revision: 1}, "", RetryNone},
		{Config{Role: RDMAC}, "", RetryNone},
		{Config{}, repKey, RetryNone}, // the peer has begun to answer
	} {
		i.Init(c.cfg)
		i.Input(unhex(t, c.input))
		if err := i.PeerClosed("reset by the peer"); err == nil || err.Code != ulpdu.CodeClosed ||
			i.Retry() != c.retry || i.Stage() != StageFailed {
			t.Errorf("%+v: %v, %v, want %v", c.cfg, err, i.Retry(), c.retry)
		}
		i.Init(c.cfg)
		i.Input(unhex(t, c.input))
		if err := i.Closed("timed out"); err == nil || err.Code != ulpdu.CodeClosed ||
			i.Retry() != RetryNone || i.Stage() != StageFailed {
			t.Errorf("%+v: %v, %v after an error that is not the peer's", c.cfg, err, i.Retry())
		}
	}
	var r Responder
	r.Init(Config{})
	if err := r.Closed("timeout"); err == nil ||
		!strings.Contains(err.Error(), "timeout while waiting for the MPA Request") {
		t.Error(err)
	}
	i.Init(Config{})
	r.Init(Config{})
	exchange(&i, &r, Answer{}, 5)
	if i.Closed("x") != nil || r.Closed("x") != nil {
		t.Error("Closed after the start-up is an error of the start-up")
	}
}

//req:rfc5044-7.1.1-9
func TestStartupConfig(t *testing.T) {
	var i Initiator
	for _, c := range []struct {
		cfg  Config
		good bool
	}{
		{Config{PrivateData: make([]byte, 508)}, true},
		{Config{PrivateData: make([]byte, 509)}, false},
		{Config{Revision: 1, PrivateData: make([]byte, 512)}, true},
		{Config{Revision: 1, PrivateData: make([]byte, 513)}, false},
		{Config{Revision: 1, SMBD: true, PrivateData: make([]byte, 505)}, false},
		{Config{Revision: 3}, false}, {Config{Role: 3}, false},
		{Config{IRD: 0x4000}, false}, {Config{RTRs: 8}, false},
	} {
		if err := i.Init(c.cfg); (err == nil) != c.good {
			t.Errorf("%+v: %v", c.cfg, err)
		}
	}
	var r Responder
	r.Init(Config{})
	if r.Accept(Answer{}) == nil || r.Reject(Answer{}) == nil {
		t.Error("answered without a Request")
	}
	i.Init(Config{})
	r.Input(i.Output())
	if r.Accept(Answer{PrivateData: make([]byte, 509)}) == nil ||
		r.Accept(Answer{IRD: 0x4000}) == nil || r.Stage() != StageDecide {
		t.Error("a bad Answer was taken")
	}
	if err := r.Accept(Answer{PrivateData: make([]byte, 508)}); err != nil {
		t.Error(err)
	}
}

// TestMirrorMarkers: with MirrorMarkers a responder asks for markers only if the initiator does. Linux's soft-iWARP as
// initiator sends no M, and closes when the Reply has one.
func TestMirrorMarkers(t *testing.T) {
	for _, tc := range []struct{ asked, own, mirror, want bool }{
		{asked: false, own: true, mirror: true, want: false},
		{asked: false, own: true, mirror: false, want: true},
		{asked: true, own: true, mirror: true, want: true},
		{asked: true, own: false, mirror: true, want: false},
	} {
		var i Initiator
		var r Responder
		if err := i.Init(Config{Markers: tc.asked}); err != nil {
			t.Fatal(err)
		}
		if err := r.Init(Config{Markers: tc.own, MirrorMarkers: tc.mirror}); err != nil {
			t.Fatal(err)
		}
		exchange(&i, &r, Answer{}, 100)
		if i.Stage() != StageEstablished || r.Stage() != StageEstablished {
			t.Fatalf("%+v: %v, %v", tc, i.Stage(), r.Stage())
		}
		if got := r.Params(); got.Receive.Markers != tc.want || got.Send.Markers != tc.asked ||
			i.Params().Send.Markers != tc.want {
			t.Errorf("%+v: responder %+v, initiator %+v", tc, got, i.Params())
		}
	}
}

func zeros(n int) string { return strings.Repeat("00", n) }

// unhex decodes hex digits that may be in groups.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
