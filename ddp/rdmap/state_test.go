package rdmap

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"xwarp/ddp"
	"xwarp/mpa/ulpdu"
)

var update = flag.Bool("update", false, "rewrite golden files")

// walk puts a queue pair with a send and a receive into state s, applies event e, and returns the outcome as a line of
// text.
func walk(t *testing.T, s State, e Event) string {
	h := newHost(t, 1).open(nil, Params{Version: ddp.IETF})
	h.send(SendWR{ID: 1, Op: WRSend})
	h.recv(2)
	h.qp.state = s
	h.qp.term.makeOwn(CauseStreamFatal.Errorf("test"))
	h.qp.handle(e)
	verdict := "refused"
	if table[s][e].ok {
		verdict = h.qp.State().String()
	}
	line := fmt.Sprintf("%-9s %-14s %-9s %s", s, e, verdict, h.qp.Actions())
	if h.qp.term.toSend {
		line += " terminate"
	}
	if n := len(h.take()); n > 0 {
		line += fmt.Sprintf(" flush %d", n)
	}
	h.qp.handle(EvAbort)
	if n := len(h.take()); n > 0 && strings.Contains(line, "flush") {
		t.Errorf("%v %v: %d more flushed", s, e, n)
	}
	return line
}

// TestStateTable applies every event in every state, and compares the outcomes with a golden file.
//
//req:rfc5041-6.2-1 rfc5040-7-1
func TestStateTable(t *testing.T) {
	var b strings.Builder
	for s := range states {
		for e := range events {
			fmt.Fprintln(&b, walk(t, s, e))
		}
	}
	const path = "testdata/states.golden"
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(b.String(), "\n")); d != "" {
		t.Errorf("state table changed (-golden +now); -update if that is meant:\n%s", d)
	}
}

// TestClose: a graceful close with nothing under way, from either side.
//
//req:rfc5041-2.3-6 rfc5041-6.2.1-2
func TestClose(t *testing.T) {
	a, b := twins(t, nil, Params{})
	a.recv(1)
	b.recv(2)
	a.qp.Close()
	if a.qp.State() != Closing || a.qp.Actions() != graceful || a.qp.Actions() != 0 {
		t.Errorf("closer is in %v", a.qp.State())
	}
	b.qp.PeerClosed(nil)
	if b.qp.State() != Closing || b.qp.Actions() != graceful {
		t.Errorf("other is in %v", b.qp.State())
	}
	a.qp.PeerClosed(nil)
	if err := a.qp.PostSend(&SendWR{Op: WRSend}); !errors.Is(err, ErrState) {
		t.Errorf("send while closing: %v", err)
	}
	a.qp.Closed()
	b.qp.Closed()
	for _, h := range []*host{a, b} {
		if h.qp.State() != Idle || h.qp.Actions() != 0 || h.qp.Err() != nil {
			t.Errorf("%v, error %v", h.qp.State(), h.qp.Err())
		}
	}
	wantCQEs(t, a, "1 recv WR_FLUSH_ERR")
	wantCQEs(t, b, "2 recv WR_FLUSH_ERR")
}

// TestCloseWithWork: each kind of work under way turns a close into an abort.
func TestCloseWithWork(t *testing.T) {
	for _, c := range []struct {
		name string
		work func(a, b *host)
	}{
		{"send not sent", func(a, b *host) { a.send(SendWR{Op: WRSend}) }},
		{"send not acknowledged", func(a, b *host) { a.send(SendWR{Op: WRSend}); a.pull(1500) }},
		{"read not answered", func(a, b *host) {
			a.send(SendWR{Op: WRRead})
			b.push(a, a.pull(1500))
		}},
		{"peer's read not answered", func(a, b *host) {
			b.send(SendWR{Op: WRRead})
			a.push(b, b.pull(1500))
		}},
		{"half a message", func(a, b *host) {
			m := a.region(200, ddp.Attr{Access: ddp.LocalWrite})
			a.recv(9, sge(m, 0, 200))
			b.send(SendWR{Op: WRSend, Inline: make([]byte, 200)})
			a.push(nil, b.pull(128))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, fin := range []bool{false, true} {
				a, b := twins(t, nil, Params{})
				c.work(a, b)
				if fin {
					a.qp.PeerClosed(nil)
				} else {
					a.qp.Close()
				}
				if a.qp.State() != Errored || a.qp.Actions() != ActRST {
					t.Errorf("FIN %v: state %v", fin, a.qp.State())
				}
				if e := a.qp.Err(); fin && (e == nil || e.Layer != ulpdu.MPA || e.Code != 1) {
					t.Errorf("error %v, want MPA's 1", e)
				}
			}
		})
	}
	a, _ := twins(t, nil, Params{})
	a.qp.PeerClosed(cutFPDU)
	if e := a.qp.Err(); a.qp.State() != Terminated || e == nil || e.Code != 1 ||
		a.qp.Actions()&ActFIN == 0 {
		t.Errorf("FIN inside an FPDU: %v, %v", a.qp.State(), e)
	}
}

