package rdmap

import (
	"encoding/binary"
	"fmt"
	"testing"

	"xwarp/ddp"
)

func atomicResponse(msn, id, value uint64) string {
	return untagged(11, 3, msn, 0, 0) + fmt.Sprintf("%08x %016x", id, value)
}

// asker returns a queue pair with two outstanding atomics, behind an outstanding Read of 8 bytes if read is set. It
// also returns the region of the results: 8 bytes for the Read, then 8 for each atomic.
func asker(t *testing.T, read bool) (*host, *ddp.MR) {
	a := newHost(t, 1).open(nil, Params{Version: ddp.IETF, IRD: 4, ORD: 4})
	sink := a.register(make([]byte, 24), ddp.Attr{Access: ddp.LocalWrite})
	if read {
		a.send(SendWR{ID: 1, Op: WRRead, SGL: []SGE{sge(sink, 0, 8)}, RemoteSTag: 1})
	}
	for i := range uint64(2) {
		a.send(SendWR{ID: 2 + i, Op: WRFetchAdd, Flags: Signaled,
			SGL: []SGE{sge(sink, 8*int(i+1), 8)}, RemoteSTag: 1})
	}
	for _, f := range a.pullAll(1500) {
		a.qp.ReleaseULPDU(f.ref)
	}
	return a, sink
}

// TestAtomicResponses: a response that does not match the oldest request, or is malformed, ends the stream and does not
// change the memory for the result (RFC 7306, 5.2.2; RFC 5041, 7.1).
//
//req:rfc7306-5.2.2-1 rfc7306-5.2.2-2 rfc7306-8.2-1
func TestAtomicResponses(t *testing.T) {
	for _, c := range []struct {
		name  string
		read  bool
		ulpdu string
		want  ddp.Cause
	}{
		{"as it should be", false, atomicResponse(1, 1, 0x55), ddp.CauseNone},
		{"MSN 0", false, atomicResponse(0, 1, 0x55), ddp.CauseMSNRange},
		{"second first", false, atomicResponse(2, 2, 0x55), ddp.CauseMSNRange},
		{"third of two", false, atomicResponse(3, 3, 0x55), ddp.CauseNoBuffer},
		{"second one's id", false, atomicResponse(1, 2, 0x55), CauseOpUnspecified},
		{"id of none", false, atomicResponse(1, 0, 0x55), CauseOpUnspecified},
		{"before the Read's", true, atomicResponse(1, 1, 0x55), CauseOpcode},
		{"11 bytes", false, untagged(11, 3, 1, 0, 11), CauseStreamFatal},
		{"13 bytes", false, untagged(11, 3, 1, 0, 13), ddp.CauseTooLong},
		{"no bytes", false, untagged(11, 3, 1, 0, 0), CauseStreamFatal},
		{"at an offset", false, untagged(11, 3, 1, 1, 11), ddp.CauseMO},
		{"at its end", false, untagged(11, 3, 1, 12, 0), ddp.CauseMO},
		{"behind its end", false, untagged(11, 3, 1, 13, 0), ddp.CauseMO},
		{"in parts", false, "01" + atomicResponse(1, 1, 0x55)[2:], CauseStreamFatal},
		{"of a Read instead", false, "c142 00000001 0000000000000000", CauseOpcode},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, sink := asker(t, c.read)
			err := a.inject(unhex(t, c.ulpdu))
			value := binary.NativeEndian.Uint64(a.held(sink)[8:])
			if c.want == ddp.CauseNone {
				if err != nil || value != 0x55 {
					t.Errorf("%#x, error %v", value, err)
				}
				wantCQEs(t, a, "2 fetch-add SUCCESS")
				return
			}
			wantError(t, err, c.want)
			if value != 0 || a.qp.State() != Terminated {
				t.Errorf("%#x was written, state %v", value, a.qp.State())
			}
		})
	}
}

