package rdmap

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"xwarp/ddp"
	"xwarp/mpa/ulpdu"
)

// badSegments are the segments at fault for the Terminates of the golden file.
var badSegments = []struct {
	name, header string
	n            int
	read         *ReadRequest
}{
	{"none", "", 0, nil},
	{"write", "c140 12345678 0000000000001000", 1014, nil},
	{"read", "4141 00000000 00000001 00000005 00000000", 46, &ReadRequest{SinkSTag: 0x0a0b0c0d,
		SinkTO: 0x2000, Size: 1024, SrcSTag: 0x12345678, SrcTO: 0x1000}},
	{"send", "4144 00000077 00000000 00000009 00000000", 20, nil},
	{"atomic", "414a 00000000 00000001 00000002 00000000", 70, nil},
}

// TestTerminateGolden makes a Terminate for each row of the error tables and each kind of
// segment at fault, and reads it back.
//
//req:rfc5044-8-6 rfc5041-7.2-1 rfc5040-4.8-1 rfc5040-4.8-2 rfc5040-4.8-3 rfc5040-5.4-1 rfc5040-7.1-3 rfc7306-8.1-1
func TestTerminateGolden(t *testing.T) {
	file, err := os.ReadFile("testdata/terminate.golden")
	if err != nil {
		t.Fatal(err)
	}
	golden := map[string]string{}
	for line := range strings.Lines(string(file)) {
		if f := strings.Fields(line); len(f) == 3 && !strings.HasPrefix(line, "#") {
			golden[f[0]+" "+f[1]] = f[2]
		}
	}
	if len(golden) != len(Rows())*len(badSegments) {
		t.Errorf("golden file has %d lines for %d rows and %d badSegments", len(golden),
			len(Rows()), len(badSegments))
	}
	for _, row := range Rows() {
		for _, c := range badSegments {
			l, typ, code := row.Cause.Layer(), row.Cause.Type(), row.Cause.Code()
			key := fmt.Sprintf("%d/%d/%02x %s", l, typ, code, c.name)
			h := newHost(t, 1).open(nil, Params{Version: ddp.IETF})
			e := row.Cause.Errorf("test")
			if c.header != "" {
				h.qp.captureSegment(e, unhex(t, c.header), c.n, nil)
				if c.read != nil {
					h.qp.term.read, h.qp.term.hasRead = *c.read, true
				}
			}
			if l == ulpdu.MPA && code == ulpdu.CodeClosed {
				h.qp.term.makeOwn(e) // is never sent: there is no connection
				h.qp.term.toSend = true
			} else {
				h.qp.Fail(e)
			}
			f := h.pull(MinULPDU)
			if f == nil {
				t.Errorf("%s: no Terminate", key)
				continue
			}
			if got := hex.EncodeToString(f.b); got != golden[key] {
				t.Errorf("%s\n got %s\nwant %s", key, got, golden[key])
			}
			back, err := ParseTerminate(f.b[ddp.UntaggedLen:])
			if d := cmp.Diff(h.qp.term.own, back); err != nil || d != "" {
				t.Errorf("%s: parsed with %v: %s", key, err, d)
			}
			again := AppendTerminate(nil, &back)
			if !bytes.Equal(again, f.b[ddp.UntaggedLen:]) {
				t.Errorf("%s: appended again: %x", key, again)
			}
			if name, ok := Describe(back.Cause); !ok || name != row.Name {
				t.Errorf("%s: described as %q", key, name)
			}
		}
	}
}

// TestTerminateVectors makes the two Terminates of the reference vectors.
//
//req:rfc5040-4.8-1 rfc6581-9.1-4 rfc6581-9.2-5
func TestTerminateVectors(t *testing.T) {
	for _, c := range []struct {
		code uint8
		want string
	}{
		{7, "4147 00000000 00000002 00000001 00000000 20070000"},
		{6, "4147 00000000 00000002 00000001 00000000 20060000"},
	} {
		h := newHost(t, 1).open(nil, Params{Version: ddp.IETF})
		h.qp.Fail(ulpdu.Newf(ulpdu.MPA, 0, c.code, "start-up"))
		if f := h.pull(1500); f == nil || !bytes.Equal(f.b, unhex(t, c.want)) {
			t.Errorf("code %d: %+v", c.code, f)
		}
	}
}

