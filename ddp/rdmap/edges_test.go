package rdmap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"xwarp/ddp"
)

// TestCounters checks that each segment is counted once where it leaves and once where it arrives, and so is each
// message, except that the receiver does not count Writes and Responses as messages.
func TestCounters(t *testing.T) {
	a, b := twins(t, nil, Params{})
	far := b.region(400, ddp.Attr{Access: ddp.LocalWrite | ddp.RemoteRead | ddp.RemoteWrite |
		ddp.RemoteAtomic})
	near := a.region(400, ddp.Attr{Access: ddp.LocalWrite})
	b.recv(1, sge(far, 0, 300))
	for _, wr := range []SendWR{
		{Op: WRWrite, SGL: []SGE{sge(near, 0, 300)}}, // two segments
		{Op: WRSend, SGL: []SGE{sge(near, 0, 1)}},
		{Op: WRRead, SGL: []SGE{sge(near, 0, 70)}},
		{Op: WRFetchAdd, SGL: []SGE{sge(near, 0, 8)}, Data: 1},
	} {
		wr.RemoteSTag, wr.RemoteTO = far.STag(), far.Base()
		a.send(wr)
	}
	settle(a, b, 200)
	a.qp.Fail(ddp.CauseBounds.Errorf("the end"))
	settle(a, b, 200)
	for _, c := range []struct {
		of   *host
		want Counters
	}{
		{a, Counters{SegmentsOut: 6, SegmentsIn: 2, PayloadOut: 301, PayloadIn: 70, MessagesOut: 4,
			TerminatesOut: 1}},
		{b, Counters{SegmentsOut: 2, SegmentsIn: 6, PayloadOut: 70, PayloadIn: 301, SendsIn: 1,
			ReadsIn: 1, AtomicsIn: 1, ResponsesOut: 2, TerminatesIn: 1}},
	} {
		if d := cmp.Diff(c.want, c.of.qp.Counters); d != "" {
			t.Error(d)
		}
	}
}

// TestMSNsWrap: in each queue, message sequence number 0 follows 2^32-1 (RFC 5041, 4.3), and the rings find their
// entries across the wrap.
func TestMSNsWrap(t *testing.T) {
	a, b := twins(t, nil, Params{})
	const first = 0xfffffffd
	for _, q := range []*QP{a.qp, b.qp} {
		q.sq.sendMSN, q.sq.readMSN, q.sq.atomicMSN, q.rq.next = first, first, first, first
		q.in.acked, q.in.next, q.in.tail, q.in.atomicMSN = first-1, first-1, first-1, first
		q.rq.head, q.rq.tail = first, first
	}
	word := b.region(8, ddp.Attr{Access: ddp.RemoteAtomic | ddp.RemoteRead})
	binary.NativeEndian.PutUint64(b.held(word), 0)
	near := a.region(16, ddp.Attr{Access: ddp.LocalWrite})
	inbox := b.region(16, ddp.Attr{Access: ddp.LocalWrite})
	for i := range uint64(12) {
		b.recv(i, sge(inbox, 0, 16))
		binary.NativeEndian.PutUint64(a.held(near), 1000+i)
		for _, wr := range []SendWR{
			{Op: WRSend, SGL: []SGE{sge(near, 0, 8)}},
			{Op: WRFetchAdd, SGL: []SGE{sge(near, 0, 8)}, Data: 1},
			{Op: WRRead, SGL: []SGE{sge(near, 8, 8)}},
		} {
			wr.ID, wr.Flags, wr.RemoteSTag, wr.RemoteTO = i, Signaled, word.STag(), word.Base()
			a.send(wr)
			settle(a, b, 200)
		}
		got := binary.NativeEndian.Uint64(b.held(inbox))
		old := binary.NativeEndian.Uint64(a.held(near))
		now := binary.NativeEndian.Uint64(a.held(near)[8:])
		sent, received := a.take(), b.take()
		if got != 1000+i || old != i || now != i+1 || len(sent) != 3 || len(received) != 1 ||
			a.qp.Err() != nil || b.qp.Err() != nil {
			t.Fatalf("round %d: %d was sent, %d fetched, then %d read; %v, %v, errors %v, %v", i,
				got,
				old, now, sent, received, a.qp.Err(), b.qp.Err())
		}
	}
}

