package rdmap

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"xwarp/ddp"
	"xwarp/mpa/ulpdu"
)

// host is one end: a table, a domain, a queue pair and its completions.
type host struct {
	t     testing.TB
	table *ddp.Table
	pd    *ddp.PD
	qp    *QP
	cqes  []Completion
	onCQE func(*Completion)
}

func (h *host) Complete(c *Completion) {
	h.cqes = append(h.cqes, *c)
	if h.onCQE != nil {
		h.onCQE(c)
	}
}

// take returns the completions since the last call.
func (h *host) take() []Completion {
	c := h.cqes
	h.cqes = nil
	return c
}

func newHost(t testing.TB, seed uint64) *host {
	h := &host{t: t, table: ddp.NewTable(rand.New(rand.NewPCG(seed, 1)))}
	var err error
	if h.pd, err = h.table.AllocPD(); err != nil {
		t.Fatal(err)
	}
	return h
}

func defaultConfig(h *host) Config {
	return Config{Table: h.table, PD: h.pd, Stream: 1, SendDepth: 64, RecvDepth: 64, MaxSGE: 16,
		MaxInline: 256, MaxIRD: 8, MaxORD: 8, Completer: h}
}

// open gives h a queue pair in full operation.
func (h *host) open(change func(*Config), p Params) *host {
	h.t.Helper()
	cfg := defaultConfig(h)
	if change != nil {
		change(&cfg)
	}
	h.qp = new(QP)
	if err := h.qp.Init(cfg); err != nil {
		h.t.Fatal(err)
	}
	if err := h.qp.Start(p); err != nil {
		h.t.Fatal(err)
	}
	return h
}

// region registers n bytes, filled with a pattern.
func (h *host) region(n int, a ddp.Attr) *ddp.MR {
	h.t.Helper()
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + n)
	}
	return h.register(b, a)
}

func (h *host) register(b []byte, a ddp.Attr) *ddp.MR {
	h.t.Helper()
	m, err := h.table.Register(h.pd, b, a)
	if err != nil {
		h.t.Fatal(err)
	}
	return m
}

// held returns the contents of a region, by a local look-up.
func (h *host) held(m *ddp.MR) []byte {
	h.t.Helper()
	_, b, f := h.table.Find(h.pd, h.qp.cfg.Stream, m.STag(), m.Base(), m.Len(), 0)
	if f != ddp.OK {
		h.t.Fatalf("%v: %v", m, f)
	}
	return b
}

func sge(m *ddp.MR, off, n int) SGE {
	return SGE{STag: m.STag(), TO: m.Base() + ddp.TO(off), Len: uint32(n)}
}

func (h *host) send(wr SendWR) {
	h.t.Helper()
	if err := h.qp.PostSend(&wr); err != nil {
		h.t.Fatalf("PostSend %v: %v", wr.Op, err)
	}
}

func (h *host) recv(id uint64, sgl ...SGE) {
	h.t.Helper()
	if err := h.qp.PostRecv(&RecvWR{ID: id, SGL: sgl}); err != nil {
		h.t.Fatalf("PostRecv: %v", err)
	}
}

// frame is a ULPDU under way.
type frame struct {
	ref    ulpdu.Ref
	b      []byte
	placed bool
}

// pull takes the next ULPDU of h, at most limit bytes, read in one piece.
func (h *host) pull(limit int) *frame {
	ref, n := h.qp.NextULPDU(limit)
	if n == 0 {
		return nil
	}
	if n > limit {
		h.t.Fatalf("ULPDU of %d bytes where %d were allowed", n, limit)
	}
	f := &frame{ref: ref, b: make([]byte, n)}
	h.read(f)
	return f
}

// read writes the ULPDU f to f.b, as MPA does. It returns the number of bytes that ReadULPDU wrote itself, that is, all
// but those that it returned as a slice of the source memory.
func (h *host) read(f *frame) (head int) {
	h.t.Helper()
	return readULPDU(h.t, h.qp, f.ref, f.b)
}

// readULPDU writes a ULPDU of q to b. It returns what read returns.
func readULPDU(t testing.TB, q *QP, ref ulpdu.Ref, b []byte) (head int) {
	t.Helper()
	head, body := q.ReadULPDU(ref, b)
	if n := copy(b[head:], body); head != len(b) && head%2 != 0 || n != len(b)-head {
		t.Fatalf("ReadULPDU of %d bytes gives %d and %d", len(b), head, n)
	}
	return head
}

// pullAll takes all ULPDUs that h has.
func (h *host) pullAll(limit int) []*frame {
	var all []*frame
	for f := h.pull(limit); f != nil; f = h.pull(limit) {
		all = append(all, f)
	}
	return all
}