// TestFPDUAfterFIN: data after the close is an error (RFC 5041, 6.2.1).
//
//req:rfc5041-6.2.1-1
func TestFPDUAfterFIN(t *testing.T) {
	a, b := twins(t, nil, Params{})
	a.recv(1)
	b.send(SendWR{Op: WRSend})
	a.qp.Close()
	a.qp.Actions()
	a.push(nil, b.pullAll(1500)...)
	if a.qp.State() != Errored || a.qp.Actions() != ActRST {
		t.Errorf("state %v", a.qp.State())
	}
	wantCQEs(t, a, "1 recv WR_FLUSH_ERR")
}

// TestFlushOrder: every work request completes once, in posting order: the one that failed, then the later ones, which
// are flushed.
//
//req:rfc5040-7.1-1
func TestFlushOrder(t *testing.T) {
	a, b := twins(t, nil, Params{})
	m := a.region(16, ddp.Attr{Access: ddp.LocalWrite})
	a.recv(100)
	a.recv(101)
	a.send(SendWR{ID: 1, Op: WRSend, Flags: Signaled})
	a.send(SendWR{ID: 2, Op: WRRead, SGL: []SGE{sge(m, 0, 16)}, RemoteSTag: 0xbad})
	a.send(SendWR{ID: 3, Op: WRWrite})
	a.send(SendWR{ID: 4, Op: WRLocalInv, Flags: Fence, Invalidate: m.STag()})
	b.recv(5)
	sent := a.pullAll(1500)
	b.push(a, sent...)
	wantCQEs(t, a, "1 send SUCCESS")
	a.onCQE = func(*Completion) {
		if a.qp.PostSend(&SendWR{Op: WRSend}) == nil || a.qp.PostRecv(&RecvWR{}) == nil {
			t.Error("posted during the flush")
		}
	}
	a.push(b, b.pullAll(1500)...)
	if err := a.qp.PostRecv(&RecvWR{}); !errors.Is(err, ErrState) {
		t.Errorf("receive after the end: %v", err)
	}
	wantCQEs(t, a, "2 read REM_ACCESS_ERR", "3 write WR_FLUSH_ERR", "4 local-inv WR_FLUSH_ERR",
		"100 recv WR_FLUSH_ERR", "101 recv WR_FLUSH_ERR")
	a.qp.Closed()
	if m.Holds() != 0 || !m.Valid() {
		t.Errorf("region busy %d, valid %v", m.Holds(), m.Valid())
	}
	for _, f := range sent {
		a.qp.ReleaseULPDU(f.ref) // comes late
		clear(f.b)
		a.read(f) // must not panic, and reads nothing
		for _, x := range f.b {
			if x != 0 {
				t.Fatalf("bytes after the flush: %x", f.b)
			}
		}
	}
	wantCQEs(t, a)
}

