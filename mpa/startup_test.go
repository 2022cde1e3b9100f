package mpa

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"xwarp/mpa/ulp"
)

const (
	reqKey = "4d504120494420526571204672616d65"
	repKey = "4d504120494420526570204672616d65"
)

// exchange runs a start-up until neither side has anything to say, in steps of at most chunk octets; both sides see the
// other close when one has failed.
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
		i.Closed("the peer closed")
	}
	if i.Stage() == StageFailed {
		r.Closed("the peer closed")
	}
}

func feed(input func([]byte) (int, *ulp.Error), b []byte, chunk int) {
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
	parse := func(s string) (cs []StartupConfig) {
		for _, m := range endpoint.FindAllStringSubmatch(s, -1) {
			c := StartupConfig{Markers: m[2] == "1", Revision: RevIETF}
			for c.Role.String() != m[1] {
				c.Role++
			}
			cs = append(cs, c)
		}
		return cs
	}
	cells, figure := 0, ""
	var columns []StartupConfig
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
				t.Errorf("%s: %v markers %v with %v markers %v: %s, want %s", figure, row.Role, row.Markers, columns[c].Role, columns[c].Markers, got, want)
			}
		}
	}
	if cells != 9+9+16 {
		t.Errorf("%d cells, want 34", cells)
	}
}

func cell(initiator, responder StartupConfig) string {
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
		return "close" // also when the responder took itself for established: it sees the close
	}
	p, q := i.Params(), r.Params()
	if i.Stage() != StageEstablished || r.Stage() != StageEstablished || p.Version != q.Version || p.Send != q.Receive || p.Receive != q.Send {
		return fmt.Sprintf("%v %+v, %v %+v", i.Stage(), p, r.Stage(), q)
	}
	if p.Version == 0 && (!p.Send.CRC || !p.Receive.CRC) {
		return "version 0 without CRC"
	}
	bit := map[bool]int{true: 1}
	return fmt.Sprintf("V=%d M=%d/%d", p.Version, bit[p.Receive.Markers], bit[q.Receive.Markers])
}

