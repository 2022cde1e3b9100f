package startup

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"xwarp/mpa"
	"xwarp/mpa/ulpdu"
)

// TestNegotiation checks the Params of both sides, for frames that arrive in chunks of several sizes.
//
//req:rfc5044-3-5 rfc5044-4.4-1 rfc5044-4.4-2 rfc5044-7.1.1-3 rfc5044-7.1.1-4 rfc5044-C-2 rfc5044-C-4 rfc6581-9.1-1
//req:rfc6581-9.1-2 rfc6581-9.1-3 rfc6581-9.1-5 rfc6581-9.1-6 rfc6581-9.2-2 rfc6581-9.2-3 rfc6581-9.2-5 rfc6581-10-2 ptp-1
//req:smbd-1
func TestNegotiation(t *testing.T) {
	for _, c := range []struct {
		name   string
		i, r   Config
		answer Answer
		pi, pr Params // private data left out
		term   uint8  // code of the Terminate of the initiator
	}{
		{name: "markers are of the receiver",
			i: Config{Revision: 1, Markers: true, NoCRC: true},
			r: Config{NoCRC: true},
			pi: Params{Revision: 1, Version: 1, Receive: mpa.Framing{Markers: true},
				PeerIRD: NotNegotiated, PeerORD: NotNegotiated},
			pr: Params{Revision: 1, Version: 1, Send: mpa.Framing{Markers: true},
				PeerIRD: NotNegotiated, PeerORD: NotNegotiated}},
		{name: "one side that asks for CRCs turns them on for both",
			i: Config{Revision: 1, NoCRC: true}, r: Config{Markers: true},
			pi: Params{Revision: 1, Version: 1, Send: mpa.Framing{Markers: true, CRC: true},
				Receive: mpa.Framing{CRC: true}, PeerIRD: NotNegotiated, PeerORD: NotNegotiated},
			pr: Params{Revision: 1, Version: 1, Receive: mpa.Framing{Markers: true, CRC: true},
				Send: mpa.Framing{CRC: true}, PeerIRD: NotNegotiated, PeerORD: NotNegotiated}},
		{name: "ORD falls to the peer's IRD on both sides",
			i: Config{IRD: 4, ORD: 100}, answer: Answer{IRD: 50, ORD: 60},
			pi: Params{Revision: 2, Version: 1, Send: mpa.Framing{CRC: true},
				Receive: mpa.Framing{CRC: true}, IRD: 4, ORD: 50, PeerIRD: 50, PeerORD: 4,
				Negotiated: true},
			pr: Params{Revision: 2, Version: 1, Send: mpa.Framing{CRC: true},
				Receive: mpa.Framing{CRC: true}, IRD: 50, ORD: 4, PeerIRD: 4, PeerORD: 100,
				Negotiated: true}},
		{name: "0x3fff leaves local values alone",
			i:      Config{IRD: NotNegotiated, ORD: NotNegotiated},
			answer: Answer{IRD: 7, ORD: 9},
			pi: Params{Revision: 2, Version: 1, Send: mpa.Framing{CRC: true},
				Receive: mpa.Framing{CRC: true}, IRD: NotNegotiated, ORD: NotNegotiated,
				PeerIRD: NotNegotiated, PeerORD: NotNegotiated, Negotiated: true},
			pr: Params{Revision: 2, Version: 1, Send: mpa.Framing{CRC: true},
				Receive: mpa.Framing{CRC: true}, IRD: 7, ORD: 9, PeerIRD: NotNegotiated,
				PeerORD: NotNegotiated, Negotiated: true}},
		{name: "RTR: Read before Write before Send",
			i: Config{IRD: 1, ORD: 1, RTRs: allRTR},
			r: Config{RTRs: RTRSend | RTRWrite}, answer: Answer{IRD: 1, ORD: 1},
			pi: Params{Revision: 2, Version: 1, Send: mpa.Framing{CRC: true},
				Receive: mpa.Framing{CRC: true}, IRD: 1, ORD: 1, PeerIRD: 1, PeerORD: 1,
				Negotiated: true, PeerToPeer: true, RTR: RTRWrite},
			pr: Params{Revision: 2, Version: 1, Send: mpa.Framing{CRC: true},
				Receive: mpa.Framing{CRC: true}, IRD: 1, ORD: 1, PeerIRD: 1, PeerORD: 1,
				Negotiated: true, PeerToPeer: true, RTR: RTRWrite}},
		{name: "RTR: a Read raises the responder's IRD",
			i: Config{RTRs: RTRRead}, answer: Answer{},
			pi: Params{Revision: 2, Version: 1, Send: mpa.Framing{CRC: true},
				Receive: mpa.Framing{CRC: true}, PeerIRD: 1, Negotiated: true, PeerToPeer: true,
				RTR: RTRRead},
			pr: Params{Revision: 2, Version: 1, Send: mpa.Framing{CRC: true},
				Receive: mpa.Framing{CRC: true}, IRD: 1, Negotiated: true, PeerToPeer: true,
				RTR: RTRRead}},
		{name: "RTR: nothing in common",
			i: Config{RTRs: RTRWrite}, r: Config{RTRs: RTRSend}, term: ulpdu.CodeRTR,
			pi: Params{Revision: 2, Version: 1, Send: mpa.Framing{CRC: true},
				Receive: mpa.Framing{CRC: true}, Negotiated: true, PeerToPeer: true},
			pr: Params{Revision: 2, Version: 1, Send: mpa.Framing{CRC: true},
				Receive: mpa.Framing{CRC: true}, Negotiated: true, PeerToPeer: true, RTR: RTRSend}},
		{name: "Rtr frame",
			i: Config{Revision: 1, RtrFrame: true, IRD: 3, ORD: 4},
			r: Config{RtrFrame: true}, answer: Answer{IRD: 5, ORD: 6},
			pi: Params{Revision: 1, Version: 1, Send: mpa.Framing{CRC: true},
				Receive: mpa.Framing{CRC: true}, IRD: 3, ORD: 4, PeerIRD: NotNegotiated,
				PeerORD: NotNegotiated, RtrFrame: true},
			pr: Params{Revision: 1, Version: 1, Send: mpa.Framing{CRC: true},
				Receive: mpa.Framing{CRC: true}, IRD: 5, ORD: 6, PeerIRD: NotNegotiated,
				PeerORD: NotNegotiated, RtrFrame: true}},
		{name: "[MS-SMBD]",
			i: Config{Revision: 1, SMBD: true, IRD: 16, ORD: 10},
			r: Config{SMBD: true}, answer: Answer{IRD: 8, ORD: 20},
			pi: Params{Revision: 1, Version: 1, Send: mpa.Framing{CRC: true},
				Receive: mpa.Framing{CRC: true}, IRD: 16, ORD: 8, PeerIRD: 8, PeerORD: 16,
				Negotiated: true},
			pr: Params{Revision: 1, Version: 1, Send: mpa.Framing{CRC: true},
				Receive: mpa.Framing{CRC: true}, IRD: 8, ORD: 16, PeerIRD: 16, PeerORD: 10,
				Negotiated: true}},
		{name: "FPDUs longer than a segment",
			i: Config{LongFPDUs: true}, r: Config{LongFPDUs: true},
			pi: Params{Revision: 2, Version: 1, Send: mpa.Framing{CRC: true},
				Receive: mpa.Framing{CRC: true}, Negotiated: true,
				LongFPDUs: true},
			pr: Params{Revision: 2, Version: 1, Send: mpa.Framing{CRC: true},
				Receive: mpa.Framing{CRC: true}, Negotiated: true,
				LongFPDUs: true}},
		{name: "FPDUs longer than a segment, which the responder does not support",
			i: Config{LongFPDUs: true},
			pi: Params{Revision: 2, Version: 1, Send: mpa.Framing{CRC: true},
				Receive: mpa.Framing{CRC: true}, Negotiated: true},
			pr: Params{Revision: 2, Version: 1, Send: mpa.Framing{CRC: true},
				Receive: mpa.Framing{CRC: true}, Negotiated: true}},
		{name: "FPDUs longer than a segment, which the initiator does not offer",
			i: Config{}, r: Config{LongFPDUs: true},
			pi: Params{Revision: 2, Version: 1, Send: mpa.Framing{CRC: true},
				Receive: mpa.Framing{CRC: true}, Negotiated: true},
			pr: Params{Revision: 2, Version: 1, Send: mpa.Framing{CRC: true},
				Receive: mpa.Framing{CRC: true}, Negotiated: true}},
		{name: "permissive initiator with revision 2 and an RDMAC responder",
			i: Config{Role: Permissive, IRD: 1, ORD: 1, NoCRC: true},
			r: Config{Role: RDMAC}, answer: Answer{IRD: 2, ORD: 2},
			pi: Params{Send: mpa.Framing{Markers: true, CRC: true},
				Receive: mpa.Framing{Markers: true, CRC: true}, IRD: 1, ORD: 1,
				PeerIRD: NotNegotiated, PeerORD: NotNegotiated},
			pr: Params{Revision: 2, Send: mpa.Framing{Markers: true, CRC: true},
				Receive: mpa.Framing{Markers: true, CRC: true}, IRD: 2,
				ORD: 2, PeerIRD: NotNegotiated, PeerORD: NotNegotiated}},
	} {
		for _, chunk := range []int{1, 3, 20, 1000} {
			t.Run(fmt.Sprintf("%s/%d", c.name, chunk), func(t *testing.T) {
				var i Initiator
				var r Responder
				c.i.PrivateData, c.answer.PrivateData = []byte("from the initiator"),
					[]byte("from the responder")
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
				if c.term == 0 && (i.Stage() != StageEstablished || r.Stage() != StageEstablished ||
					i.Terminate() != nil) {
					t.Errorf("%v and %v, Terminate %v", i.Stage(), r.Stage(), i.Terminate())
				}
				if c.term != 0 && (i.Stage() != StageFailed || i.Terminate() == nil ||
					i.Terminate().Code != c.term) {
					t.Errorf("%v, Terminate %v, want code %d", i.Stage(), i.Terminate(), c.term)
				}
			})
		}
	}
}