// TestFlushKeepsMemoryForRetransmission: after the stream has ended, TCP may still have to retransmit. Only the memory
// that it may retransmit stays in use, until the bytes are acknowledged or the connection is gone.
//
//req:rfc5040-7.1-1
func TestFlushKeepsMemoryForRetransmission(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(h *host)
		want State
	}{
		{"error", func(h *host) { h.qp.Fail(CauseStreamFatal.Errorf("test")) }, Terminated},
		{"close", func(h *host) { h.qp.Close() }, Closing},
		{"peer closes", func(h *host) { h.qp.PeerClosed(nil) }, Closing},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := twins(t, nil, Params{})
			read := a.region(2000, ddp.Attr{Access: ddp.RemoteRead})
			sent, queued := a.region(2000, ddp.Attr{}), a.region(16, ddp.Attr{})
			recv := a.region(16, ddp.Attr{Access: ddp.LocalWrite})
			sink := b.region(2000, ddp.Attr{Access: ddp.LocalWrite})
			b.send(SendWR{ID: 9, Op: WRRead, Flags: Signaled,
				SGL: []SGE{sge(sink, 0, 2000)}, RemoteSTag: read.STag(), RemoteTO: read.Base()})
			a.push(b, b.pullAll(1500)...)
			a.recv(3, sge(recv, 0, 16))
			frames := a.pullAll(1500) // the Read Response
			want := []string{"3 recv WR_FLUSH_ERR"}
			if c.want == Terminated {
				a.send(SendWR{ID: 1, Op: WRSend, SGL: []SGE{sge(sent, 0, 2000)}})
				frames = append(frames, a.pull(1500)) // one half
				a.send(SendWR{ID: 2, Op: WRSend, SGL: []SGE{sge(queued, 0, 16)}})
				want = append([]string{"1 send WR_FLUSH_ERR", "2 send WR_FLUSH_ERR"}, want...)
			}
			c.end(a)
			wantCQEs(t, a, want...)
			if a.qp.State() != c.want || recv.Holds()+queued.Holds() != 0 || read.Holds() != 1 {
				t.Errorf("%v, held %d %d %d times", a.qp.State(), recv.Holds(), queued.Holds(),
					read.Holds())
			}
			if n := sent.Holds(); n != len(want)/2 {
				t.Errorf("what is half sent is used by %d", n)
			}
			for _, f := range frames {
				again := make([]byte, len(f.b))
				if readULPDU(t, a.qp, f.ref, again); !bytes.Equal(f.b, again) {
					t.Errorf("TCP would repeat\n%x as\n%x", f.b, again)
				}
			}
			b.push(a, frames[:2]...)
			if wantCQEs(t, b, "9 read SUCCESS"); read.Holds() != 0 {
				t.Error("memory of a response that the peer has is in use")
			}
			a.qp.Closed()
			for _, m := range []*ddp.MR{read, sent} {
				if err := a.table.Deregister(m); err != nil {
					t.Error(err)
				}
			}
			wantCQEs(t, a)
		})
	}
}

// TestNoTerminateWithoutConnection: without a connection there is no Terminate; the oldest work request says why.
//
//req:rfc5044-8-1 rfc5041-2.3-3 rfc5041-6.2.2-1 rfc5040-7.1-1
func TestNoTerminateWithoutConnection(t *testing.T) {
	a, _ := twins(t, nil, Params{})
	a.send(SendWR{ID: 1, Op: WRSend})
	a.send(SendWR{ID: 2, Op: WRSend})
	a.qp.Fail(ulpdu.Newf(ulpdu.MPA, 0, 1, "reset"))
	if a.qp.State() != Errored || a.qp.ULPDUWaiting() || a.pull(1500) != nil ||
		a.qp.Actions() != 0 {
		t.Errorf("state %v", a.qp.State())
	}
	wantCQEs(t, a, "1 send FATAL_ERR", "2 send WR_FLUSH_ERR")
}

// TestNoTerminateBeforeFirstFPDU: an MPA responder is silent until it has received a valid FPDU (RFC 5044, 7.1.2). So
// an MPA error in the first FPDU causes no Terminate. A DDP error in an FPDU that is valid for MPA does.
//
//req:rfc5044-7.1.2-7
func TestNoTerminateBeforeFirstFPDU(t *testing.T) {
	h := newHost(t, 1).open(nil, Params{Version: ddp.IETF, Wait: true})
	h.qp.Fail(ulpdu.Newf(ulpdu.MPA, 0, 2, "CRC"))
	if h.qp.State() != Errored || h.pull(1500) != nil || h.qp.Actions() != ActRST {
		t.Errorf("state %v", h.qp.State())
	}
	h = newHost(t, 1).open(nil, Params{Version: ddp.IETF, Wait: true})
	wantError(t, h.inject(unhex(t, write(0x999, 0, 1))), ddp.CauseSTag)
	if f := h.pull(1500); f == nil || opcodeOf(f.b[1]) != OpTerminate {
		t.Error("no Terminate for an FPDU that was valid for MPA")
	}
}

