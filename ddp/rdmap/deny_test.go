package rdmap

import (
	"fmt"
	"testing"

	"xwarp/ddp"
)

// TestDeny denies rights to the peer and restores them. An access with a denied right has the error of a region without
// that right. An access of no bytes is not checked (RFC 5041, 5.2).
//
//req:rfc5040-8.1.1-5
func TestDeny(t *testing.T) {
	const at = 0x1000
	for _, c := range []struct {
		name   string
		denied ddp.Access
		ulpdu  string
		want   ddp.Cause
	}{
		{"nothing, Write", 0, write(0x100, at, 8), ddp.CauseNone},
		{"Write", ddp.RemoteWrite, write(0x100, at, 1), ddp.CauseSTag},
		{"Write of nothing", ddp.RemoteWrite, write(0x100, at, 0), ddp.CauseNone},
		{"others, Write", ddp.RemoteRead | ddp.RemoteAtomic, write(0x100, at, 8), ddp.CauseNone},
		{"Read", ddp.RemoteRead, readRequest(0x100, at, 1), CauseProtAccess},
		{"Read of nothing", ddp.RemoteRead, readRequest(0x100, at, 0), ddp.CauseNone},
		{"others, Read", ddp.RemoteWrite | ddp.RemoteAtomic, readRequest(0x100, at, 8),
			ddp.CauseNone},
		{"atomic", ddp.RemoteAtomic, fetchAdd(0, 0x100, at), CauseProtAccess},
		{"others, atomic", ddp.RemoteWrite | ddp.RemoteRead, fetchAdd(0, 0x100, at),
			ddp.CauseNone},
	} {
		for _, again := range []bool{false, true} {
			h := victim(t)
			if err := h.inject(unhex(t, write(0x100, at, 8))); err != nil { // fills the cache
				t.Fatal(err)
			}
			h.qp.Deny(c.denied)
			want := c.want
			if again {
				h.qp.Deny(0)
				want = ddp.CauseNone
			}
			err := h.inject(unhex(t, c.ulpdu))
			if want == ddp.CauseNone {
				if err != nil || h.qp.State() != RTS {
					t.Errorf("%s, given back %v: %v", c.name, again, err)
				}
				continue
			}
			wantError(t, err, want)
		}
	}
}

// TestDenyDuringWork denies a right in the middle of its use: for a Write that was placed ahead of its turn, and for
// requests whose responses have not begun.
func TestDenyDuringWork(t *testing.T) {
	h := victim(t)
	ahead := unhex(t, write(0x100, 0x1000, 8))
	if err := placeAhead(h, ahead); err != nil {
		t.Fatal(err)
	}
	h.qp.Deny(ddp.RemoteWrite)
	wantError(t, h.qp.Deliver(ahead[:18], len(ahead)), ddp.CauseSTag)

	for right, request := range map[ddp.Access]string{
		ddp.RemoteRead:   readRequest(0x100, 0x1000, 8),
		ddp.RemoteAtomic: fetchAdd(0, 0x100, 0x1000),
	} {
		h := victim(t)
		before := image(h)
		if err := h.inject(unhex(t, request)); err != nil {
			t.Fatal(err)
		}
		h.qp.Deny(right)
		f := h.pullAll(1500)
		if term, _ := h.qp.OwnTerminate(); len(f) != 1 || opcodeOf(f[0].b[1]) != OpTerminate ||
			term.Cause != CauseProtAccess {
			t.Errorf("%v: %d ULPDUs, %v", right, len(f), term)
		}
		if image(h) != before {
			t.Errorf("%v: memory was touched", right)
		}
	}
}

// TestRTRSend: the Send that opens a stream (RFC 6581, 5) uses no receive. Only its length, opcode and number are
// checked.
//
//req:rfc6581-9.2-4
func TestRTRSend(t *testing.T) {
	for _, c := range []struct {
		name, ulpdu string
		want        ddp.Cause
	}{
		{"right", untagged(3, 0, 1, 0, 0), ddp.CauseNone},
		{"of a byte", untagged(3, 0, 1, 0, 1), ddp.CauseTooLong},
		{"at an offset", untagged(3, 0, 1, 1, 0), ddp.CauseMO},
		{"with SE", untagged(5, 0, 1, 0, 0), CauseOpcode},
		{"Immediate Data", untagged(8, 0, 1, 0, 8), CauseOpcode},
		{"second message first", untagged(3, 0, 2, 0, 0), ddp.CauseMSNRange},
		{"fourth message of three", untagged(3, 0, 4, 0, 0), ddp.CauseNoBuffer},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newHost(t, 2).open(nil, Params{Version: ddp.IETF, Wait: true, ExpectRTR: RTRSend})
			b.recv(2)
			b.recv(3)
			err := b.inject(unhex(t, c.ulpdu))
			if c.want != ddp.CauseNone {
				wantError(t, err, c.want)
				return
			}
			for msn := range uint64(2) {
				if err := b.inject(unhex(t, untagged(3, 0, msn+2, 0, 0))); err != nil {
					t.Error(err)
				}
			}
			wantCQEs(t, b, "2 recv SUCCESS", "3 recv SUCCESS")
			wantError(t, b.inject(unhex(t, untagged(3, 0, 1, 0, 0))), ddp.CauseMSNRange)
		})
	}
}

// TestMessageOfTwoKinds: all segments of a message have its opcode (RFC 5040, 4.1). Another opcode in the second
// segment is an error.
func TestMessageOfTwoKinds(t *testing.T) {
	for first := OpSend; first <= OpSendSEInv; first++ {
		for second := OpSend; second <= OpSendSEInv; second++ {
			h := victim(t)
			h.region(4, ddp.Attr{STag: 0x105, Stream: 1, Access: ddp.RemoteRead})
			segment := func(control byte, op Opcode, mo int) []byte {
				return unhex(t, fmt.Sprintf("%02x%02x 00000105 00000000 00000001 %08x", control,
					0x40|byte(op), mo)+zeros(4))
			}
			if err := h.inject(segment(0x01, first, 0)); err != nil {
				t.Fatal(err)
			}
			err := h.inject(segment(0x41, second, 4))
			if first != second {
				wantError(t, err, CauseOpcode)
				wantCQEs(t, h, "1 recv REM_INV_REQ_ERR", "2 recv WR_FLUSH_ERR")
				continue
			}
			got := h.take()
			if err != nil || len(got) != 1 || got[0].ByteLen != 8 ||
				(got[0].Flags&Solicited != 0) != first.Solicited() ||
				(got[0].Flags&WithInvalidate != 0) != first.Invalidates() {
				t.Errorf("%v: %v, %+v", first, err, got)
			}
		}
	}
}
