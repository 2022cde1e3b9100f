package rdmap

import (
	"fmt"
	"strings"
	"testing"

	"xwarp/ddp"
	"xwarp/mpa/ulpdu"
)

// TestTerminateNames: a Terminate of the peer includes the header of a message of this side. The work request of that
// message gets the error as its status, all others are flushed. A header that belongs to no message that was sent marks
// nothing.
//
//req:rfc5040-4.8-2 rfc5040-4.8-3 rfc5040-7.1-1
func TestTerminateNames(t *testing.T) {
	const writeTo = "c140 00000777 %016x 00000000" // as long as an untagged header
	for _, c := range []struct {
		name  string
		cause ddp.Cause
		head  string // "": none
		id    int    // of the work request with the error; 0: none
		want  Status
	}{
		{"Send", ddp.CauseTooLong, untagged(3, 0, 1, 0, 0), 1, RemInvReqErr},
		{"Send, RDMAP", CauseStreamFatal, untagged(3, 0, 1, 0, 0), 1, RemOpErr},
		{"Send, its STag", CauseProtInvalidate, untagged(3, 0, 1, 0, 0), 1, RemAccessErr},
		{"Immediate", ddp.CauseNoBuffer, untagged(8, 0, 2, 0, 0), 6, RemInvReqErr},
		{"half a Send", ddp.CauseTooLong, untagged(3, 0, 3, 0, 0), 7, RemInvReqErr},
		{"Send that is not begun", ddp.CauseTooLong, untagged(3, 0, 4, 0, 0), 0, 0},
		{"Send 0", ddp.CauseMSNRange, untagged(3, 0, 0, 0, 0), 0, 0},
		{"Read", CauseProtBounds, untagged(1, 1, 1, 0, 0), 3, RemAccessErr},
		{"Read, DDP", ddp.CauseNoBuffer, untagged(1, 1, 1, 0, 0), 3, RemInvReqErr},
		{"atomic", CauseStreamFatal, untagged(10, 1, 2, 0, 0), 5, RemInvReqErr},
		{"Read that is not sent", CauseProtBounds, untagged(1, 1, 3, 0, 0), 0, 0},
		{"Terminate", ddp.CauseMSNRange, untagged(7, 2, 1, 0, 0), 0, 0},
		{"Write", ddp.CauseBounds, fmt.Sprintf(writeTo, 0x1000), 2, RemAccessErr},
		{"Write, its end", ddp.CauseBounds, fmt.Sprintf(writeTo, 0x1007), 2, RemAccessErr},
		{"Write, behind it", ddp.CauseBounds, fmt.Sprintf(writeTo, 0x1008), 0, 0},
		{"Write, before it", ddp.CauseBounds, fmt.Sprintf(writeTo, 0xfff), 0, 0},
		{"Write of nothing", CauseVersion, fmt.Sprintf(writeTo, 0x2000), 4, RemOpErr},
		{"behind nothing", CauseVersion, fmt.Sprintf(writeTo, 0x2001), 0, 0},
		{"Read Response", ddp.CauseBounds, "c142" + fmt.Sprintf(writeTo, 0x1000)[4:], 0, 0},
		{"nothing", CauseStreamFatal, "", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, 1).open(nil, Params{Version: ddp.IETF, IRD: 4, ORD: 4})
			m := h.region(300, ddp.Attr{Access: ddp.LocalWrite})
			inv := h.region(1, ddp.Attr{})
			for _, wr := range []SendWR{
				{ID: 1, Op: WRSend, SGL: []SGE{sge(m, 0, 1)}},
				{ID: 2, Op: WRWrite, SGL: []SGE{sge(m, 0, 8)}, RemoteSTag: 0x777, RemoteTO: 0x1000},
				{ID: 3, Op: WRRead, RemoteSTag: 1},
				{ID: 4, Op: WRWrite, RemoteSTag: 0x777, RemoteTO: 0x2000},
				{ID: 5, Op: WRFetchAdd, SGL: []SGE{sge(m, 0, 8)}, RemoteSTag: 1},
				{ID: 6, Op: WRImm},
				{ID: 9, Op: WRLocalInv, Invalidate: inv.STag()},
				{ID: 7, Op: WRSend, SGL: []SGE{sge(m, 0, 300)}},
				{ID: 8, Op: WRSend},
			} {
				h.send(wr)
			}
			for range 7 { // the last of them is half of the Send of 300 bytes
				h.pull(200)
			}
			if inv.Valid() {
				t.Fatal("the invalidation has not run")
			}
			term := Terminate{Cause: c.cause, HasDDP: c.head != ""}
			copy(term.DDP[:], unhex(t, c.head))
			if err := h.inject(AppendTerminateULPDU(nil, &term, ddp.IETF)); err != nil {
				t.Fatal(err)
			}
			got := h.take()
			for i, id := range []int{1, 2, 3, 4, 5, 6, 9, 7, 8} {
				want := WRFlushErr
				if id == c.id {
					want = c.want
				}
				if i >= len(got) || int(got[i].ID) != id || got[i].Status != want {
					t.Fatalf("%d should be %v: %v", id, want, brief(got))
				}
			}
		})
	}
}

