package rdmap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"xwarp/ddp"
	"xwarp/mpa/ulpdu"
)

// TestReadSourceRevoked: the source of a Read is revoked after a part of the Read Response was sent. The header of the
// Read Request in the Terminate shows which part is missing (RFC 5040, 4.8). A region cannot be deregistered while a
// Read Response is sent from it.
//
//req:rfc5040-5.5-12
func TestReadSourceRevoked(t *testing.T) {
	a, b := twins(t, nil, Params{})
	sink := a.region(4000, ddp.Attr{Access: ddp.LocalWrite, Base: 0x1000})
	src := b.region(4000, ddp.Attr{Access: ddp.RemoteRead, Base: 0x20000})
	a.send(SendWR{ID: 1, Op: WRRead, SGL: []SGE{sge(sink, 0, 4000)}, RemoteSTag: src.STag(),
		RemoteTO: 0x20000})
	a.send(SendWR{ID: 2, Op: WRSend})
	b.recv(5)
	b.push(a, a.pullAll(1500)...)
	if err := b.table.Deregister(src); err != nil {
		t.Fatalf("deregistration before the response began: %v", err)
	}
	src = b.register(make([]byte, 4000), ddp.Attr{Access: ddp.RemoteRead, Base: 0x20000,
		STag: src.STag()})
	first := b.pull(1038) // 1024 bytes
	if err := b.table.Deregister(src); !errors.Is(err, ddp.ErrBusy) {
		t.Errorf("deregistration under way: %v", err)
	}
	if err := b.table.Invalidate(src); err != nil {
		t.Fatal(err)
	}
	term := b.pull(1500)
	if term == nil || opcodeOf(term.b[1]) != OpTerminate {
		t.Fatalf("no Terminate: %+v", term)
	}
	got, err := ParseTerminate(term.b[18:])
	if err != nil {
		t.Fatal(err)
	}
	want := Terminate{Cause: CauseProtSTag, HasDDP: true, HasRead: true, SegLen: 46,
		Read: ReadRequest{SinkSTag: sink.STag(), SinkTO: 0x1000 + 1024, Size: 4000 - 1024,
			SrcSTag: src.STag(), SrcTO: 0x20000 + 1024}}
	copy(want.DDP[:], unhex(t, "4141 00000000 00000001 00000001 00000000"))
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if b.pull(1500) != nil || b.qp.ULPDUWaiting() {
		t.Error("something follows the Terminate")
	}
	if got := b.qp.Actions(); got != ActFIN|ActTimer {
		t.Errorf("actions %v", got)
	}
	a.push(b, first, term)
	if a.qp.State() != Terminated || a.pull(1500) != nil {
		t.Errorf("peer is in %v or answers", a.qp.State())
	}
	if got := a.qp.Actions(); got != ActFIN|ActTimer {
		t.Errorf("peer's actions %v", got)
	}
	a.qp.Closed()
	b.qp.Closed()
	wantCQEs(t, a, "1 read REM_ACCESS_ERR", "2 send WR_FLUSH_ERR") // the Send may have been delivered
	wantCQEs(t, b, "5 recv SUCCESS")
	if src.Holds() != 0 || sink.Holds() != 0 {
		t.Errorf("regions are still held: %d %d", src.Holds(), sink.Holds())
	}
	if err := b.table.Deregister(src); err != nil {
		t.Error(err)
	}
}

// TestRevokedMemoryIsNotRetransmitted: after an STag is revoked, a retransmission does not show the present content of
// its memory.
//
//req:rfc5041-8.3.1-2
func TestRevokedMemoryIsNotRetransmitted(t *testing.T) {
	for _, byPeer := range []bool{false, true} {
		a, b := twins(t, nil, Params{})
		sink := a.region(64, ddp.Attr{Access: ddp.LocalWrite})
		src := b.region(64, ddp.Attr{Access: ddp.RemoteRead, Stream: 1})
		a.send(SendWR{Op: WRRead, SGL: []SGE{sge(sink, 0, 64)}, RemoteSTag: src.STag()})
		b.push(a, a.pullAll(1500)...)
		mem := b.held(src)
		f := b.pull(1500)
		if byPeer {
			b.table.InvalidateRemote(b.pd, 1, src.STag())
		} else if err := b.table.Invalidate(src); err != nil {
			t.Fatal(err)
		}
		copy(mem, "secret")
		again := make([]byte, len(f.b))
		readULPDU(t, b.qp, f.ref, again)
		want := append(bytes.Clone(f.b[:14]), make([]byte, 64)...)
		if !byPeer {
			want[0] &^= 0x40 // without Last, so that the peer's Read does not complete with zeros
		}
		if !bytes.Equal(again, want) {
			t.Errorf("by peer %v: sent again as %q", byPeer, again)
		}
		// A peer that invalidates the STag has the bytes. A peer whose Read was revoked by the consumer may now have
		// zeros.
		if want := map[bool]State{true: RTS, false: Terminated}[byPeer]; b.qp.State() != want {
			t.Errorf("by peer %v: state %v, want %v", byPeer, b.qp.State(), want)
		}
	}
}