// push gives ULPDUs to h in order and acknowledges them to from. It stops at an error, which it passes to h's Fail and
// returns.
func (h *host) push(from *host, frames ...*frame) *ulpdu.Error {
	for _, f := range frames {
		v := ulpdu.ViewOf(f.b)
		err := h.qp.Place(&v, true)
		if err == nil {
			err = h.qp.Deliver(f.b[:min(len(f.b), 18)], len(f.b))
		}
		if err != nil {
			h.qp.Fail(err)
			return err
		}
		if from != nil {
			from.qp.ReleaseULPDU(f.ref)
		}
	}
	return nil
}

// inject gives h one ULPDU of bytes that the test made.
func (h *host) inject(b []byte) *ulpdu.Error { return h.push(nil, &frame{b: b}) }

// settle moves ULPDUs both ways until none are left.
func settle(a, b *host, limit int) {
	a.t.Helper()
	for round := 0; ; round++ {
		x, y := a.pullAll(limit), b.pullAll(limit)
		if len(x)+len(y) == 0 {
			return
		}
		if round == 100000 {
			a.t.Fatal("no end of ULPDUs")
		}
		_ = b.push(a, x...)
		_ = a.push(b, y...)
	}
}

// twins returns two connected hosts in full operation.
func twins(t testing.TB, change func(*Config), p Params) (a, b *host) {
	if p.Version == ddp.RDMAC && p.IRD == 0 {
		p = Params{Version: ddp.IETF, IRD: 4, ORD: 4}
	}
	return newHost(t, 1).open(change, p), newHost(t, 2).open(change, p)
}

// lane carries the ULPDUs of one direction: placed in any order, delivered in order,
// acknowledged later.
type lane struct {
	from, to  *host
	rng       *rand.Rand
	limit     int
	window    int
	flying    []*frame // not delivered
	delivered []*frame // not acknowledged
}

// step does one random thing; it reports whether there was anything to do.
func (l *lane) step() bool {
	switch l.rng.IntN(4) {
	case 0, 1:
		if len(l.flying) < l.window {
			if f := l.from.pull(max(MinULPDU, l.limit-l.rng.IntN(64))); f != nil {
				l.flying = append(l.flying, f)
				return true
			}
		}
	case 2:
		if len(l.delivered) > 0 && l.rng.IntN(2) == 0 {
			l.release()
			return true
		}
	}
	if len(l.flying) == 0 {
		if len(l.delivered) > 0 {
			l.release()
			return true
		}
		if f := l.from.pull(max(MinULPDU, l.limit-l.rng.IntN(64))); f != nil {
			l.flying = append(l.flying, f)
			return true
		}
		return false
	}
	if i := l.rng.IntN(len(l.flying)); i > 0 && !l.flying[i].placed {
		l.flying[i].placed = l.place(l.flying[i], false) == nil
		return true
	}
	f := l.flying[0]
	if f.placed && l.to.qp.Silent(f.b[:min(len(f.b), 18)], len(f.b)) {
		l.flying, l.delivered = l.flying[1:], append(l.delivered, f)
		return true
	}
	if !f.placed {
		if err := l.place(f, true); err != nil {
			l.to.t.Fatalf("in order: %v", err)
		}
	}
	if err := l.to.qp.Deliver(f.b[:min(len(f.b), 18)], len(f.b)); err != nil {
		l.to.t.Fatalf("deliver: %v", err)
	}
	l.flying, l.delivered = l.flying[1:], append(l.delivered, f)
	return true
}

func (l *lane) release() {
	f := l.delivered[0]
	l.delivered = l.delivered[1:]
	l.from.qp.ReleaseULPDU(f.ref)
}

// place places f in random pieces. What the sender would retransmit must be what it sent.
func (l *lane) place(f *frame, inOrder bool) *ulpdu.Error {
	if l.rng.IntN(8) == 0 {
		again := make([]byte, len(f.b))
		readULPDU(l.from.t, l.from.qp, f.ref, again)
		if !bytes.Equal(again, f.b) {
			l.from.t.Fatalf("retransmission differs:\n%x\n%x", f.b, again)
		}
	}
	v := cut(l.rng, f.b)
	return l.to.qp.Place(&v, inOrder)
}

// cut returns b as a view of up to four pieces.
func cut(rng *rand.Rand, b []byte) ulpdu.View {
	var p [][]byte
	for i := 0; i < 3 && len(b) > 0; i++ {
		n := rng.IntN(len(b) + 1)
		p, b = append(p, b[:n]), b[n:]
	}
	return ulpdu.ViewOf(append(p, b)...)
}

// placeAhead places b in pieces as if something before it were missing.
func placeAhead(h *host, b []byte) error {
	v := cut(rand.New(rand.NewPCG(1, uint64(len(b)))), b)
	if err := h.qp.Place(&v, false); err != nil {
		return err
	}
	return nil
}