// TestConfigBounds: each number of a configuration has a bound of its own at both ends.
func TestConfigBounds(t *testing.T) {
	h := newHost(t, 1)
	for name, c := range map[string]struct {
		of          func(c *Config) *int
		least, most int
	}{
		"SendDepth": {func(c *Config) *int { return &c.SendDepth }, 1, MaxDepth},
		"RecvDepth": {func(c *Config) *int { return &c.RecvDepth }, 1, MaxDepth},
		"MaxSGE":    {func(c *Config) *int { return &c.MaxSGE }, 1, MaxSGE},
		"MaxInline": {func(c *Config) *int { return &c.MaxInline }, 0, MaxInline},
		"MaxIRD":    {func(c *Config) *int { return &c.MaxIRD }, 0, MaxIRD},
		"MaxORD":    {func(c *Config) *int { return &c.MaxORD }, 0, MaxORD},
	} {
		for n, want := range map[int]error{c.least - 1: ErrConfig, c.least: nil, c.most: nil,
			c.most + 1: ErrConfig} {
			cfg := defaultConfig(h)
			*c.of(&cfg) = n
			if err := cfg.Check(); !errors.Is(err, want) {
				t.Errorf("%s %d: %v, want %v", name, n, err, want)
			}
		}
	}
}

// TestIRDExceeded: a Read Request beyond the IRD finds no buffer (RFC 5040, 6.1; RFC 5041, 7.1).
func TestIRDExceeded(t *testing.T) {
	for ird := range 4 {
		h := newHost(t, 1).open(nil, Params{Version: ddp.IETF, IRD: ird, ORD: 1})
		m := h.region(64, ddp.Attr{Access: ddp.RemoteRead})
		for msn := 1; msn <= ird+1; msn++ {
			err := h.inject(unhex(t, untagged(1, 1, uint64(msn), 0, 0)+
				fmt.Sprintf("00000001 0000000000000000 %08x %08x %016x", 8, m.STag(), m.Base())))
			none := err != nil && *err == *ddp.CauseNoBuffer.Errorf("%s", err.Detail)
			if none != (msn > ird) {
				t.Errorf("Read Request %d with an IRD of %d: %v", msn, ird, err)
			}
		}
	}
}

// TestSendQueueWithOneByte: a work request counts as frozen from its first byte on. releaseAcked releases all kept
// requests that are acknowledged, up to the last one.
func TestSendQueueWithOneByte(t *testing.T) {
	var s sendQueue
	s.init(4, 1, 0)
	s.tail = 2
	for sent, want := range []uint64{0, 1} {
		if s.at(0).sent = uint32(sent); s.firstUnfrozen() != want {
			t.Errorf("with %d bytes frozen the first of which TCP has nothing is %d", sent,
				s.firstUnfrozen())
		}
	}
	s.head, s.next, s.kept = 2, 2, 2
	for i := range uint64(2) {
		if s.releaseAcked(); s.kept != 2-i {
			t.Errorf("%d are kept, of which %d are acknowledged", s.kept, i)
		}
		s.at(i).acked = true
	}
	if s.releaseAcked(); s.kept != 0 {
		t.Errorf("%d are kept and acknowledged", s.kept)
	}
}

// TestReleasedList: a released list no longer refers to memory or regions.
func TestReleasedList(t *testing.T) {
	h := newHost(t, 1).open(nil, Params{})
	m := h.region(64, ddp.Attr{Access: ddp.LocalWrite})
	var s sgl
	makeSGLs(1, 3, func(int) *sgl { return &s })
	list := []SGE{sge(m, 0, 1), sge(m, 1, 0), sge(m, 1, 2)}
	if f := s.resolve(h.table, h.pd, 1, list, 0); f != ddp.OK || len(s.pieces) != 2 ||
		s.total != 3 ||
		m.Holds() != 2 {
		t.Fatalf("%v: %d pieces of %d bytes, %d uses", f, len(s.pieces), s.total, m.Holds())
	}
	if s.release(); len(s.pieces)+len(s.regions) != 0 || m.Holds() != 0 {
		t.Errorf("%d pieces, %d regions and %d uses after the release", len(s.pieces),
			len(s.regions), m.Holds())
	}
}

// TestNothingIsFrozenBelowMinULPDU: NextULPDU freezes nothing for a limit below the least that MPA gives (RFC 5044,
// 4.5). The next call with enough room returns the message.
func TestNothingIsFrozenBelowMinULPDU(t *testing.T) {
	h := newHost(t, 1).open(nil, Params{Version: ddp.IETF})
	m := h.region(10, ddp.Attr{})
	h.send(SendWR{ID: 1, Op: WRSend, SGL: []SGE{sge(m, 0, 10)}})
	if ref, n := h.qp.NextULPDU(MinULPDU - 1); n != 0 {
		t.Fatalf("%v, %d bytes into %d", ref, n, MinULPDU-1)
	}
	if f := h.pull(MinULPDU); f == nil || len(f.b) != ddp.UntaggedLen+10 {
		t.Fatalf("%+v into %d bytes", f, MinULPDU)
	}
}