// TestInitiatorHandlesForeignReplies feeds an initiator with Replies that our responder does not send.
//
//req:rfc5044-7.1.1-2 rfc5044-7.1.1-5 rfc5044-7.1.1-6 rfc5044-7.1.1-8 rfc5044-7.1.1-9 rfc5044-7.1.2-5 rfc5044-7.1.2-6
//req:rfc5044-7.1.2-8 rfc5044-7.1.2-9 rfc5044-8-4 rfc6581-6-3 rfc6581-9.1-4 rfc6581-9.2-5 rfc6581-9.2-6 rfc6581-10-4
func TestInitiatorHandlesForeignReplies(t *testing.T) {
	for _, c := range []struct {
		name  string
		cfg   Config
		reply string
		stage Stage
		retry Retry
		code  uint8 // of the error
	}{
		{"insufficient IRD", Config{IRD: 4}, repKey + "50 02 0004 0001 0005", StageFailed,
			RetryNone, ulpdu.CodeIRD},
		{"RTR not answered", Config{IRD: 4, ORD: 4, RTRs: RTRSend}, repKey +
			"50 02 0004 0004 0004", StageFailed, RetryNone, ulpdu.CodeRTR},
		{"RTR by Read with an IRD of 0", Config{IRD: 4, ORD: 4, RTRs: RTRRead}, repKey +
			"50 02 0004 8000 4004", StageFailed, RetryNone, ulpdu.CodeRTR},
		{"RTR by Read or Write with an IRD of 0", Config{IRD: 4, ORD: 4, RTRs: allRTR},
			repKey + "50 02 0004 8000 c004", StageEstablished, RetryNone, 0},
		{"RTR by Read, IRD not negotiated", Config{IRD: 4, ORD: 4, RTRs: RTRRead}, repKey +
			"50 02 0004 bfff 4004", StageEstablished, RetryNone, 0},
		{"two RTR messages answered", Config{IRD: 4, ORD: 4, RTRs: allRTR}, repKey +
			"50 02 0004 8004 c004", StageEstablished, RetryNone, 0},
		{"A in the Reply only", Config{IRD: 4, ORD: 4}, repKey + "50 02 0004 c004 c004",
			StageEstablished, RetryNone, 0},
		{"not enhanced", Config{}, repKey + "40 02 0000", StageFailed, RetryRevision1,
			ulpdu.CodeStartup},
		{"revision 1", Config{}, repKey + "40 01 0000", StageFailed, RetryRevision1,
			ulpdu.CodeStartup},
		{"enhanced without being asked", Config{Revision: 1}, repKey +
			"50 02 0004 0000 0000", StageFailed, RetryNone, ulpdu.CodeStartup},
		{"S with too little private data", Config{}, repKey + "50 02 0003 000000",
			StageFailed, RetryNone, ulpdu.CodeStartup},
		{"revision 3", Config{}, repKey + "50 03 0004 0000 0000", StageFailed, RetryNone,
			ulpdu.CodeStartup},
		{"reserved bits", Config{Revision: 1}, repKey + "4f 01 0000", StageEstablished,
			RetryNone, 0},
		{"rejected when markers were asked for", Config{Revision: 1, Markers: true}, repKey +
			"60 01 0000", StageRejected, RetryNoMarkers, 0},
		{"rejected by the consumer", Config{Revision: 1, Markers: true}, repKey +
			"60 01 0001 00", StageRejected, RetryNone, 0},
		{"rejected by the consumer, who would send markers", Config{Revision: 1, Markers: true},
			repKey + "e0 01 0000", StageRejected, RetryNone, 0},
		{"enhanced, rejected when markers were asked for", Config{Markers: true}, repKey +
			"70 02 0004 0000 0000", StageRejected, RetryNoMarkers, 0},
		{"rejected with revision 1", Config{}, repKey + "60 01 0000", StageRejected,
			RetryRevision1, 0},
		{"rejected with revision 1, as asked", Config{Revision: 1}, repKey + "60 01 0000",
			StageRejected, RetryNone, 0},
		{"rejected, enhanced as asked", Config{}, repKey + "70 02 0004 0000 0000", StageRejected,
			RetryNone, 0},
		{"rejected with revision 2, not enhanced", Config{}, repKey + "60 02 0000", StageRejected,
			RetryNone, 0},
		{"R with revision 0, which has none", Config{Role: Permissive}, repKey + "e0 00 0000",
			StageEstablished, RetryNone, 0},
		{"the responder's ORD is not negotiated", Config{IRD: 4}, repKey +
			"50 02 0004 3fff 3fff", StageEstablished, RetryNone, 0},
		{"the responder's ORD is the IRD", Config{IRD: 4}, repKey + "50 02 0004 0000 0004",
			StageEstablished, RetryNone, 0},
		{"initiator and initiator", Config{}, reqKey, StageFailed, RetryNone, ulpdu.CodeStartup},
		{"no MPA", Config{}, "48545450", StageFailed, RetryNone, ulpdu.CodeStartup},
		{"PD_Length 513", Config{}, repKey + "40 01 0201", StageFailed, RetryNone,
			ulpdu.CodeStartup},
		{"PD_Length 512, incomplete", Config{Revision: 1}, repKey + "40 01 0200" +
			zeros(511), StageAwaitReply, RetryNone, 0},
		{"PD_Length 512", Config{Revision: 1}, repKey + "40 01 0200" + zeros(512),
			StageEstablished, RetryNone, 0},
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
			if (err != nil) != (c.code != 0) || err != nil &&
				(err.Code != c.code || err.Layer != ulpdu.MPA) {
				t.Errorf("error %v, want code %d", err, c.code)
			}
			if r := i.Params().RTR; c.stage == StageEstablished && r == RTRRead &&
				i.Params().ORD == 0 {
				t.Errorf("RTR by %v with an ORD of 0", r)
			}
			if want := c.code == ulpdu.CodeIRD ||
				c.code == ulpdu.CodeRTR; (i.Terminate() != nil) != want {
				t.Errorf("Terminate %v", i.Terminate())
			}
		})
	}
}

