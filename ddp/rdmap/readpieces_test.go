package rdmap

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"xwarp/ddp"
)

// piecesRead returns a Read of four pieces of two regions of a, one of them empty, from 60 bytes of a region of b.
func piecesRead(a, b *host) (wr SendWR, sinks [2]*ddp.MR, source *ddp.MR) {
	for i := range sinks {
		sinks[i] = a.register(make([]byte, 64),
			ddp.Attr{Access: ddp.LocalWrite, Base: ddp.TO(0x1000 * (i + 1))})
	}
	source = b.region(100, ddp.Attr{Access: ddp.RemoteRead, Base: 0x9000})
	return SendWR{ID: 1, Op: WRRead, Flags: Signaled, RemoteSTag: source.STag(), RemoteTO: 0x9008,
		SGL: []SGE{sge(sinks[1], 4, 10), sge(sinks[0], 0, 20), sge(sinks[0], 9, 0),
			sge(sinks[1], 30, 30)}}, sinks, source
}

// requestsIn returns the Read Requests of frames, and checks that their MSNs count up from first.
func requestsIn(t *testing.T, frames []*frame, first ddp.MSN) (list []ReadRequest) {
	t.Helper()
	for _, f := range frames {
		h, rest, err := ddp.ParseUntagged(f.b)
		if err != nil || opcodeOf(h.ULP) != OpReadRequest {
			continue
		}
		if h.MSN != first+ddp.MSN(len(list)) || h.MO != 0 || !h.Control.Last() || h.QN != QNRead {
			t.Errorf("Read Request %d has the header %v", len(list), h)
		}
		r, _, err := ParseReadRequest(rest)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

// TestReadOfPieces checks the Read Requests of a Read of several pieces, which are in order and limited by the ORD, and
// its one completion.
//
//req:rfc5040-5.2-1
func TestReadOfPieces(t *testing.T) {
	for _, ord := range []int{1, 2, 3, 8} {
		t.Run(fmt.Sprintf("ORD %d", ord), func(t *testing.T) {
			a, b := twins(t, nil, Params{Version: ddp.IETF, IRD: 8, ORD: ord})
			wr, sinks, source := piecesRead(a, b)
			a.send(wr)
			word := b.region(8, ddp.Attr{Access: ddp.RemoteAtomic})
			a.send(SendWR{ID: 2, Op: WRFetchAdd, SGL: []SGE{sge(sinks[0], 40, 8)}, Flags: Signaled,
				RemoteSTag: word.STag()})
			a.send(SendWR{ID: 3, Op: WRSend, Flags: Signaled | Fence})
			want := []ReadRequest{
				{sinks[1].STag(), 0x2004, 10, source.STag(), 0x9008},
				{sinks[0].STag(), 0x1000, 20, source.STag(), 0x9008 + 10},
				{sinks[1].STag(), 0x201e, 30, source.STag(), 0x9008 + 30},
			}
			var got []ReadRequest
			for len(got) < len(want) {
				frames := a.pullAll(1500)
				list := requestsIn(t, frames, ddp.MSN(len(got)+1))
				if out, _ := a.qp.ReadsInFlight(); out > ord || len(list) == 0 {
					t.Fatalf("%d requests in flight, %d more frozen", out, len(list))
				}
				got = append(got, list...)
				for _, f := range frames {
					a.qp.ReleaseULPDU(f.ref)
				}
				if len(a.cqes) > 0 {
					t.Fatalf("completed after %d of %d requests", len(got), len(want))
				}
				b.recv(4)
				if err := b.push(a, frames...); err != nil {
					t.Fatal(err)
				}
				a.push(b, b.pullAll(1500)...)
			}
			b.push(a, a.pullAll(1500)...)
			a.push(b, b.pullAll(1500)...)
			b.push(a, a.pullAll(1500)...)
			if !slices.Equal(got, want) {
				t.Errorf("requests\n%v, want\n%v", got, want)
			}
			c := a.take()
			if len(c) < 2 || c[0].ByteLen != 60 || c[0].Status != Success || c[0].ID != 1 ||
				c[1].Status != Success || c[1].ID != 2 {
				t.Errorf("completions %v", brief(c))
			}
			data := b.held(source)[8:68]
			read := slices.Concat(a.held(sinks[1])[4:14], a.held(sinks[0])[:20],
				a.held(sinks[1])[30:60])
			if !bytes.Equal(read, data) {
				t.Errorf("read %x, want %x", read, data)
			}
		})
	}
}

// TestReadOfPiecesFails ends a Read of three pieces at each of its requests: it completes once, with the status of that
// request, and what follows is flushed.
//
//req:rfc5040-7.1-1
func TestReadOfPiecesFails(t *testing.T) {
	const requests = 3
	for _, ord := range []int{1, 8} {
		for done := range requests {
			t.Run(fmt.Sprintf("ORD %d, %d answered", ord, done), func(t *testing.T) {
				a, b := twins(t, nil, Params{Version: ddp.IETF, IRD: 8, ORD: ord})
				wr, sinks, source := piecesRead(a, b)
				a.send(wr)
				a.send(SendWR{ID: 2, Op: WRWrite})
				for range done {
					b.push(a, a.pull(1500))
					a.push(b, b.pullAll(1500)...)
				}
				if err := b.table.Invalidate(source); err != nil {
					t.Fatal(err)
				}
				f := a.pull(1500)
				if err := b.push(a, f); err == nil {
					t.Fatal("the source is gone, but its Read Request is accepted")
				}
				a.push(b, b.pullAll(1500)...)
				wantCQEs(t, a, "1 read REM_ACCESS_ERR", "2 write WR_FLUSH_ERR")
				again := make([]byte, len(f.b))
				if readULPDU(t, a.qp, f.ref, again); !bytes.Equal(f.b, again) {
					t.Errorf("TCP would repeat\n%x as\n%x", f.b, again)
				}
				a.qp.Closed()
				if n := sinks[0].Holds() + sinks[1].Holds(); n != 0 {
					t.Errorf("the sinks are held %d times after the end", n)
				}
			})
		}
	}
}

// TestReadOfPiecesIsFlushedOnce aborts a Read of three pieces at each of its stages.
func TestReadOfPiecesIsFlushedOnce(t *testing.T) {
	for frozen := range 4 {
		a, b := twins(t, nil, Params{})
		wr, _, _ := piecesRead(a, b)
		a.send(wr)
		for range frozen {
			a.pull(1500)
		}
		a.qp.Abort()
		wantCQEs(t, a, "1 read WR_FLUSH_ERR")
	}
}

// TestReadOfPiecesWithBadMemory posts a Read whose last piece is longer than its region: no Read Request is sent, and
// the stream ends.
//
//req:rfc5040-7.1-2
func TestReadOfPiecesWithBadMemory(t *testing.T) {
	a, b := twins(t, nil, Params{})
	wr, _, _ := piecesRead(a, b)
	wr.SGL[3].Len += 100
	a.send(wr)
	if frames := a.pullAll(1500); len(requestsIn(t, frames, 1)) != 0 || a.qp.State() != Terminated {
		t.Errorf("%d ULPDUs, state %v", len(frames), a.qp.State())
	}
	wantCQEs(t, a, "1 read LOC_PROT_ERR")
}
