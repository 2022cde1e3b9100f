package rdmap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"xwarp/ddp"
	"xwarp/mpa/ulpdu"
)

// brief shows completions as text.
func brief(cs []Completion) []string {
	var s []string
	for _, c := range cs {
		s = append(s, fmt.Sprintf("%d %v %v", c.ID, c.Op, c.Status))
	}
	return s
}

func wantCQEs(t *testing.T, h *host, want ...string) {
	t.Helper()
	if d := cmp.Diff(want, brief(h.take())); d != "" {
		t.Errorf("completions (-want +got):\n%s", d)
	}
}

// TestCompletionOrder: a Read completes before a later Write, also if it is answered after the Write is acknowledged
// (RFC 5040, 5.5, rule 15).
//
//req:rfc5040-5.5-11 rfc5040-5.5-14 rfc5040-5.5-15
func TestCompletionOrder(t *testing.T) {
	a, b := twins(t, nil, Params{})
	sink := a.region(100, ddp.Attr{Access: ddp.LocalWrite})
	src := b.region(100, ddp.Attr{Access: ddp.RemoteRead | ddp.RemoteWrite})
	a.send(SendWR{ID: 1, Op: WRRead, Flags: Signaled, SGL: []SGE{sge(sink, 0, 50)},
		RemoteSTag: src.STag()})
	a.send(SendWR{ID: 2, Op: WRWrite, Flags: Signaled, SGL: []SGE{sge(sink, 50, 50)},
		RemoteSTag: src.STag(), RemoteTO: 50})
	b.push(a, a.pullAll(1500)...)
	wantCQEs(t, a)
	a.push(b, b.pullAll(1500)...)
	wantCQEs(t, a, "1 read SUCCESS", "2 write SUCCESS")
	if s, _ := a.qp.Outstanding(); s != 0 {
		t.Errorf("%d sends outstanding", s)
	}
}

// TestReadNeedsAcknowledgement: the response alone does not free the request, whose bytes TCP
// may have to send again.
//
//req:rfc5040-5.5-19
func TestReadNeedsAcknowledgement(t *testing.T) {
	a, b := twins(t, nil, Params{})
	a.send(SendWR{ID: 1, Op: WRRead, Flags: Signaled})
	req := a.pull(1500)
	b.push(nil, req)
	a.push(b, b.pull(1500))
	wantCQEs(t, a)
	a.qp.ReleaseULPDU(req.ref)
	wantCQEs(t, a, "1 read SUCCESS")
}

func TestFence(t *testing.T) {
	a, b := twins(t, nil, Params{})
	src := b.region(64, ddp.Attr{Access: ddp.RemoteRead})
	local := a.region(64, ddp.Attr{Access: ddp.LocalWrite})
	inv := a.region(64, ddp.Attr{Access: ddp.RemoteRead})
	a.send(SendWR{Op: WRRead, SGL: []SGE{sge(local, 0, 64)}, RemoteSTag: src.STag()})
	a.send(SendWR{Op: WRSend})
	a.send(SendWR{Op: WRLocalInv, Flags: Fence | Signaled, Invalidate: inv.STag(), ID: 3})
	a.send(SendWR{Op: WRSend})
	b.recv(1)
	b.recv(2)
	sent := a.pullAll(1500)
	if len(sent) != 2 || !inv.Valid() {
		t.Fatalf("%d ULPDUs before the fence, region valid %v", len(sent), inv.Valid())
	}
	b.push(a, sent...)
	a.push(b, b.pullAll(1500)...)
	if inv.Valid() {
		t.Error("local invalidation did not run after the fence")
	}
	wantCQEs(t, a, "3 local-inv SUCCESS")
	if n := len(a.pullAll(1500)); n != 1 {
		t.Errorf("%d ULPDUs after the fence", n)
	}
}

// TestORD: Reads beyond ORD wait until earlier Reads are answered.
//
//req:rfc5040-5.2.2-2 rfc5040-5.5-13 rfc5040-6.1-2 rfc7306-5.2.1-1
//req:rfc5042-6.4.3.3-2 rfc5040-8.1.1-11
func TestORD(t *testing.T) {
	a, b := twins(t, nil, Params{Version: ddp.IETF, IRD: 2, ORD: 2})
	for i := range 5 {
		a.send(SendWR{ID: uint64(i), Op: WRRead, Flags: Signaled})
	}
	for _, want := range []int{2, 2, 1} {
		if out, _ := a.qp.ReadsInFlight(); out != 0 {
			t.Fatalf("%d Reads in flight", out)
		}
		sent := a.pullAll(1500)
		if len(sent) != want {
			t.Fatalf("%d Reads sent, want %d", len(sent), want)
		}
		b.push(a, sent...)
		a.push(b, b.pullAll(1500)...)
	}
	if n := len(a.take()); n != 5 {
		t.Errorf("%d completions", n)
	}
}