// TestResponderHandlesForeignRequests feeds a responder with Requests that our initiator does not send.
//
//req:rfc5044-7.1.1-2 rfc5044-7.1.1-6 rfc5044-7.1.1-8 rfc5044-7.1.2-2 rfc5044-7.1.2-3 rfc5044-7.1.2-8 rfc5044-8-4 rfc5044-C-3
//req:rfc6581-6-2 rfc6581-10-3 smbd-1
func TestResponderHandlesForeignRequests(t *testing.T) {
	for _, c := range []struct {
		name  string
		cfg   Config
		req   string
		stage Stage
		reply string // sent although the start-up fails
	}{
		{"revision 2 not enhanced", Config{}, reqKey + "40 02 0000", StageDecide, ""},
		{"revision 2 for a side that supports 1", Config{Revision: 1}, reqKey +
			"50 02 0004 0000 0000", StageFailed, ""},
		{"revision 3", Config{}, reqKey + "40 03 0000", StageFailed, ""},
		{"S with too little private data", Config{}, reqKey + "50 02 0003 000000",
			StageFailed, ""},
		{"R set", Config{}, reqKey + "60 01 0000", StageDecide, ""},
		{"bytes behind the Request", Config{}, reqKey + "40 01 0000 00", StageFailed, ""},
		{"responder and responder", Config{}, repKey, StageFailed, ""},
		{"PD_Length 513", Config{}, reqKey + "40 01 0201", StageFailed, ""},
		{"revision 0 for a non-permissive side", Config{Markers: true}, reqKey +
			"c0 00 0000", StageFailed, repKey + "c0 01 0000"},
		{"revision 0 with odd flags", Config{Role: Permissive}, reqKey + "00 00 0000",
			StageDecide, ""},
		{"little-endian [MS-SMBD]", Config{SMBD: true}, reqKey +
			"40 01 0008 10000000 01000000", StageDecide, ""},
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
			if err != nil && err.Code != ulpdu.CodeStartup {
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

// TestBytesBeforeReplyFail: the start-up fails if the initiator sends even one byte before it has the Reply (RFC 5044,
// 7.1.2).
func TestBytesBeforeReplyFail(t *testing.T) {
	for _, apart := range []bool{false, true} {
		var r Responder
		if err := r.Init(Config{}); err != nil {
			t.Fatal(err)
		}
		in := append(unhex(t, reqKey+"40 02 0000"), 0)
		if apart {
			if _, err := r.Input(in[:len(in)-1]); err != nil {
				t.Fatal(err)
			}
			in = in[len(in)-1:]
		}
		if _, err := r.Input(in); err == nil || r.Stage() != StageFailed {
			t.Errorf("apart %v: %v, %v", apart, r.Stage(), err)
		}
	}
}
