package rdmap

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"xwarp/ddp"
)

// TestBindInTurn: a window is bound when the turn of its work request comes, and the peer can use it afterwards. Each
// binding replaces the one before, and the last one ends with the queue pair.
//
//req:rfc5040-8.1.1-6
func TestBindInTurn(t *testing.T) {
	a, b := twins(t, nil, Params{})
	m := b.region(64, ddp.Attr{Base: 0x1000, Access: ddp.LocalWrite | ddp.BindMW})
	w, err := b.table.AllocWindow(b.pd, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		flags WRFlags
		stag  ddp.STag
		to    ddp.TO // where the peer writes
		held  uint64 // bytes of the window
		want  ddp.Cause
	}{
		{0, w.STag() | 1, 0x1010, 16, ddp.CauseNone},
		{0, w.STag() | 2, 0x1010, 8, ddp.CauseNone},
		{ZeroBased, w.STag() | 3, 0, 8, ddp.CauseNone},
		{ZeroBased, w.STag() | 4, 0x1010, 8, ddp.CauseBounds},
	} {
		b.send(SendWR{ID: uint64(i), Op: WRBindMW, Flags: c.flags | Signaled, RemoteSTag: c.stag,
			RemoteTO: 0x1010, Region: m.STag(), Data: c.held, Access: ddp.RemoteWrite})
		wantCQEs(t, b, fmt.Sprintf("%d bind-mw SUCCESS", i))
		a.send(SendWR{Op: WRWrite, Inline: []byte("12345678"), RemoteSTag: c.stag, RemoteTO: c.to})
		err := b.push(a, a.pullAll(1500)...)
		if c.want != ddp.CauseNone {
			wantError(t, err, c.want)
		} else if err != nil || string(b.held(m)[16:24]) != "12345678" {
			t.Errorf("binding %d: %v", i, err)
		}
		clear(b.held(m))
	}
	if m.Holds() != 1 {
		t.Errorf("the region of a window is used by %d", m.Holds())
	}
	b.qp.Destroy()
	if m.Holds() != 0 || b.table.Lookup(w.STag()|4) != nil {
		t.Errorf("after the queue pair its region is used by %d", m.Holds())
	}
}

// TestBindFails: a bind that fails ends the stream with a Terminate without a segment (RFC 5040, 7.1, case 1), and its
// completion gives the reason. Earlier work is complete, and later work is refused.
//
//req:rfc5040-7.1-2
func TestBindFails(t *testing.T) {
	for name, change := range map[string]func(wr *SendWR){
		"no region": func(wr *SendWR) { wr.Region++ },
		"no window": func(wr *SendWR) { wr.RemoteSTag += 0x100 },
		"right":     func(wr *SendWR) { wr.Access = ddp.RemoteWrite },
		"too long":  func(wr *SendWR) { wr.Data++ },
		"too far":   func(wr *SendWR) { wr.RemoteTO++ },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, 1).open(nil, Params{Version: ddp.IETF})
			m := h.region(64, ddp.Attr{Access: ddp.BindMW})
			w, err := h.table.AllocWindow(h.pd, 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			good := SendWR{ID: 1, Op: WRBindMW, Flags: Signaled, RemoteSTag: w.STag(),
				Region: m.STag(), Data: 64, Access: ddp.RemoteRead}
			bad := good
			bad.ID = 2
			change(&bad)
			h.send(good)
			h.send(bad)
			if err := h.qp.PostSend(&good); err != ErrState {
				t.Errorf("posted behind it: %v", err)
			}
			wantCQEs(t, h, "1 bind-mw SUCCESS", "2 bind-mw MW_BIND_ERR")
			want := Terminate{Cause: CauseCatastrophic}
			if term, ok := h.qp.OwnTerminate(); !ok || term != want {
				t.Errorf("%v", term)
			}
		})
	}
}