// TestNoORD: with an ORD of 0, Reads and atomics are refused and other messages work, also if a work request may have
// only one piece.
func TestNoORD(t *testing.T) {
	for _, pieces := range []int{1, 2} {
		a, b := twins(t, func(c *Config) { c.MaxSGE = pieces }, Params{Version: ddp.IETF})
		mr := a.region(8, ddp.Attr{Access: ddp.LocalWrite})
		sink := b.region(8, ddp.Attr{Access: ddp.RemoteWrite | ddp.LocalWrite})
		b.recv(1, sge(sink, 0, 8))
		for op, want := range map[WROp]error{
			WRSend: nil, WRWrite: nil, WRRead: ErrNoORD, WRFetchAdd: ErrNoORD, WRCmpSwap: ErrNoORD,
		} {
			err := a.qp.PostSend(&SendWR{Op: op, Flags: Signaled, SGL: []SGE{sge(mr, 0, 8)},
				RemoteSTag: sink.STag()})
			if !errors.Is(err, want) {
				t.Errorf("%v of a queue pair for %d pieces: %v, want %v", op, pieces, err, want)
			}
		}
		settle(a, b, 1500)
		if got := a.take(); len(got) != 2 || got[0].Status != Success || got[1].Status != Success {
			t.Errorf("completions: %+v", got)
		}
	}
}

// TestFairness: Responses and the send queue take turns, whole messages each.
//
//req:rfc5040-5.2.1-3 rfc5040-5.5-20
func TestFairness(t *testing.T) {
	a, b := twins(t, nil, Params{})
	src := b.region(1000, ddp.Attr{Access: ddp.RemoteRead})
	sink := a.region(1000, ddp.Attr{Access: ddp.LocalWrite | ddp.RemoteWrite})
	for range 3 {
		a.send(SendWR{Op: WRRead, SGL: []SGE{sge(sink, 0, 1000)}, RemoteSTag: src.STag()})
		b.send(SendWR{Op: WRWrite, SGL: []SGE{sge(src, 0, 1000)}, RemoteSTag: sink.STag()})
	}
	b.push(a, a.pullAll(600)...)
	var got []Opcode
	for _, f := range b.pullAll(600) {
		got = append(got, opcodeOf(f.b[1]))
	}
	r, w := OpReadResponse, OpWrite
	if d := cmp.Diff([]Opcode{r, r, w, w, r, r, w, w, r, r, w, w}, got); d != "" {
		t.Error(d)
	}
}

