package rdmap

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"xwarp/ddp"
	"xwarp/mpa/ulpdu"
)

// cutFPDU is the error of a FIN inside an FPDU.
var cutFPDU = ulpdu.Newf(ulpdu.MPA, 0, ulpdu.CodeClosed, "cut")

// TestSilent: without private messages, a segment of a Write in full operation, and nothing else, needs no delivery
// (RFC 5041, 5.3).
func TestSilent(t *testing.T) {
	for _, c := range []struct {
		name, head string
		state      State
		want       bool
	}{
		{"Write", "c140", RTS, true},
		{"part of a Write", "8140 00000001", RTS, true},
		{"Write of version 0", "c000", RTS, true},
		{"one byte", "c1", RTS, false},
		{"no byte", "", RTS, false},
		{"Read Response", "c142", RTS, false},
		{"untagged", "4140", RTS, false},
		{"first FPDU", "c140", RTR, false},
		{"after the close", "c140", Closing, false},
		{"after the end", "c140", Terminated, false},
	} {
		h := victim(t)
		h.qp.state = c.state
		if got := h.qp.Silent(unhex(t, c.head), 15); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestSegmentsAreDroppedAfterError: segments that arrive before the start of a stream or after its error are dropped
// and counted (RFC 5041, 7.1). In between they are placed, also in states in which their delivery is an error.
//
//req:rfc5041-7.1-4
func TestSegmentsAreDroppedAfterError(t *testing.T) {
	for s, want := range map[State]uint64{Idle: 1, RTR: 0, RTS: 0, Closing: 0, Terminated: 1,
		Errored: 1} {
		h := victim(t)
		before := image(h)
		h.qp.state = s
		v := ulpdu.ViewOf(unhex(t, write(0x100, 0x1000, 8)))
		if err := h.qp.Place(&v, true); err != nil || h.qp.Counters.DroppedAfterError != want ||
			(image(h) == before) != (want == 1) {
			t.Errorf("%v: %v, %d dropped", s, err, h.qp.Counters.DroppedAfterError)
		}
	}
}

// TestLostConnectionIsTheError: a lost connection is the error of a stream that has not ended. A FIN inside an FPDU is
// the error of a stream that has begun. Either one is the status of the oldest send, and of no other.
func TestLostConnectionIsTheError(t *testing.T) {
	for _, c := range []struct {
		s         State
		fin, lost bool // whether a FIN, or the loss of the connection, is the error
	}{
		{Idle, false, true},
		{RTR, true, true},
		{RTS, true, true},
		{Closing, true, true},
		{Terminated, false, false},
		{Errored, false, false},
	} {
		for name, end := range map[string]func(q *QP) bool{
			"FIN":    func(q *QP) bool { q.PeerClosed(cutFPDU); return c.fin },
			"lost":   func(q *QP) bool { q.Lost(); return c.lost },
			"closed": func(q *QP) bool { q.Closed(); return false },
		} {
			h := newHost(t, 1).open(nil, Params{Version: ddp.IETF})
			h.send(SendWR{ID: 1, Op: WRSend})
			h.send(SendWR{ID: 2, Op: WRSend})
			h.qp.state = c.s
			want := end(h.qp)
			h.qp.Abort()
			e := h.qp.Err()
			if (e != nil) != want || want && (e.Layer != ulpdu.MPA || e.Type != 0 || e.Code != 1) {
				t.Errorf("%v, %s: %v", c.s, name, e)
			}
			for _, done := range h.take() {
				if (done.Status == FatalErr) != (want && done.ID == 1) {
					t.Errorf("%v, %s: %d %v", c.s, name, done.ID, done.Status)
				}
			}
		}
	}
}

// TestAcknowledgementsWithheld: for a peer that keeps requesting and never acknowledges the responses, at most IRD
// responses are kept, besides IRD requests (RFC 5042, 6.4.3.3).
//
//req:rfc5042-6.4.3.3-1
func TestAcknowledgementsWithheld(t *testing.T) {
	const ird = 4
	h := newHost(t, 1).open(func(c *Config) { c.MaxIRD = ird },
		Params{Version: ddp.IETF, IRD: ird, ORD: 1})
	m := h.region(8, ddp.Attr{Access: ddp.RemoteRead})
	ask := func(msn int) *ulpdu.Error {
		return h.inject(unhex(t, untagged(1, 1, uint64(msn), 0, 0)+
			fmt.Sprintf("00000001 0000000000000000 %08x %08x %016x", 8, m.STag(), m.Base())))
	}
	var first *frame
	for msn := 1; msn <= (1+ackSlack)*ird+1; msn++ {
		if msn > (1+ackSlack)*ird {
			h.qp.ReleaseULPDU(first.ref) // one is acknowledged, which gives room for one
		}
		if err := ask(msn); err != nil {
			t.Fatalf("Read %d: %v", msn, err)
		}
		f := h.pull(1500)
		if f == nil {
			t.Fatalf("Read %d has no answer", msn)
		}
		if first == nil {
			first = f
		}
	}
	wantError(t, ask((1+ackSlack)*ird+2), ddp.CauseNoBuffer)
	if h.qp.Abort(); m.Holds() != 0 {
		t.Errorf("%d answers hold the region after the end", m.Holds())
	}
}

// TestInlineDataIsSeparate: each work request has its own inline data, up to the last byte, also across the groups in
// which its memory is allocated.
func TestInlineDataIsSeparate(t *testing.T) {
	const depth, held = 2*inlineStep + 1, 4
	a, _ := twins(t, func(c *Config) { c.SendDepth, c.MaxInline = depth, held }, Params{})
	for lap := range 2 {
		for i := range depth {
			a.send(SendWR{Op: WRSend, Inline: fmt.Append(nil, 1000*(lap+1)+i)})
		}
		frames := a.pullAll(1500)
		if len(frames) != depth {
			t.Fatalf("%d ULPDUs", len(frames))
		}
		for i, f := range frames {
			if got := string(f.b[ddp.UntaggedLen:]); got != fmt.Sprint(1000*(lap+1)+i) {
				t.Errorf("lap %d: work request %d holds %s", lap, i, got)
			}
			a.qp.ReleaseULPDU(f.ref)
		}
	}
}

// TestRareCounters: each item that is placed out of order, dropped, sent as zeros or flushed is counted once.
func TestRareCounters(t *testing.T) {
	a, b := twins(t, nil, Params{})
	src := b.region(64, ddp.Attr{Access: ddp.RemoteRead})
	sink := a.region(64, ddp.Attr{Access: ddp.LocalWrite})
	a.send(SendWR{Op: WRRead, RemoteSTag: src.STag(), SGL: []SGE{sge(sink, 0, 64)}})
	b.push(a, a.pullAll(1500)...)
	f := b.pull(1500)
	b.recv(1)
	b.recv(2)
	b.send(SendWR{Op: WRSend})
	if err := placeAhead(b, unhex(t, untagged(3, 0, 2, 0, 0))); err != nil {
		t.Fatal(err)
	}
	if err := placeAhead(b, unhex(t, untagged(3, 0, 3, 0, 0))); err == nil {
		t.Fatal("placed without a receive")
	}
	if err := b.table.Invalidate(src); err != nil {
		t.Fatal(err)
	}
	b.read(f)
	b.inject(f.b)
	want := Counters{SegmentsIn: 1, SegmentsOut: 1, PayloadOut: 64, PlacedAhead: 1, ReadsIn: 1,
		ResponsesOut: 1, Flushed: 3, DroppedAfterError: 1, ReadsZeroed: 1}
	if d := cmp.Diff(want, b.qp.Counters); d != "" {
		t.Error(d)
	}
}