// TestInvalidateBoundWindow: the peer may invalidate a window from the turn of its binding on. Before that it gets
// 0x0209, as for an STag that was never valid: a window may not be advertised before its binding is complete.
//
//req:rfc5040-8.1.1-7
func TestInvalidateBoundWindow(t *testing.T) {
	for _, c := range []struct {
		name string
		wait bool // b may not send before it has received
		read bool // b posted a Read before
		late bool // b posts the bind after the peer's Send was delivered
		want ddp.Cause
	}{
		{"bound", false, false, false, ddp.CauseNone},
		{"posted before the first FPDU", true, false, false, ddp.CauseNone},
		{"posted behind a Read that is not sent yet", false, true, false, CauseOpInvalidate},
		{"posted afterwards", false, false, true, CauseOpInvalidate},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Params{Version: ddp.IETF, IRD: 4, ORD: 4}
			a := newHost(t, 1).open(nil, p)
			p.Wait = c.wait
			b := newHost(t, 2).open(nil, p)
			m := b.region(64, ddp.Attr{Access: ddp.LocalWrite | ddp.BindMW})
			w, err := b.table.AllocWindow(b.pd, 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			b.recv(1)
			if c.read {
				b.send(SendWR{Op: WRRead})
			}
			if !c.late {
				b.send(SendWR{Op: WRBindMW, RemoteSTag: w.STag(), Region: m.STag(),
					Data: 64, Access: ddp.RemoteWrite})
			}
			a.send(SendWR{Op: WRSendInv, Invalidate: w.STag()})
			got := b.push(a, a.pullAll(1500)...)
			if c.want != ddp.CauseNone {
				wantError(t, got, c.want)
			} else if got != nil || m.Holds() != 0 {
				t.Errorf("%v, %d uses of the region", got, m.Holds())
			}
		})
	}
}

// TestLocalFromCompletion: work posted during the notification of a completion completes after all finished work before
// it, even if it sends nothing and fails at once.
//
//req:rfc5040-5.5-15
func TestLocalFromCompletion(t *testing.T) {
	for _, c := range []struct {
		bad  bool
		want string
	}{{false, "3 local-inv SUCCESS"}, {true, "3 local-inv LOC_PROT_ERR"}} {
		a, b := twins(t, nil, Params{})
		m := a.region(8, ddp.Attr{Access: ddp.RemoteRead})
		wr := SendWR{ID: 3, Op: WRLocalInv, Flags: Signaled, Invalidate: m.STag()}
		if c.bad {
			wr.Invalidate++
		}
		a.onCQE = func(done *Completion) {
			if done.ID == 1 {
				a.send(wr)
				if !m.Valid() {
					t.Error("invalidated before what was posted earlier is complete")
				}
			}
		}
		a.send(SendWR{ID: 1, Op: WRRead, Flags: Signaled})
		a.send(SendWR{ID: 2, Op: WRWrite, Flags: Signaled, RemoteSTag: 1})
		b.push(a, a.pullAll(1500)...)
		wantCQEs(t, a)
		a.push(b, b.pullAll(1500)...)
		wantCQEs(t, a, "1 read SUCCESS", "2 write SUCCESS", c.want)
		if m.Valid() != c.bad {
			t.Errorf("%s: the region is valid: %v", c.want, m.Valid())
		}
	}
}

// TestReclaim: lent memory is reclaimed once, before the first completion of unfinished work, however the stream ends.
func TestReclaim(t *testing.T) {
	for name, end := range map[string]func(q *QP){
		"abort": (*QP).Abort,
		"error": func(q *QP) { q.Fail(CauseStreamFatal.Errorf("test")) },
		"lost":  (*QP).Lost,
		"close": (*QP).Close,
		"FIN":   func(q *QP) { q.PeerClosed(cutFPDU) },
	} {
		h := newHost(t, 1)
		var events []string
		h.open(func(c *Config) {
			c.Reclaim = func() { events = append(events, "reclaim") }
		}, Params{Version: ddp.IETF})
		h.onCQE = func(c *Completion) { events = append(events, c.Op.String()) }
		h.send(SendWR{ID: 1, Op: WRSend})
		h.recv(2)
		end(h.qp)
		if d := cmp.Diff([]string{"reclaim", "send", "recv"}, events); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// TestLend: only a Send or a Write of one piece lends its memory, which is the registered memory itself, and only until
// its completion: then it is the consumer's.
func TestLend(t *testing.T) {
	for _, c := range []struct {
		name string
		op   WROp
		sgl  []int // lengths
		head int   // bytes; 0: nothing is lent
	}{
		{"Write", WRWrite, []int{300}, 14},
		{"Send", WRSend, []int{300}, 18},
		{"Send with Invalidate", WRSendInv, []int{300}, 18},
		{"Write of two pieces", WRWrite, []int{150, 150}, 0},
		{"Write of one piece and an empty one", WRWrite, []int{0, 300}, 14},
		{"inline", WRWrite, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, 1).open(func(c *Config) { c.MaxInline = 300 },
				Params{Version: ddp.IETF})
			m := h.region(300, ddp.Attr{})
			wr := SendWR{ID: 1, Op: c.op, Flags: Signaled, RemoteSTag: 1}
			at := 0
			for _, n := range c.sgl {
				wr.SGL = append(wr.SGL, sge(m, at, n))
				at += n
			}
			if at == 0 {
				wr.Inline = h.held(m)
			}
			h.send(wr)
			frames := h.pullAll(214)
			lent := func(f *frame) (head int, body []byte) {
				b := make([]byte, len(f.b))
				head, body = h.qp.LendULPDU(f.ref, b)
				if head > 0 && string(append(b[:head:head], body[:len(b)-head]...)) != string(f.b) {
					t.Errorf("%x and %x are lent of %x", b[:head], body, f.b)
				}
				return head, body
			}
			at = 0
			for i, f := range frames {
				head, body := lent(f)
				if head != c.head || head > 0 && &body[0] != &h.held(m)[at] ||
					head == 0 && body != nil {
					t.Errorf("ULPDU %d: %d bytes of header, %d of body", i, head, len(body))
				}
				at += len(f.b) - c.head
			}
			h.qp.ReleaseULPDU(frames[0].ref)
			if head, _ := lent(frames[1]); head != c.head {
				t.Errorf("after the first one was acknowledged: %d bytes of header", head)
			}
			last := frames[len(frames)-1]
			h.qp.ReleaseULPDU(last.ref)
			wantCQEs(t, h, fmt.Sprintf("1 %v SUCCESS", c.op))
			if head, body := h.qp.LendULPDU(last.ref, make([]byte, len(last.b))); head != 0 ||
				body != nil {
				t.Errorf("%d bytes are lent after the completion", len(body))
			}
		})
	}
}