//req:rfc5044-7.1.2-7 rfc5040-5.2.1-4 rfc6581-5-1 rfc6581-9.2-4 rfc6581-9.2-7
func TestRTR(t *testing.T) {
	for _, kind := range []RTRKind{RTRSend, RTRWrite, RTRRead} {
		t.Run(fmt.Sprintf("message %d", kind), func(t *testing.T) {
			a := newHost(t, 1).open(nil, Params{Version: ddp.IETF, IRD: 1, ORD: 1, SendRTR: kind})
			b := newHost(t, 2).open(nil, Params{Version: ddp.IETF, IRD: 1, ORD: 1, Wait: true,
				ExpectRTR: kind})
			buf := b.region(16, ddp.Attr{Access: ddp.LocalWrite})
			b.recv(7, sge(buf, 0, 16))
			b.send(SendWR{ID: 9, Op: WRSend, Flags: Signaled, Inline: []byte("from the responder")})
			dst := a.region(32, ddp.Attr{Access: ddp.LocalWrite})
			a.recv(8, sge(dst, 0, 32))
			if b.qp.ULPDUWaiting() || len(b.pullAll(1500)) != 0 {
				t.Error("responder speaks before the first FPDU")
			}
			a.send(SendWR{ID: 1, Op: WRSend, Flags: Signaled, Inline: []byte("first")})
			first := a.pull(1500)
			b.push(a, first)
			if b.qp.State() != RTS {
				t.Fatalf("responder is in %v", b.qp.State())
			}
			wantCQEs(t, a)
			wantCQEs(t, b)
			settle(a, b, 1500)
			wantCQEs(t, a, "1 send SUCCESS", "8 recv SUCCESS")
			wantCQEs(t, b, "7 recv SUCCESS", "9 send SUCCESS")
			if got := string(b.held(buf)[:5]); got != "first" {
				t.Errorf("receive holds %q", got)
			}
		})
	}
	t.Run("ahead", func(t *testing.T) {
		// The Send behind the RTR is placed first and still goes to the first receive.
		a := newHost(t, 1).open(nil, Params{Version: ddp.IETF, SendRTR: RTRSend})
		b := newHost(t, 2).open(nil, Params{Version: ddp.IETF, Wait: true, ExpectRTR: RTRSend})
		buf := b.region(16, ddp.Attr{Access: ddp.LocalWrite})
		b.recv(7, sge(buf, 0, 16))
		a.send(SendWR{Op: WRSend, Inline: []byte("first")})
		f := a.pullAll(1500)
		v := ulpdu.ViewOf(f[1].b)
		if err := b.qp.Place(&v, false); err != nil {
			t.Fatal(err)
		}
		b.push(nil, f[0])
		if err := b.qp.Deliver(f[1].b[:18], len(f[1].b)); err != nil {
			t.Fatal(err)
		}
		wantCQEs(t, b, "7 recv SUCCESS")
	})
	t.Run("with payload", func(t *testing.T) {
		b := newHost(t, 2).open(nil, Params{Version: ddp.IETF, Wait: true, ExpectRTR: RTRSend})
		b.recv(7)
		err := b.inject(unhex(t, "4143 00000000 00000000 00000001 00000000 01"))
		wantError(t, err, ddp.CauseTooLong)
	})
}

func wantError(t *testing.T, err *ulpdu.Error, c ddp.Cause) {
	t.Helper()
	if err == nil || !errors.Is(err, c.Errorf("")) {
		t.Errorf("error %v, want %v", err, c)
	}
}

// TestInvalidateAtDelivery: a Send with Invalidate that is placed ahead invalidates nothing
// before its turn.
//
//req:rfc5041-5.4-1 rfc5040-4.1-2 rfc5040-5.3-4
func TestInvalidateAtDelivery(t *testing.T) {
	a, b := twins(t, nil, Params{})
	m := b.region(64, ddp.Attr{Access: ddp.RemoteWrite, Stream: 1})
	b.recv(1)
	var valid bool
	b.onCQE = func(*Completion) { valid = m.Valid() }
	valid = true
	a.send(SendWR{Op: WRWrite, Inline: []byte("last words"), RemoteSTag: m.STag()})
	a.send(SendWR{Op: WRSendInv, Invalidate: m.STag()})
	f := a.pullAll(1500)
	v := ulpdu.ViewOf(f[1].b)
	if err := b.qp.Place(&v, false); err != nil {
		t.Fatal(err)
	}
	if !m.Valid() {
		t.Fatal("invalidated by placement")
	}
	b.push(a, f[0])
	if err := b.qp.Deliver(f[1].b, len(f[1].b)); err != nil {
		t.Fatal(err)
	}
	if m.Valid() || valid {
		t.Errorf("valid after delivery: %v, during completion: %v", m.Valid(), valid)
	}
	c := b.take()
	if len(c) != 1 || c[0].Flags != WithInvalidate || c[0].Invalidated != m.STag() {
		t.Errorf("completion %+v", c)
	}
	// A Write behind the invalidation is refused.
	a.send(SendWR{Op: WRWrite, Inline: []byte("more"), RemoteSTag: m.STag()})
	wantError(t, b.push(a, a.pullAll(1500)...), ddp.CauseSTag)
}

//req:rfc5040-5.3-4
func TestWritePlacedAheadOfInvalidation(t *testing.T) {
	a, b := twins(t, nil, Params{})
	m := b.region(64, ddp.Attr{Access: ddp.RemoteWrite, Stream: 1})
	b.recv(1)
	a.send(SendWR{Op: WRSendInv, Invalidate: m.STag()})
	a.send(SendWR{Op: WRWrite, Inline: []byte("more"), RemoteSTag: m.STag()})
	f := a.pullAll(1500)
	v := ulpdu.ViewOf(f[1].b)
	if err := b.qp.Place(&v, false); err != nil {
		t.Fatal(err)
	}
	b.push(a, f[0])
	err := b.qp.Deliver(f[1].b[:18], len(f[1].b))
	wantError(t, err, ddp.CauseSTag)
}