// TestFirstErrorCounts: only the first error makes a Terminate. A retransmission from revoked memory after that makes
// no other.
func TestFirstErrorCounts(t *testing.T) {
	var term terminator
	term.makeOwn(CauseOpcode.Errorf("first"))
	term.makeOwn(CauseVersion.Errorf("second"))
	if term.own.Cause != CauseOpcode {
		t.Errorf("%v", term.own)
	}

	a, b := twins(t, nil, Params{})
	src := b.region(64, ddp.Attr{Access: ddp.RemoteRead})
	a.send(SendWR{Op: WRRead, RemoteSTag: src.STag(),
		SGL: []SGE{sge(a.region(64, ddp.Attr{Access: ddp.LocalWrite}), 0, 64)}})
	b.push(a, a.pullAll(1500)...)
	f := b.pull(1500)
	b.qp.Fail(CauseGlobalFatal.Errorf("first"))
	if err := b.table.Invalidate(src); err != nil {
		t.Fatal(err)
	}
	b.read(f)
	if own, _ := b.qp.OwnTerminate(); own.Cause != CauseGlobalFatal ||
		b.qp.Err().Code != CauseGlobalFatal.Code() {
		t.Errorf("%v, error %v", own, b.qp.Err())
	}
	if strings.Trim(string(f.b[ddp.TaggedLen:]), "\x00") != "" {
		t.Errorf("what was taken back is sent as %x", f.b)
	}
}

// TestProtectionCause checks the causes of faults of Reads and atomics (RFC 5040, 4.8).
//
//req:rfc5040-4.8-1
func TestProtectionCause(t *testing.T) {
	for f, code := range map[ddp.Fault]uint8{ddp.FaultSTag: 0, ddp.FaultBounds: 1,
		ddp.FaultAccess: 2, ddp.FaultStream: 3, ddp.FaultWrap: 4, ddp.FaultInvalid: 9,
		ddp.FaultInvalid + 1: 0xff} {
		if c := protectionCause(f); c != ddp.MakeCause(ulpdu.RDMAP, 1, code) {
			t.Errorf("%v: %v, want code %02x", f, c, code)
		}
	}
	if c := protectionCause(ddp.OK); c != ddp.CauseNone {
		t.Errorf("no fault is %v", c)
	}
}

// TestDescribe: errors of the RFCs have a name, others do not. RDMAP's local catastrophic error has its name with any
// code, the others only with their own code.
func TestDescribe(t *testing.T) {
	for _, c := range []struct {
		l         ulpdu.Layer
		typ, code uint8
		want      bool
	}{
		{ulpdu.RDMAP, 0, 0, true},
		{ulpdu.RDMAP, 0, 0xff, true},
		{ulpdu.DDP, 0, 0, true},
		{ulpdu.DDP, 0, 1, false},
		{ulpdu.RDMAP, 1, 5, false},
		{ulpdu.RDMAP, 1, 9, true},
		{ulpdu.RDMAP, 2, 9, true},
		{ulpdu.RDMAP, 3, 0, false},
		{ulpdu.MPA, 0, 0, false},
		{ulpdu.MPA, 0, 7, true},
		{ulpdu.MPA, 0, 8, false},
	} {
		cause := ddp.MakeCause(c.l, c.typ, c.code)
		name, ok := Describe(cause)
		if ok != c.want || strings.Contains(name, "unknown") == c.want ||
			!c.want && !strings.Contains(name, cause.String()) {
			t.Errorf("%v: %q, %v", cause, name, ok)
		}
	}
}

// TestStringsOfValues checks the names of values that a log may show; an unknown value is shown as a number.
func TestStringsOfValues(t *testing.T) {
	read := ReadRequest{SinkSTag: 1, SinkTO: 0x20, Size: 3, SrcSTag: 4, SrcTO: 0x50}
	write := Terminate{Cause: ddp.CauseBounds, HasDDP: true, SegLen: 30,
		DDP: [18]byte{0xc1, 0x40, 0, 0, 0, 7}}
	request := Terminate{Cause: CauseProtSTag, HasDDP: true, HasRead: true, SegLen: 46,
		DDP: [18]byte{0x41, 0x41, 9: 1, 13: 2}, Read: read}
	for _, c := range []struct {
		v    fmt.Stringer
		want string
	}{
		{Idle, "IDLE"},
		{Errored, "ERROR"},
		{states, "state 6"},
		{OpWrite, "RDMA Write"},
		{OpAtomicResp, "Atomic Response"},
		{OpReport, "Report"},
		{OpReport + 1, "opcode 0xf"},
		{WRSend, "send"},
		{WRBindMW, "bind-mw"},
		{WRRecv, "recv"},
		{wrOps, "work request 14"},
		{Success, "SUCCESS"},
		{MWBindErr, "MW_BIND_ERR"},
		{RetryExcErr, "RETRY_EXC_ERR"},
		{RNRRetryExcErr, "RNR_RETRY_EXC_ERR"},
		{statuses, "status 13"},
		{FetchAdd, "FetchAdd"},
		{CmpSwap, "CmpSwap"},
		{AtomicOp(1), "atomic 1"},
		{read, "read 3 bytes from STag 0x00000004 TO 0x50 to STag 0x00000001 TO 0x20"},
		{AtomicRequest{CmpSwap, 1, 2, 0x30, 4, 5, 6, 7},
			"CmpSwap id 1 STag 0x00000002 TO 0x30 data 0x4 mask 0x5 compare 0x6 mask 0x7"},
		{Terminate{Cause: ddp.MakeCause(ulpdu.MPA, 0, 2), Swapped: true},
			"terminate 2/0/02, MPA error: CRC mismatch (siw-style)"},
		{write, "terminate 1/1/01, tagged buffer error: base or bounds violation; segment of 30 " +
			"bytes: tagged last DV 1 ULP 0x40 STag 0x00000007 TO 0x0"},
		{request, "terminate 0/1/00, remote protection error: invalid STag; segment of 46 bytes: " +
			"untagged last DV 1 ULP 0x41 word 0x00000000 QN 1 MSN 2 MO 0; " + read.String()},
	} {
		if got := c.v.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
