package rdmap

import (
	"errors"
	"testing"

	"xwarp/ddp"
	"xwarp/mpa/ulpdu"
)

// sharers returns two connected pairs whose receiving ends share a receive queue.
func sharers(t *testing.T, depth, window int) (a, b [2]*host, s *SRQ) {
	to := newHost(t, 5)
	s, err := NewSRQ(SRQConfig{Table: to.table, PD: to.pd, Depth: depth, MaxSGE: 2})
	if err != nil {
		t.Fatal(err)
	}
	for i := range a {
		a[i] = newHost(t, uint64(i)).open(nil, Params{Version: ddp.IETF})
		b[i] = (&host{t: t, table: to.table, pd: to.pd}).open(func(c *Config) {
			c.SRQ, c.Stream, c.RecvDepth = s, ddp.StreamID(i+1), window
		}, Params{Version: ddp.IETF})
	}
	return a, b, s
}

// TestSRQ: messages take receives in the order in which they begin to arrive, completions keep
// the order of each stream.
//
//req:rfc5040-5.5-16
func TestSRQ(t *testing.T) {
	a, b, s := sharers(t, 8, 4)
	if err := b[0].qp.PostRecv(&RecvWR{}); !errors.Is(err, ErrSRQ) {
		t.Errorf("receive of its own: %v", err)
	}
	if err := s.PostRecv(&RecvWR{SGL: make([]SGE, 3)}); !errors.Is(err, ErrSGE) {
		t.Errorf("receive of a piece too many: %v", err)
	}
	for i := range 4 {
		if err := s.PostRecv(&RecvWR{ID: uint64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		a[0].send(SendWR{Op: WRSend})
		a[1].send(SendWR{Op: WRSend})
	}
	f, g := a[0].pullAll(1500), a[1].pullAll(1500)
	v := ulpdu.ViewOf(f[1].b)
	if err := b[0].qp.Place(&v, false); err != nil { // second message, first receive
		t.Fatal(err)
	}
	b[1].push(nil, g...)
	wantCQEs(t, b[1], "1 recv SUCCESS", "2 recv SUCCESS")
	b[0].push(nil, f[0])
	if err := b[0].qp.Deliver(f[1].b, len(f[1].b)); err != nil {
		t.Fatal(err)
	}
	if c := b[0].take(); len(c) != 2 || c[0].ID != 3 || c[1].ID != 0 ||
		c[0].Flags != FromSharedQueue {
		t.Errorf("completions %v", brief(c))
	}
	a[0].send(SendWR{Op: WRSend})
	wantError(t, b[0].push(nil, a[0].pull(1500)), ddp.CauseNoBuffer)
}

// TestSRQWindow: one stream takes a limited number of receives ahead of delivery, so that a peer
// cannot drain the queue of the others (RFC 5042, 6.4.1).
//
//req:rfc5040-8.1.2-8
func TestSRQWindow(t *testing.T) {
	a, b, s := sharers(t, 8, 2)
	for i := range 8 {
		if err := s.PostRecv(&RecvWR{ID: uint64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.PostRecv(&RecvWR{}); !errors.Is(err, ErrFull) {
		t.Errorf("ninth receive: %v", err)
	}
	for range 6 {
		a[0].send(SendWR{Op: WRSend})
	}
	f := a[0].pullAll(1500)
	for i := 1; i < 6; i++ {
		if err := placeAhead(b[0], f[i].b); (err == nil) != (i < 2) {
			t.Errorf("message %d ahead: %v", i, err)
		}
	}
	if s.Len() != 7 {
		t.Errorf("%d receives left", s.Len())
	}
	if _, r := b[0].qp.Outstanding(); r != 1 {
		t.Errorf("%d receives taken", r)
	}
	// What a stream has taken is flushed there; the rest stays for the others.
	b[0].qp.Abort()
	wantCQEs(t, b[0], "0 recv WR_FLUSH_ERR")
	if s.Len() != 7 {
		t.Errorf("%d receives left after the flush", s.Len())
	}
	if err := s.Destroy(); !errors.Is(err, ddp.ErrBusy) {
		t.Errorf("destroyed in use: %v", err)
	}
	b[0].qp.Destroy()
	b[0].qp.Destroy()
	b[1].qp.Destroy()
	if err := s.Destroy(); err != nil || s.Len() != 0 {
		t.Errorf("%v, %d left", err, s.Len())
	}
	if err := b[0].table.FreePD(b[0].pd); err != nil {
		t.Errorf("domain is still used: %v", err)
	}
}