// TestAtomicSinkRevokedBeforeDelivery: the response to an atomic or a Read was placed ahead of its turn, and then the
// STag of its sink was revoked. The delivery of the response is an error.
//
//req:rfc5041-8.3.1-2 rfc5040-8.1.1-6
func TestAtomicSinkRevokedBeforeDelivery(t *testing.T) {
	a, sink := asker(t, false)
	ahead := unhex(t, atomicResponse(1, 1, 0x55))
	if err := placeAhead(a, ahead); err != nil {
		t.Fatal(err)
	}
	mem := a.held(sink)
	if err := a.table.Invalidate(sink); err != nil {
		t.Fatal(err)
	}
	wantError(t, a.qp.Deliver(ahead[:18], len(ahead)), ddp.CauseSTag)
	if v := binary.NativeEndian.Uint64(mem[8:]); v != 0 {
		t.Errorf("%#x was written", v)
	}

	a, sink = asker(t, true)
	ahead = unhex(t, fmt.Sprintf("c142 %08x %016x", uint32(sink.STag()), 0)+zeros(8))
	if err := placeAhead(a, ahead); err != nil {
		t.Fatal(err)
	}
	if err := a.table.Invalidate(sink); err != nil {
		t.Fatal(err)
	}
	err := a.qp.Deliver(ahead[:18], len(ahead))
	wantError(t, err, ddp.CauseSTag)
	a.qp.Fail(err)
	if got := a.take(); len(got) != 3 || got[0].Status != BadRespErr ||
		got[1].Status != WRFlushErr {
		t.Errorf("completions %v", brief(got))
	}
}

// TestTargetRevokedBeforeResponse: the memory of an atomic or of a Read is revoked between the request and its
// response. The Terminate includes the DDP header of the request, and the Read Request header of a Read (RFC 5040, 4.8;
// RFC 7306, 8.1).
//
//req:rfc5040-5.5-12 rfc7306-8.1-1
func TestTargetRevokedBeforeResponse(t *testing.T) {
	for _, c := range []struct {
		name string
		ops  []WROp
		want []Opcode
		read bool // the Terminate is about a Read
		head string
	}{
		{"atomic", []WROp{WRFetchAdd}, []Opcode{OpTerminate}, false,
			"414a 00000000 00000001 00000001 00000000"},
		{"Read", []WROp{WRRead}, []Opcode{OpTerminate}, true,
			"4141 00000000 00000001 00000001 00000000"},
		{"atomic that waits for a Read of its word", []WROp{WRRead, WRCmpSwap},
			[]Opcode{OpReadResponse, OpTerminate}, false,
			"414a 00000000 00000001 00000002 00000000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := twins(t, nil, Params{})
			sink := a.region(8, ddp.Attr{Access: ddp.LocalWrite})
			word := b.region(8, ddp.Attr{Access: ddp.RemoteAtomic | ddp.RemoteRead})
			for _, op := range c.ops {
				a.send(SendWR{Op: op, SGL: []SGE{sge(sink, 0, 8)}, RemoteSTag: word.STag()})
			}
			b.push(a, a.pullAll(1500)...)
			var got []*frame
			if len(c.want) > 1 {
				got = b.pullAll(1500)
				if b.qp.ULPDUWaiting() {
					t.Error("the atomic does not wait")
				}
			}
			if err := b.table.Invalidate(word); err != nil {
				t.Fatal(err)
			}
			if !b.qp.ULPDUWaiting() {
				t.Error("nothing waits to be sent")
			}
			got = append(got, b.pullAll(1500)...)
			if len(got) != len(c.want) {
				t.Fatalf("%d ULPDUs, want %d", len(got), len(c.want))
			}
			for i, f := range got {
				if opcodeOf(f.b[1]) != c.want[i] {
					t.Errorf("%d: %v, want %v", i, opcodeOf(f.b[1]), c.want[i])
				}
			}
			term, _ := b.qp.OwnTerminate()
			head := [ddp.UntaggedLen]byte(unhex(t, c.head))
			length := map[bool]uint16{true: readRequestULPDU, false: atomicRequestULPDU}[c.read]
			if term.Cause != CauseProtSTag || !term.HasDDP || term.DDP != head ||
				term.HasRead != c.read || term.SegLen != length {
				t.Errorf("%v", term)
			}
			if c.read && (term.Read.Size != 8 || term.Read.SrcSTag != word.STag()) {
				t.Errorf("about %v", term.Read)
			}
		})
	}
}