// TestLendNothing: a Read Response is never lent, because its owner does not know about the Read; neither is a
// Terminate, nor flushed work, although TCP may have to retransmit that.
func TestLendNothing(t *testing.T) {
	a, b := twins(t, nil, Params{})
	m := a.region(200, ddp.Attr{Access: ddp.RemoteRead})
	b.send(SendWR{Op: WRRead, RemoteSTag: m.STag(),
		SGL: []SGE{sge(b.region(200, ddp.Attr{Access: ddp.LocalWrite}), 0, 200)}})
	a.push(b, b.pullAll(1500)...)
	frames := a.pullAll(1500)
	a.send(SendWR{Op: WRSend, SGL: []SGE{sge(m, 0, 200)}})
	frames = append(frames, a.pullAll(1500)...)
	a.qp.Fail(CauseStreamFatal.Errorf("test"))
	frames = append(frames, a.pullAll(1500)...)
	if len(frames) != 3 {
		t.Fatalf("%d ULPDUs", len(frames))
	}
	for _, f := range frames {
		if head, body := a.qp.LendULPDU(f.ref, make([]byte, len(f.b))); head != 0 || body != nil {
			t.Errorf("%v: %d bytes of header, %d of body", opcodeOf(f.b[1]), head, len(body))
		}
	}
}

// TestExecuteLocalsIsBounded: once ExecuteLocals was called, a queue full of work requests that send nothing runs a
// part at a time, in the order of posting, also if the completion of earlier work makes them run.
func TestExecuteLocalsIsBounded(t *testing.T) {
	a, b := twins(t, nil, Params{})
	m := a.region(64, ddp.Attr{Access: ddp.LocalWrite | ddp.BindMW})
	w, err := a.table.AllocWindow(a.pd, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	const most, binds = 3, 8
	if n := a.qp.ExecuteLocals(most); n != 0 || a.qp.HasWaitingLocals() {
		t.Fatalf("%d ran of an empty queue", n)
	}
	a.send(SendWR{ID: 100, Op: WRRead, Flags: Signaled})
	var want []string
	for i := range binds {
		a.send(SendWR{ID: uint64(i), Op: WRBindMW, Flags: Signaled | Fence, Region: m.STag(),
			Data: 64, RemoteSTag: w.STag() | ddp.STag(i), Access: ddp.RemoteRead})
		want = append(want, fmt.Sprintf("%d bind-mw SUCCESS", i))
	}
	b.push(a, a.pullAll(1500)...)
	if a.qp.HasWaitingLocals() {
		t.Error("what waits for a Read waits for ExecuteLocals")
	}
	a.push(b, b.pullAll(1500)...)
	wantCQEs(t, a, append([]string{"100 read SUCCESS"}, want[:most]...)...)
	for done := most; done < binds; {
		if !a.qp.HasWaitingLocals() {
			t.Fatalf("%d of %d are done, and nothing waits", done, binds)
		}
		n := a.qp.ExecuteLocals(most)
		if n == 0 || n > most {
			t.Fatalf("%d ran at once, want 1 to %d", n, most)
		}
		wantCQEs(t, a, want[done:done+n]...)
		done += n
	}
	if a.qp.HasWaitingLocals() {
		t.Error("nothing is left, and something waits")
	}
}