// TestStaleResponse: a Read Response is not placed once its Read is flushed or finished.
//
//req:rfc5041-8.3.1-2 rfc5040-8.1.1-6
//req:rfc5042-6.2.2-2
func TestStaleResponse(t *testing.T) {
	a, b := twins(t, nil, Params{})
	sink := a.register(make([]byte, 64), ddp.Attr{Access: ddp.LocalWrite})
	src := b.region(64, ddp.Attr{Access: ddp.RemoteRead})
	a.send(SendWR{ID: 1, Op: WRRead, SGL: []SGE{sge(sink, 0, 64)}, RemoteSTag: src.STag()})
	b.push(a, a.pullAll(1500)...)
	resp := b.pull(1500)

	flushed, _ := twins(t, nil, Params{})
	m := flushed.register(make([]byte, 64), ddp.Attr{Access: ddp.LocalWrite})
	flushed.send(SendWR{ID: 1, Op: WRRead, SGL: []SGE{sge(m, 0, 64)}, RemoteSTag: src.STag()})
	flushed.pullAll(1500)
	late := bytes.Clone(resp.b)
	binary.BigEndian.PutUint32(late[2:], uint32(m.STag()))
	flushed.qp.Abort()
	wantCQEs(t, flushed, "1 read WR_FLUSH_ERR")
	if err := flushed.inject(late); err != nil {
		t.Errorf("after an abort: %v", err)
	}
	if !bytes.Equal(flushed.held(m), make([]byte, 64)) {
		t.Error("flushed Read was written to")
	}

	a.push(b, resp)
	copy(a.held(sink), make([]byte, 64))
	v := ulpdu.ViewOf(resp.b)
	if err := a.qp.Place(&v, false); err == nil {
		t.Error("duplicate was placed ahead")
	}
	wantError(t, a.inject(resp.b), CauseOpcode)
	if !bytes.Equal(a.held(sink), make([]byte, 64)) {
		t.Error("finished Read was written to")
	}
}

// TestReadSinkIsNotWritable: the sink of a Read needs no remote right, and gives none.
func TestReadSinkIsNotWritable(t *testing.T) {
	a, b := twins(t, nil, Params{})
	sink := a.region(64, ddp.Attr{Access: ddp.LocalWrite})
	a.send(SendWR{Op: WRRead, SGL: []SGE{sge(sink, 0, 64)}, RemoteSTag: 1})
	a.pullAll(1500)
	b.send(SendWR{Op: WRWrite, Inline: []byte("x"), RemoteSTag: sink.STag()})
	wantError(t, a.push(b, b.pullAll(1500)...), ddp.CauseSTag)
}

// TestWrongResponses: a Response that does not match the oldest Read ends the stream.
//
//req:rfc5041-4.2-3 rfc5040-5.2-1
func TestWrongResponses(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(s ddp.STag) string
		want ddp.Cause
	}{
		{"other STag", func(s ddp.STag) string {
			return fmt.Sprintf("c142 %08x %016x %s", uint32(s+1), 0, zeros(64))
		}, ddp.CauseSTag},
		{"behind the sink", func(s ddp.STag) string {
			return fmt.Sprintf("c142 %08x %016x %s", uint32(s), 1, zeros(64))
		}, ddp.CauseBounds},
		{"wrap", func(s ddp.STag) string {
			return fmt.Sprintf("c142 %08x %s %s", uint32(s), "ffffffffffffffff", zeros(64))
		}, ddp.CauseWrap},
		{"not from the start", func(s ddp.STag) string {
			return fmt.Sprintf("c142 %08x %016x %s", uint32(s), 32, zeros(32))
		}, ddp.CauseBounds},
		{"too short", func(s ddp.STag) string {
			return fmt.Sprintf("c142 %08x %016x %s", uint32(s), 0, zeros(32))
		}, ddp.CauseBounds},
		{"empty", func(s ddp.STag) string {
			return fmt.Sprintf("c142 %08x %016x", uint32(s), 0)
		}, ddp.CauseBounds},
		{"atomic instead", func(s ddp.STag) string { return vectorResponse }, ddp.CauseNoBuffer},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, _ := twins(t, nil, Params{})
			sink := a.region(64, ddp.Attr{Access: ddp.LocalWrite})
			a.send(SendWR{ID: 1, Op: WRRead, SGL: []SGE{sge(sink, 0, 64)}, RemoteSTag: 1})
			a.pullAll(1500)
			wantError(t, a.inject(unhex(t, c.make(sink.STag()))), c.want)
			a.qp.Closed()
			if got := a.take(); c.want != ddp.CauseNoBuffer &&
				(len(got) != 1 || got[0].Status != BadRespErr) {
				t.Errorf("completions %v", brief(got))
			}
		})
	}
}