// TestSharedSTagCannotBeInvalidated: a peer cannot invalidate an STag that several streams share (RFC 5040, 8.1.1, item
// 7).
//
//req:rfc5040-7.2-2 rfc5040-8.1.1-7
func TestSharedSTagCannotBeInvalidated(t *testing.T) {
	for _, c := range []struct {
		name    string
		attr    ddp.Attr
		streams int
		want    ddp.Cause
	}{
		{"alone in the domain", ddp.Attr{Access: ddp.RemoteRead}, 0, ddp.CauseNone},
		{"domain with a stream in another table", ddp.Attr{Access: ddp.RemoteRead}, -1,
			CauseProtInvalidate},
		{"domain with two streams", ddp.Attr{Access: ddp.RemoteRead}, 1, CauseProtInvalidate},
		{"own of two streams", ddp.Attr{Access: ddp.RemoteRead, Stream: 1}, 1, ddp.CauseNone},
		{"other stream's", ddp.Attr{Access: ddp.RemoteRead, Stream: 2}, 1, CauseProtInvalidate},
		{"no remote right", ddp.Attr{Access: ddp.LocalWrite, Stream: 1}, 0, CauseProtInvalidate},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := twins(t, nil, Params{})
			for range c.streams {
				b.pd.Attach()
			}
			if c.streams < 0 {
				all := new(atomic.Uint64)
				all.Store(2)
				b.pd.ShareStreamCount(all)
			}
			m := b.region(8, c.attr)
			b.recv(1)
			a.send(SendWR{Op: WRSendInv, Invalidate: m.STag()})
			err := b.push(a, a.pullAll(1500)...)
			if c.want == ddp.CauseNone {
				if err != nil || m.Valid() {
					t.Errorf("error %v, valid %v", err, m.Valid())
				}
				return
			}
			wantError(t, err, c.want)
			if !m.Valid() {
				t.Error("invalidated all the same")
			}
		})
	}
	a, b := twins(t, nil, Params{})
	b.recv(1)
	a.send(SendWR{Op: WRSendInv, Invalidate: 0xdead})
	wantError(t, b.push(a, a.pullAll(1500)...), CauseOpInvalidate)
	b.qp.Closed()
	wantCQEs(t, b, "1 recv REM_INV_REQ_ERR")
}

//req:rfc7306-5-2 rfc7306-5.2.2-2 rfc7306-5.4-2
func TestAtomics(t *testing.T) {
	a, b := twins(t, nil, Params{})
	word := b.register(make([]byte, 24), ddp.Attr{Access: ddp.RemoteAtomic, Base: 0x1000})
	res := a.register(make([]byte, 8), ddp.Attr{Access: ddp.LocalWrite})
	binary.NativeEndian.PutUint64(b.held(word), 41)
	a.send(SendWR{ID: 1, Op: WRFetchAdd, Flags: Signaled, SGL: []SGE{sge(res, 0, 8)},
		RemoteSTag: word.STag(), RemoteTO: 0x1000, Data: 1})
	req := a.pull(1500)
	want := unhex(t, vectorFetchAdd)
	binary.BigEndian.PutUint32(want[22:], 1) // our first request identifier
	binary.BigEndian.PutUint32(want[26:], uint32(word.STag()))
	if !bytes.Equal(req.b, want) {
		t.Errorf("request\n got %x\nwant %x", req.b, want)
	}
	b.push(a, req)
	resp := b.pull(1500)
	want = unhex(t, vectorResponse)
	binary.BigEndian.PutUint32(want[18:], 1)
	if !bytes.Equal(resp.b, want) {
		t.Errorf("response\n got %x\nwant %x", resp.b, want)
	}
	a.push(b, resp)
	wantCQEs(t, a, "1 fetch-add SUCCESS")
	if old, now := binary.NativeEndian.Uint64(a.held(res)),
		binary.NativeEndian.Uint64(b.held(word)); old != 41 || now != 42 {
		t.Errorf("old %d, now %d", old, now)
	}
}