// TestStartupFrames checks the octets of Requests and Replies against frames written by hand from RFC 5044 figure 8 and
// RFC 6581 sections 6 and 9.
//
//req:rfc5044-4.4-1 rfc5044-7.1.1-1 rfc5044-7.1.1-5 rfc5044-7.1.1-7 rfc5044-7.1.2-1 rfc5044-7.1.2-4 rfc6581-6-1 rfc6581-6-2
//req:rfc6581-6-3 rfc6581-9-1 rfc6581-9.1-1 rfc6581-9.1-5 rfc6581-9.2-1 rfc6581-9.2-2 rfc6581-9.2-3 rfc6581-9.2-6 rfc6581-10-1
//req:rfc6581-10-2 ptp-1 smbd-1
func TestStartupFrames(t *testing.T) {
	for _, c := range []struct {
		name       string
		i, r       StartupConfig
		answer     Answer
		reject     bool
		req, reply string
	}{
		{"revision 1, private data", StartupConfig{Revision: 1, PrivateData: []byte("hello")}, StartupConfig{}, Answer{PrivateData: []byte("ok")}, false,
			reqKey + "40 01 0005 68656c6c6f", repKey + "40 01 0002 6f6b"},
		{"revision 1, markers, no CRC", StartupConfig{Revision: 1, Markers: true, NoCRC: true}, StartupConfig{Markers: true, NoCRC: true}, Answer{}, false,
			reqKey + "80 01 0000", repKey + "80 01 0000"},
		{"revision 1, rejected", StartupConfig{Revision: 1}, StartupConfig{}, Answer{PrivateData: []byte{7}}, true,
			reqKey + "40 01 0000", repKey + "60 01 0001 07"},
		{"revision 2, client-server", StartupConfig{IRD: 16, ORD: 8}, StartupConfig{}, Answer{IRD: 32, ORD: 32}, false,
			reqKey + "50 02 0004 0010 0008", repKey + "50 02 0004 0020 0010"},
		{"revision 2, peer-to-peer with Read", StartupConfig{IRD: 1, ORD: 0, RTR: RTRRead}, StartupConfig{}, Answer{}, false,
			reqKey + "50 02 0004 8001 4000", repKey + "50 02 0004 8001 4000"},
		{"revision 2, peer-to-peer, all offered, one answered", StartupConfig{IRD: 2, ORD: 3, RTR: allRTR}, StartupConfig{}, Answer{IRD: 4, ORD: 4}, false,
			reqKey + "50 02 0004 c002 c003", repKey + "50 02 0004 8004 4002"},
		{"revision 2, only Write offered", StartupConfig{IRD: 2, ORD: 3, RTR: RTRWrite}, StartupConfig{}, Answer{IRD: 4, ORD: 4}, false,
			reqKey + "50 02 0004 8002 8003", repKey + "50 02 0004 8004 8002"},
		{"revision 2, only Send offered", StartupConfig{RTR: RTRSend}, StartupConfig{}, Answer{IRD: 4, ORD: 4}, false,
			reqKey + "50 02 0004 c000 0000", repKey + "50 02 0004 c004 0000"},
		{"revision 2, not negotiated", StartupConfig{IRD: NotNegotiated, ORD: NotNegotiated}, StartupConfig{}, Answer{IRD: 4, ORD: 5}, false,
			reqKey + "50 02 0004 3fff 3fff", repKey + "50 02 0004 3fff 3fff"},
		{"revision 2, rejected with the ORD it needs", StartupConfig{IRD: 2, ORD: 2}, StartupConfig{}, Answer{IRD: 4, ORD: 9}, true,
			reqKey + "50 02 0004 0002 0002", repKey + "70 02 0004 0004 0009"},
		{"revision 0", StartupConfig{Role: RDMAC, PrivateData: []byte{1}}, StartupConfig{Role: Permissive}, Answer{PrivateData: []byte{2}}, false,
			reqKey + "c0 00 0001 01", repKey + "c0 00 0001 02"},
		{"Rtr frame", StartupConfig{Revision: 1, RtrFrame: true}, StartupConfig{RtrFrame: true}, Answer{}, false,
			reqKey + "50 01 0000", repKey + "50 01 0000"},
		{"Rtr frame not known", StartupConfig{Revision: 1, RtrFrame: true}, StartupConfig{}, Answer{}, false,
			reqKey + "50 01 0000", repKey + "40 01 0000"},
		{"[MS-SMBD]", StartupConfig{Revision: 1, SMBD: true, IRD: 16, ORD: 1, PrivateData: []byte{9}}, StartupConfig{SMBD: true}, Answer{IRD: 2, ORD: 300}, false,
			reqKey + "40 01 0009 00000010 00000001 09", repKey + "40 01 0008 00000002 00000010"},
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
			// The Reply may be followed by octets of full operation.
			if n, err := i.Input(append(reply, "FPDU"...)); n != len(reply) || err != nil {
				t.Errorf("Input of the Reply used %d of %d octets, %v", n, len(reply), err)
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

// TestNegotiation checks what both sides take away, whatever the chunks in which frames arrive.
//
//req:rfc5044-3-5 rfc5044-4.4-1 rfc5044-4.4-2 rfc5044-7.1.1-3 rfc5044-7.1.1-4 rfc5044-C-2 rfc5044-C-4 rfc6581-9.1-1
//req:rfc6581-9.1-2 rfc6581-9.1-3 rfc6581-9.1-5 rfc6581-9.1-6 rfc6581-9.2-2 rfc6581-9.2-3 rfc6581-9.2-5 rfc6581-10-2 ptp-1
//req:smbd-1
func TestNegotiation(t *testing.T) {
	for _, c := range []struct {
		name   string
		i, r   StartupConfig
		answer Answer
		pi, pr Params // private data left out
		term   uint8  // code of the Terminate of the initiator
	}{
		{name: "markers are of the receiver",
			i: StartupConfig{Revision: 1, Markers: true, NoCRC: true}, r: StartupConfig{NoCRC: true},
			pi: Params{Revision: 1, Version: 1, Receive: Framing{Markers: true}, PeerIRD: NotNegotiated, PeerORD: NotNegotiated},
			pr: Params{Revision: 1, Version: 1, Send: Framing{Markers: true}, PeerIRD: NotNegotiated, PeerORD: NotNegotiated}},
		{name: "one side's wish for CRCs counts for both",
			i: StartupConfig{Revision: 1, NoCRC: true}, r: StartupConfig{Markers: true},
			pi: Params{Revision: 1, Version: 1, Send: Framing{true, true}, Receive: Framing{CRC: true}, PeerIRD: NotNegotiated, PeerORD: NotNegotiated},
			pr: Params{Revision: 1, Version: 1, Receive: Framing{true, true}, Send: Framing{CRC: true}, PeerIRD: NotNegotiated, PeerORD: NotNegotiated}},
		{name: "ORD falls to the peer's IRD on both sides",
			i: StartupConfig{IRD: 4, ORD: 100}, answer: Answer{IRD: 50, ORD: 60},
			pi: Params{Revision: 2, Version: 1, Send: Framing{CRC: true}, Receive: Framing{CRC: true}, IRD: 4, ORD: 50, PeerIRD: 50, PeerORD: 4, Negotiated: true},
			pr: Params{Revision: 2, Version: 1, Send: Framing{CRC: true}, Receive: Framing{CRC: true}, IRD: 50, ORD: 4, PeerIRD: 4, PeerORD: 100, Negotiated: true}},
		{name: "0x3fff leaves local values alone",
			i: StartupConfig{IRD: NotNegotiated, ORD: NotNegotiated}, answer: Answer{IRD: 7, ORD: 9},
			pi: Params{Revision: 2, Version: 1, Send: Framing{CRC: true}, Receive: Framing{CRC: true}, IRD: NotNegotiated, ORD: NotNegotiated, PeerIRD: NotNegotiated, PeerORD: NotNegotiated, Negotiated: true},
			pr: Params{Revision: 2, Version: 1, Send: Framing{CRC: true}, Receive: Framing{CRC: true}, IRD: 7, ORD: 9, PeerIRD: NotNegotiated, PeerORD: NotNegotiated, Negotiated: true}},
		{name: "RTR: Read before Write before Send",
			i: StartupConfig{IRD: 1, ORD: 1, RTR: allRTR}, r: StartupConfig{RTR: RTRSend | RTRWrite}, answer: Answer{IRD: 1, ORD: 1},
			pi: Params{Revision: 2, Version: 1, Send: Framing{CRC: true}, Receive: Framing{CRC: true}, IRD: 1, ORD: 1, PeerIRD: 1, PeerORD: 1, Negotiated: true, PeerToPeer: true, RTR: RTRWrite},
			pr: Params{Revision: 2, Version: 1, Send: Framing{CRC: true}, Receive: Framing{CRC: true}, IRD: 1, ORD: 1, PeerIRD: 1, PeerORD: 1, Negotiated: true, PeerToPeer: true, RTR: RTRWrite}},
		{name: "RTR: a Read raises the responder's IRD",
			i: StartupConfig{RTR: RTRRead}, answer: Answer{},
			pi: Params{Revision: 2, Version: 1, Send: Framing{CRC: true}, Receive: Framing{CRC: true}, PeerIRD: 1, Negotiated: true, PeerToPeer: true, RTR: RTRRead},
			pr: Params{Revision: 2, Version: 1, Send: Framing{CRC: true}, Receive: Framing{CRC: true}, IRD: 1, Negotiated: true, PeerToPeer: true, RTR: RTRRead}},
		{name: "RTR: nothing in common",
			i: StartupConfig{RTR: RTRWrite}, r: StartupConfig{RTR: RTRSend}, term: CodeRTR,
			pi: Params{Revision: 2, Version: 1, Send: Framing{CRC: true}, Receive: Framing{CRC: true}, Negotiated: true, PeerToPeer: true},
			pr: Params{Revision: 2, Version: 1, Send: Framing{CRC: true}, Receive: Framing{CRC: true}, Negotiated: true, PeerToPeer: true, RTR: RTRSend}},
		{name: "Rtr frame",
			i: StartupConfig{Revision: 1, RtrFrame: true, IRD: 3, ORD: 4}, r: StartupConfig{RtrFrame: true}, answer: Answer{IRD: 5, ORD: 6},
			pi: Params{Revision: 1, Version: 1, Send: Framing{CRC: true}, Receive: Framing{CRC: true}, IRD: 3, ORD: 4, PeerIRD: NotNegotiated, PeerORD: NotNegotiated, RtrFrame: true},
			pr: Params{Revision: 1, Version: 1, Send: Framing{CRC: true}, Receive: Framing{CRC: true}, IRD: 5, ORD: 6, PeerIRD: NotNegotiated, PeerORD: NotNegotiated, RtrFrame: true}},
		{name: "[MS-SMBD]",
			i: StartupConfig{Revision: 1, SMBD: true, IRD: 16, ORD: 10}, r: StartupConfig{SMBD: true}, answer: Answer{IRD: 8, ORD: 20},
			pi: Params{Revision: 1, Version: 1, Send: Framing{CRC: true}, Receive: Framing{CRC: true}, IRD: 16, ORD: 8, PeerIRD: 8, PeerORD: 16, Negotiated: true},
			pr: Params{Revision: 1, Version: 1, Send: Framing{CRC: true}, Receive: Framing{CRC: true}, IRD: 8, ORD: 16, PeerIRD: 16, PeerORD: 10, Negotiated: true}},
		{name: "permissive initiator with revision 2 and an RDMAC responder",
			i: StartupConfig{Role: Permissive, IRD: 1, ORD: 1, NoCRC: true}, r: StartupConfig{Role: RDMAC}, answer: Answer{IRD: 2, ORD: 2},
			pi: Params{Send: Framing{true, true}, Receive: Framing{true, true}, IRD: 1, ORD: 1, PeerIRD: NotNegotiated, PeerORD: NotNegotiated},
			pr: Params{Revision: 2, Send: Framing{true, true}, Receive: Framing{true, true}, IRD: 2, ORD: 2, PeerIRD: NotNegotiated, PeerORD: NotNegotiated}},
	} {
		for _, chunk := range []int{1, 3, 20, 1000} {
			t.Run(fmt.Sprintf("%s/%d", c.name, chunk), func(t *testing.T) {
				var i Initiator
				var r Responder
				c.i.PrivateData, c.answer.PrivateData = []byte("from the initiator"), []byte("from the responder")
				if err := i.Init(c.i); err != nil {
					t.Fatal(err)
				}
				if err := r.Init(c.r); err != nil {
					t.Fatal(err)
				}
				exchange(&i, &r, c.answer, chunk)
				got, want := *i.Params(), c.pi
				if want.PrivateData = c.answer.PrivateData; !cmp.Equal(got, want) {
					t.Errorf("initiator (-want +got)\n%s", cmp.Diff(want, got))
				}
				got, want = *r.Params(), c.pr
				want.PrivateData = c.i.PrivateData
				if got.Version == 0 { // the RDMAC side sees the enhanced data as the consumer's
					got.PrivateData = got.PrivateData[len(got.PrivateData)-len(want.PrivateData):]
				}
				if !cmp.Equal(got, want) {
					t.Errorf("responder (-want +got)\n%s", cmp.Diff(want, got))
				}
				if c.term == 0 && (i.Stage() != StageEstablished || r.Stage() != StageEstablished || i.Terminate() != nil) {
					t.Errorf("%v and %v, Terminate %v", i.Stage(), r.Stage(), i.Terminate())
				}
				if c.term != 0 && (i.Stage() != StageFailed || i.Terminate() == nil || i.Terminate().Code != c.term) {
					t.Errorf("%v, Terminate %v, want code %d", i.Stage(), i.Terminate(), c.term)
				}
			})
		}
	}
}

// TestReplies feeds an initiator with Replies that our responder does not send.
//
//req:rfc5044-7.1.1-2 rfc5044-7.1.1-5 rfc5044-7.1.1-6 rfc5044-7.1.1-8 rfc5044-7.1.1-9 rfc5044-7.1.2-5 rfc5044-7.1.2-6
//req:rfc5044-7.1.2-8 rfc5044-7.1.2-9 rfc5044-8-4 rfc6581-6-3 rfc6581-9.1-4 rfc6581-9.2-5 rfc6581-9.2-6 rfc6581-10-4
func TestReplies(t *testing.T) {
	for _, c := range []struct {
		name  string
		cfg   StartupConfig
		reply string
		stage Stage
		retry Retry
		code  uint8 // of the error
	}{
		{"insufficient IRD", StartupConfig{IRD: 4}, repKey + "50 02 0004 0001 0005", StageFailed, RetryNone, CodeIRD},
		{"RTR not answered", StartupConfig{IRD: 4, ORD: 4, RTR: RTRSend}, repKey + "50 02 0004 0004 0004", StageFailed, RetryNone, CodeRTR},
		{"two RTR messages answered", StartupConfig{IRD: 4, ORD: 4, RTR: allRTR}, repKey + "50 02 0004 8004 c004", StageEstablished, RetryNone, 0},
		{"A in the Reply only", StartupConfig{IRD: 4, ORD: 4}, repKey + "50 02 0004 c004 c004", StageEstablished, RetryNone, 0},
		{"not enhanced", StartupConfig{}, repKey + "40 02 0000", StageFailed, RetryRevision1, CodeStartup},
		{"revision 1", StartupConfig{}, repKey + "40 01 0000", StageFailed, RetryRevision1, CodeStartup},
		{"enhanced without being asked", StartupConfig{Revision: 1}, repKey + "50 02 0004 0000 0000", StageFailed, RetryNone, CodeStartup},
		{"S with too little private data", StartupConfig{}, repKey + "50 02 0003 000000", StageFailed, RetryNone, CodeStartup},
		{"revision 3", StartupConfig{}, repKey + "50 03 0004 0000 0000", StageFailed, RetryNone, CodeStartup},
		{"reserved bits", StartupConfig{Revision: 1}, repKey + "4f 01 0000", StageEstablished, RetryNone, 0},
		{"rejected when markers were asked for", StartupConfig{Revision: 1, Markers: true}, repKey + "60 01 0000", StageRejected, RetryNoMarkers, 0},
		{"rejected by the consumer", StartupConfig{Revision: 1, Markers: true}, repKey + "60 01 0001 00", StageRejected, RetryNone, 0},
		{"enhanced, rejected when markers were asked for", StartupConfig{Markers: true}, repKey + "70 02 0004 0000 0000", StageRejected, RetryNoMarkers, 0},
		{"rejected with revision 1", StartupConfig{}, repKey + "60 01 0000", StageRejected, RetryRevision1, 0},
		{"initiator and initiator", StartupConfig{}, reqKey, StageFailed, RetryNone, CodeStartup},
		{"no MPA", StartupConfig{}, "48545450", StageFailed, RetryNone, CodeStartup},
		{"PD_Length 513", StartupConfig{}, repKey + "40 01 0201", StageFailed, RetryNone, CodeStartup},
		{"PD_Length 512, incomplete", StartupConfig{Revision: 1}, repKey + "40 01 0200" + zeros(511), StageAwaitReply, RetryNone, 0},
		{"PD_Length 512", StartupConfig{Revision: 1}, repKey + "40 01 0200" + zeros(512), StageEstablished, RetryNone, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var i Initiator
			if err := i.Init(c.cfg); err != nil {
				t.Fatal(err)
			}
			_, err := i.Input(unhex(t, c.reply))
			if i.Stage() != c.stage || i.Retry() != c.retry {
				t.Errorf("%v, %v; want %v, %v (%v)", i.Stage(), i.Retry(), c.stage, c.retry, err)
			}
			if (err != nil) != (c.code != 0) || err != nil && (err.Code != c.code || err.Layer != ulp.MPA) {
				t.Errorf("error %v, want code %d", err, c.code)
			}
			if want := c.code == CodeIRD || c.code == CodeRTR; (i.Terminate() != nil) != want {
				t.Errorf("Terminate %v", i.Terminate())
			}
		})
	}
}

// TestRequests feeds a responder with Requests that our initiator does not send.
//
//req:rfc5044-7.1.1-2 rfc5044-7.1.1-6 rfc5044-7.1.1-8 rfc5044-7.1.2-2 rfc5044-7.1.2-3 rfc5044-7.1.2-8 rfc5044-8-4 rfc5044-C-3
//req:rfc6581-6-2 rfc6581-10-3 smbd-1
func TestRequests(t *testing.T) {
	for _, c := range []struct {
		name  string
		cfg   StartupConfig
		req   string
		stage Stage
		reply string // sent all the same
	}{
		{"revision 2 not enhanced", StartupConfig{}, reqKey + "40 02 0000", StageDecide, ""},
		{"revision 2 for a side that knows 1", StartupConfig{Revision: 1}, reqKey + "50 02 0004 0000 0000", StageFailed, ""},
		{"revision 3", StartupConfig{}, reqKey + "40 03 0000", StageFailed, ""},
		{"S with too little private data", StartupConfig{}, reqKey + "50 02 0003 000000", StageFailed, ""},
		{"R set", StartupConfig{}, reqKey + "60 01 0000", StageDecide, ""},
		{"octets behind the Request", StartupConfig{}, reqKey + "40 01 0000 00", StageFailed, ""},
		{"responder and responder", StartupConfig{}, repKey, StageFailed, ""},
		{"PD_Length 513", StartupConfig{}, reqKey + "40 01 0201", StageFailed, ""},
		{"revision 0 for a non-permissive side", StartupConfig{Markers: true}, reqKey + "c0 00 0000", StageFailed, repKey + "c0 01 0000"},
		{"revision 0 with odd flags", StartupConfig{Role: Permissive}, reqKey + "00 00 0000", StageDecide, ""},
		{"little-endian [MS-SMBD]", StartupConfig{SMBD: true}, reqKey + "40 01 0008 10000000 01000000", StageDecide, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r Responder
			if err := r.Init(c.cfg); err != nil {
				t.Fatal(err)
			}
			_, err := r.Input(unhex(t, c.req))
			if r.Stage() != c.stage || (err != nil) != (c.stage == StageFailed) {
				t.Errorf("%v, %v; want %v", r.Stage(), err, c.stage)
			}
			if err != nil && err.Code != CodeStartup {
				t.Errorf("error %v, want code 4", err)
			}
			if got := r.Output(); !bytes.Equal(got, unhex(t, c.reply)) {
				t.Errorf("Output %x, want %s", got, c.reply)
			}
			if c.cfg.SMBD && (r.Request().IRD != 16 || r.Request().ORD != 1) {
				t.Errorf("IRD %d, ORD %d", r.Request().IRD, r.Request().ORD)
			}
		})
	}
}

// TestRtrFrameKeys checks that both ways to write the key of the proposal are taken, and nothing else.
//
//req:ptp-1
func TestRtrFrameKeys(t *testing.T) {
	for key, ok := range map[string]bool{"MPA ID RtR Frame": true, "MPA ID Rtr Frame": true, "MPA ID Req Frame": false, "MPA ID RTR Frame": false} {
		var r Responder
		r.Init(StartupConfig{RtrFrame: true})
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
	i.Init(StartupConfig{Revision: RevIETF, RtrFrame: true})
	i.Output()
	i.Input(unhex(t, repKey+"50 01 0000"))
	if got, want := i.Output(), unhex(t, "4d504120494420527452204672616d65 00 01 0000"); !bytes.Equal(got, want) {
		t.Errorf("Rtr frame\n got %x\nwant %x", got, want)
	}
}

// TestStartupClosed checks what a lost connection means at each stage, and what may work instead.
//
//req:rfc5044-8-1 rfc6581-10-4
func TestStartupClosed(t *testing.T) {
	var i Initiator
	for _, c := range []struct {
		cfg   StartupConfig
		input string
		retry Retry
	}{
		{StartupConfig{}, "", RetryRevision1},
		{StartupConfig{Revision: 1, Markers: true}, "", RetryNoMarkers},
		{StartupConfig{Revision: 1}, "", RetryNone},
		{StartupConfig{Role: RDMAC}, "", RetryNone},
		{StartupConfig{}, repKey, RetryNone}, // it did begin to answer
	} {
		i.Init(c.cfg)
		i.Input(unhex(t, c.input))
		if err := i.Closed("reset by the peer"); err == nil || err.Code != CodeClosed || i.Retry() != c.retry || i.Stage() != StageFailed {
			t.Errorf("%+v: %v, %v, want %v", c.cfg, err, i.Retry(), c.retry)
		}
	}
	var r Responder
	r.Init(StartupConfig{})
	if err := r.Closed("timeout"); err == nil || !strings.Contains(err.Error(), "timeout while waiting for the MPA Request") {
		t.Error(err)
	}
	i.Init(StartupConfig{})
	r.Init(StartupConfig{})
	exchange(&i, &r, Answer{}, 5)
	if i.Closed("x") != nil || r.Closed("x") != nil {
		t.Error("Closed after the start-up is an error of the start-up")
	}
}

//req:rfc5044-7.1.1-9
func TestStartupConfig(t *testing.T) {
	var i Initiator
	for _, c := range []struct {
		cfg  StartupConfig
		good bool
	}{
		{StartupConfig{PrivateData: make([]byte, 508)}, true},
		{StartupConfig{PrivateData: make([]byte, 509)}, false},
		{StartupConfig{Revision: 1, PrivateData: make([]byte, 512)}, true},
		{StartupConfig{Revision: 1, PrivateData: make([]byte, 513)}, false},
		{StartupConfig{Revision: 1, SMBD: true, PrivateData: make([]byte, 505)}, false},
		{StartupConfig{Revision: 3}, false}, {StartupConfig{Role: 3}, false}, {StartupConfig{IRD: 0x4000}, false}, {StartupConfig{RTR: 8}, false},
	} {
		if err := i.Init(c.cfg); (err == nil) != c.good {
			t.Errorf("%+v: %v", c.cfg, err)
		}
	}
	var r Responder
	r.Init(StartupConfig{})
	if r.Accept(Answer{}) == nil || r.Reject(Answer{}) == nil {
		t.Error("answered without a Request")
	}
	i.Init(StartupConfig{})
	r.Input(i.Output())
	if r.Accept(Answer{PrivateData: make([]byte, 509)}) == nil || r.Accept(Answer{IRD: 0x4000}) == nil || r.Stage() != StageDecide {
		t.Error("a bad Answer was taken")
	}
	if err := r.Accept(Answer{PrivateData: make([]byte, 508)}); err != nil {
		t.Error(err)
	}
}

// TestMirrorMarkers is Linux siw as initiator: it sends no M, and closes when the Reply has one.
func TestMirrorMarkers(t *testing.T) {
	for _, tc := range []struct{ asked, own, mirror, want bool }{
		{asked: false, own: true, mirror: true, want: false},
		{asked: false, own: true, mirror: false, want: true},
		{asked: true, own: true, mirror: true, want: true},
		{asked: true, own: false, mirror: true, want: false},
	} {
		var i Initiator
		var r Responder
		if err := i.Init(StartupConfig{Markers: tc.asked}); err != nil {
			t.Fatal(err)
		}
		if err := r.Init(StartupConfig{Markers: tc.own, MirrorMarkers: tc.mirror}); err != nil {
			t.Fatal(err)
		}
		exchange(&i, &r, Answer{}, 100)
		if i.Stage() != StageEstablished || r.Stage() != StageEstablished {
			t.Fatalf("%+v: %v, %v", tc, i.Stage(), r.Stage())
		}
		if got := r.Params(); got.Receive.Markers != tc.want || got.Send.Markers != tc.asked || i.Params().Send.Markers != tc.want {
			t.Errorf("%+v: responder %+v, initiator %+v", tc, got, i.Params())
		}
	}
}