// TestLocalErrors: a work request with an unknown STag, or a Read into memory without LocalWrite, ends the stream in
// its turn, with a Terminate instead of the message (RFC 5040, 7.1, case 1).
//
//req:rfc5040-7.1-2
func TestLocalErrors(t *testing.T) {
	for _, bad := range []SendWR{
		{ID: 2, Op: WRSend, SGL: []SGE{{STag: 0xbad, Len: 4}}},
		{ID: 2, Op: WRLocalInv, Invalidate: 0xbad},
		{ID: 2, Op: WRRead, SGL: []SGE{{STag: 0x101, Len: 8}}}, // no LocalWrite
	} {
		a, b := twins(t, nil, Params{})
		a.region(8, ddp.Attr{STag: 0x101})
		b.recv(9)
		a.send(SendWR{ID: 1, Op: WRSend, Flags: Signaled})
		a.send(bad)
		a.send(SendWR{ID: 3, Op: WRSend})
		frames := a.pullAll(1500)
		if len(frames) != 2 || opcodeOf(frames[1].b[1]) != OpTerminate {
			t.Fatalf("%v: %d ULPDUs", bad.Op, len(frames))
		}
		b.push(a, frames...)
		wantCQEs(t, b, "9 recv SUCCESS")
		a.qp.Closed()
		wantCQEs(t, a, "1 send WR_FLUSH_ERR", fmt.Sprintf("2 %v LOC_PROT_ERR", bad.Op),
			"3 send WR_FLUSH_ERR")
	}
}

// TestCallsFromCompletion: a consumer may end the stream while it is notified of a completion.
func TestCallsFromCompletion(t *testing.T) {
	for _, c := range []struct {
		name string
		call func(q *QP)
		want State
	}{
		{"fail", func(q *QP) {
			q.Fail(CauseCatastrophic.Errorf("completion queue overrun"))
		}, Terminated},
		{"abort", func(q *QP) { q.Abort() }, Errored},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := twins(t, nil, Params{})
			for i := range 3 {
				a.send(SendWR{ID: uint64(i), Op: WRSend, Flags: Signaled})
				b.recv(uint64(i))
			}
			for _, h := range []*host{a, b} {
				h.onCQE = func(*Completion) { c.call(h.qp) }
			}
			b.push(a, a.pullAll(1500)...)
			for _, h := range []*host{a, b} {
				if h.qp.State() != c.want {
					t.Errorf("state %v", h.qp.State())
				}
				h.qp.Lost()
				got := h.take()
				if len(got) != 3 || got[0].Status != Success {
					t.Errorf("completions %v", brief(got))
				}
				for i, w := range got {
					if w.ID != uint64(i) || (i > 0 && w.Status != WRFlushErr) {
						t.Errorf("completions %v", brief(got))
					}
				}
			}
		})
	}
}

// TestRefusedRequests: a work request that PostSend refuses, and that PostRefused then posts, completes in its turn,
// and the stream ends then. Its memory is not checked. If it is chained, the next one completes with its status.
func TestRefusedRequests(t *testing.T) {
	for _, chained := range []WRFlags{0, Chained} {
		a, b := twins(t, nil, Params{})
		b.recv(1)
		a.send(SendWR{ID: 1, Op: WRSend, Flags: Signaled})
		bad := SendWR{ID: 2, Op: WRFetchAdd, Flags: chained, SGL: []SGE{{STag: 0xbad, Len: 4}}}
		if err := a.qp.PostSend(&bad); !errors.Is(err, ErrAtomicLen) {
			t.Fatal(err)
		}
		if err := a.qp.PostRefused(&bad, LocQPOpErr); err != nil {
			t.Fatal(err)
		}
		a.send(SendWR{ID: 3, Op: WRSend})
		a.pull(1500) // in flight at the end
		want := []string{"1 send WR_FLUSH_ERR", "2 fetch-add LOC_QP_OP_ERR", "3 send WR_FLUSH_ERR"}
		if chained != 0 {
			want = []string{"1 send WR_FLUSH_ERR", "3 send LOC_QP_OP_ERR"}
		}
		wantCQEs(t, a, want...)
		if a.qp.State() != Terminated {
			t.Errorf("state %v after an error completion", a.qp.State())
		}
		if err := a.qp.PostRefused(&bad, LocQPOpErr); !errors.Is(err, ErrState) {
			t.Errorf("posted after the end: %v", err)
		}
	}
	a, _ := twins(t, func(c *Config) { c.SendDepth = 1 }, Params{})
	a.send(SendWR{Op: WRSend})
	if err := a.qp.PostRefused(&SendWR{}, LocQPOpErr); !errors.Is(err, ErrFull) {
		t.Errorf("posted to a full queue: %v", err)
	}
}