// TestAtomicBehindRead: an atomic waits for the acknowledgement of an earlier Read Response that
// holds its word, since a retransmission would show the new value; others do not wait.
//
//req:rfc7306-5.2.1-2
func TestAtomicBehindRead(t *testing.T) {
	for _, c := range []struct {
		from, n int    // what the Read covers
		at      ddp.TO // offset of the word
		want    int    // responses at once
	}{{16, 24, 0, 2}, {16, 24, 8, 2}, {16, 24, 16, 1}, {16, 24, 24, 1}, {16, 24, 32, 1},
		{16, 24, 40, 2}, {15, 1, 16, 2}, {16, 1, 16, 1}, {23, 1, 16, 1}, {24, 1, 16, 2},
		{15, 0, 16, 2}, {16, 0, 16, 2}} {
		a, b := twins(t, nil, Params{})
		m := b.region(64, ddp.Attr{Access: ddp.RemoteAtomic | ddp.RemoteRead})
		res := a.region(64, ddp.Attr{Access: ddp.LocalWrite})
		a.send(SendWR{Op: WRRead, SGL: []SGE{sge(res, 16, c.n)}, RemoteSTag: m.STag(),
			RemoteTO: ddp.TO(c.from)})
		a.send(SendWR{Op: WRFetchAdd, SGL: []SGE{sge(res, 0, 8)}, RemoteSTag: m.STag(),
			RemoteTO: c.at, Data: 1})
		b.push(a, a.pullAll(1500)...)
		f := b.pullAll(1500)
		if len(f) != c.want || b.qp.ULPDUWaiting() {
			t.Errorf("word at %d, %d bytes at %d: %d responses, want %d", c.at, c.n, c.from,
				len(f), c.want)
		}
		b.qp.ReleaseULPDU(f[0].ref)
		if c.want == 1 && len(b.pullAll(1500)) != 1 {
			t.Errorf("word at %d: atomic still waits", c.at)
		}
	}
}

// TestCompareAndSwapHook: Config.CompareAndSwap executes an atomic, and is called again if another worker has changed
// the word.
//
//req:rfc7306-5-1 rfc7306-5.3-1
func TestCompareAndSwapHook(t *testing.T) {
	calls := 0
	hook := func(p *uint64, old, want uint64) bool {
		if calls++; calls == 1 {
			*p = 100 // another worker was faster
			return false
		}
		if *p != old {
			return false
		}
		*p = want
		return true
	}
	a, b := twins(t, func(c *Config) { c.CompareAndSwap = hook }, Params{})
	word := b.register(make([]byte, 8), ddp.Attr{Access: ddp.RemoteAtomic})
	res := a.register(make([]byte, 8), ddp.Attr{Access: ddp.LocalWrite})
	a.send(SendWR{Op: WRFetchAdd, SGL: []SGE{sge(res, 0, 8)}, RemoteSTag: word.STag(), Data: 1})
	settle(a, b, 1500)
	if old, now := binary.NativeEndian.Uint64(a.held(res)),
		binary.NativeEndian.Uint64(b.held(word)); calls != 2 || old != 100 || now != 101 {
		t.Errorf("%d calls, old %d, now %d", calls, old, now)
	}
}

//req:rfc5044-3-5 rfc5044-C-1
func TestVersionZero(t *testing.T) {
	a, b := twins(t, nil, Params{Version: ddp.RDMAC, IRD: 1, ORD: 1})
	buf := b.region(16, ddp.Attr{Access: ddp.LocalWrite | ddp.RemoteRead})
	sink := a.region(16, ddp.Attr{Access: ddp.LocalWrite})
	b.recv(1, sge(buf, 0, 16))
	a.send(SendWR{ID: 1, Op: WRSend, Flags: Signaled, Inline: []byte("version 0")})
	a.send(SendWR{ID: 2, Op: WRRead, Flags: Signaled, SGL: []SGE{sge(sink, 0, 16)},
		RemoteSTag: buf.STag()})
	settle(a, b, 1500)
	wantCQEs(t, a, "1 send SUCCESS", "2 read SUCCESS")
	if !bytes.Equal(a.held(sink), b.held(buf)) {
		t.Error("memory differs")
	}
	if err := a.qp.PostSend(&SendWR{Op: WRImm}); !errors.Is(err, ErrOp) {
		t.Errorf("immediate data in version 0: %v", err)
	}
	wantError(t, b.inject(unhex(t, "0003 00000000 00000000 00000002 00000000")[:18]),
		ddp.CauseNoBuffer)
}