// TestTerminatesOfOtherImplementations reads what other implementations send.
//
//req:rfc5040-4.8-3 rfc5040-5.4-2 rfc5040-5.4-3
func TestTerminatesOfOtherImplementations(t *testing.T) {
	for _, c := range []struct {
		name, hex string
		want      Terminate
	}{
		{"cxgb4's type 3 for MPA errors", "23060000", Terminate{Cause: ddp.MakeCause(2, 3, 6)}},
		// siw on x86: layer and type exchanged, M D R in the low bits.
		{"siw, DDP tagged bounds with header", "11010300 03f6 c140 12345678 0000000000001000",
			Terminate{Cause: ddp.CauseBounds, Swapped: true, HasDDP: true, SegLen: 1014,
				DDP: [18]byte{0xc1, 0x40, 0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0, 0, 0, 0x10, 0}}},
		{"siw, no buffer", "21020000", Terminate{Cause: ddp.CauseNoBuffer, Swapped: true}},
		{"siw, access violation", "10020000", Terminate{Cause: CauseProtAccess, Swapped: true}},
		{"RFC order wins when both are legal", "20070000",
			Terminate{Cause: ddp.MakeCause(ulpdu.MPA, 0, 7)}},
		{"reserved bits are ignored", "010102ff", Terminate{Cause: CauseProtBounds}},
		{"nothing known", "77550000", Terminate{Cause: ddp.MakeCause(7, 7, 0x55)}},
		{"header cut off", "1101c000 0010 c140 1234", Terminate{Cause: ddp.CauseBounds}},
		{"siw, Read Request", "10000700 002e 4141 00000000 00000001 00000005 00000000 " +
			"00000001 0000000000000002 00000003 00000004 0000000000000005",
			Terminate{Cause: CauseProtSTag, Swapped: true, HasDDP: true, HasRead: true, SegLen: 46,
				DDP:  [18]byte{0x41, 0x41, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 5},
				Read: ReadRequest{1, 2, 3, 4, 5}}},
		{"Read Request alone", "01002000 00000001 0000000000000002 00000003 00000004 " +
			"0000000000000005",
			Terminate{Cause: CauseProtSTag, HasRead: true, Read: ReadRequest{1, 2, 3, 4, 5}}},
		{"Read Request behind a header cut off", "0100e000 001c c100 00000001 000000000000",
			Terminate{Cause: CauseProtSTag}},
		{"least header", "1101c000 000e 8040 00000001 0000000000000002",
			Terminate{Cause: ddp.CauseBounds, HasDDP: true, SegLen: 14,
				DDP: [18]byte{0x80, 0x40, 0, 0, 0, 1, 13: 2}}},
		{"length without header", "11018000", Terminate{Cause: ddp.CauseBounds}},
		{"Read Request cut off", "0100e000 002e 4141 00000000 00000001 00000005 00000000 0102",
			Terminate{Cause: CauseProtSTag, HasDDP: true, SegLen: 46, DDP: [18]byte{0x41, 0x41, 0,
				0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 5}}},
		{"Read Request without a DDP header",
			"01002000 0000000a 000000000000000b 0000000c 0000000d 000000000000000e",
			Terminate{Cause: CauseProtSTag, HasRead: true, Read: ReadRequest{SinkSTag: 10,
				SinkTO: 11, Size: 12, SrcSTag: 13, SrcTO: 14}}},
		{"the same cut off", "01002000 0000000a 000000000000000b 0000000c 0000000d 0000000000",
			Terminate{Cause: CauseProtSTag}},
	} {
		got, err := ParseTerminate(unhex(t, c.hex))
		if d := cmp.Diff(c.want, got); err != nil || d != "" {
			t.Errorf("%s: %v %s", c.name, err, d)
		}
	}
	for n := range 4 {
		if _, err := ParseTerminate(make([]byte, n)); err == nil {
			t.Errorf("%d bytes parsed", n)
		}
	}
}

// TestTerminateNamesWrite: of several outstanding Writes, a Terminate is about the one whose STag and offset it
// includes.
func TestTerminateNamesWrite(t *testing.T) {
	a, b := twins(t, nil, Params{})
	m := b.region(64, ddp.Attr{Access: ddp.RemoteWrite, Stream: b.qp.cfg.Stream})
	for i, to := range []ddp.TO{0, 32, 65, 48} {
		a.send(SendWR{ID: uint64(i), Op: WRWrite, Flags: Signaled, Inline: []byte("12345678"),
			RemoteSTag: m.STag(), RemoteTO: m.Base() + to})
	}
	if err := b.push(nil, a.pullAll(1500)...); err == nil {
		t.Fatal("a Write behind the end")
	}
	a.push(b, b.pullAll(1500)...)
	wantCQEs(t, a, "0 write WR_FLUSH_ERR", "1 write WR_FLUSH_ERR", "2 write REM_ACCESS_ERR",
		"3 write WR_FLUSH_ERR")
}

// TestTerminateIsAnsweredByNothing: nothing is sent after a received Terminate, not even a Terminate. A second one has
// no effect.
//
//req:rfc5040-5.4-2 rfc5040-5.4-4
func TestTerminateIsAnsweredByNothing(t *testing.T) {
	a, b := twins(t, nil, Params{})
	a.send(SendWR{ID: 1, Op: WRWrite, Flags: Signaled, Inline: []byte("x"), RemoteSTag: 0xbad})
	a.send(SendWR{ID: 2, Op: WRSend, Flags: Signaled})
	write := a.pull(1500)
	if err := b.push(nil, write); err == nil {
		t.Fatal("Write to nowhere")
	}
	b.qp.Fail(CauseStreamFatal.Errorf("a second error"))
	if b.qp.Err() == nil || b.qp.Err().Code != ddp.CauseSTag.Code() {
		t.Errorf("error %v, want the first one", b.qp.Err())
	}
	frames := b.pullAll(1500)
	if len(frames) != 1 {
		t.Fatalf("%d ULPDUs", len(frames))
	}
	a.push(b, frames...)
	if a.qp.ULPDUWaiting() || a.pull(1500) != nil {
		t.Error("Terminate is answered")
	}
	if got, ok := a.qp.PeerTerminate(); !ok || got.Cause != ddp.CauseSTag {
		t.Errorf("peer's Terminate %v %v", got, ok)
	}
	if _, ok := a.qp.OwnTerminate(); ok {
		t.Error("a Terminate of our own was made")
	}
	if err := a.push(b, frames...); err != nil {
		t.Errorf("second Terminate: %v", err)
	}
	wantCQEs(t, a, "1 write REM_ACCESS_ERR", "2 send WR_FLUSH_ERR")
	a.qp.ReleaseULPDU(write.ref)
	a.qp.Closed()
	a.qp.Closed()
	a.qp.Abort()
	wantCQEs(t, a)
}
