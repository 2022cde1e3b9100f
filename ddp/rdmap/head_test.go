package rdmap

import (
	"testing"

	"xwarp/ddp"
)

// TestReadULPDUReturnsRegisteredMemory checks for which ULPDUs the memory of the payload is returned, and that it is
// the registered memory itself. That of a revoked region is not returned.
func TestReadULPDUReturnsRegisteredMemory(t *testing.T) {
	a, b := twins(t, nil, Params{})
	m := a.region(8000, ddp.Attr{Access: ddp.RemoteRead})
	want := func(what string, at int, ok bool) {
		t.Helper()
		f := a.pull(1014)
		h, body := a.qp.ReadULPDU(f.ref, f.b)
		if got := h < len(f.b); got != ok || ok && &body[0] != &a.held(m)[at] {
			t.Errorf("%s: %d bytes of header, %d of body; want it to begin at byte %d, %v", what,
				h, len(body), at, ok)
		}
	}
	a.send(SendWR{ID: 1, Op: WRWrite, SGL: []SGE{sge(m, 100, 2000)}, RemoteSTag: 9})
	want("first of one piece", 100, true)
	want("second of one piece", 1100, true)
	a.send(SendWR{ID: 2, Op: WRWrite, SGL: []SGE{sge(m, 0, 1500), sge(m, 4000, 1500)},
		RemoteSTag: 9})
	want("inside the first piece", 0, true)
	want("across the border", 0, false)
	want("inside the second piece", 4500, true)

	sink := b.region(4000, ddp.Attr{Access: ddp.LocalWrite})
	b.send(SendWR{ID: 3, Op: WRRead, SGL: []SGE{sge(sink, 0, 3000)}, RemoteSTag: m.STag()})
	a.push(b, b.pullAll(1014)...)
	want("Read Response", 0, true)
	f := a.pull(1014)
	if err := a.table.Invalidate(m); err != nil {
		t.Fatal(err)
	}
	if h, body := a.qp.ReadULPDU(f.ref, f.b); h != len(f.b) {
		t.Errorf("%d bytes of a region that was taken back", len(body))
	}
}
