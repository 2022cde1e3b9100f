package rdmap

import (
	"testing"

	"xwarp/ddp"
	"xwarp/mpa/ulpdu"
)

// tally is a Completer that keeps nothing.
type tally struct{ n, bad int }

func (c *tally) Complete(w *Completion) {
	c.n++
	if w.Status != Success {
		c.bad++
	}
}

// wire moves ULPDUs between two queue pairs through one buffer, as the data path does.
type wire struct {
	buf  []byte
	view ulpdu.View
}

func (w *wire) move(t testing.TB, from, to *QP) int {
	frames := 0
	for {
		ref, n := from.NextULPDU(1456)
		if n == 0 {
			return frames
		}
		frames++
		b := w.buf[:n]
		head, body := from.ReadULPDU(ref, b)
		copy(b[head:], body)
		w.view.Reset()
		w.view.Append(b[:10]) // the header is cut, as by a marker
		w.view.Append(b[10:])
		if err := to.Place(&w.view, true); err != nil {
			t.Fatal(err)
		}
		if err := to.Deliver(b[:min(n, 18)], n); err != nil {
			t.Fatal(err)
		}
		from.ReleaseULPDU(ref)
	}
}

type bench struct {
	a, b         *host
	ca, cb       *tally
	local, there *ddp.MR
	wire         wire
}

func newBench(t testing.TB) *bench {
	x := &bench{ca: &tally{}, cb: &tally{}, wire: wire{buf: make([]byte, 2048)}}
	p := Params{Version: ddp.IETF, IRD: 4, ORD: 4}
	x.a = newHost(t, 1).open(func(c *Config) { c.Completer = x.ca }, p)
	x.b = newHost(t, 2).open(func(c *Config) { c.Completer = x.cb }, p)
	x.local = x.a.region(1<<16, ddp.Attr{Access: ddp.LocalWrite})
	x.there = x.b.region(1<<16, ddp.Attr{Access: ddp.LocalWrite | ddp.RemoteRead | ddp.RemoteWrite |
		ddp.RemoteAtomic})
	return x
}

// TestNoAllocations: Writes, Reads, Sends, immediate data and fetch-adds allocate nothing from posting to completion.
func TestNoAllocations(t *testing.T) {
	x := newBench(t)
	gather := []SGE{sge(x.local, 0, 1000), sge(x.local, 5000, 3000), sge(x.local, 9, 1)}
	recv := RecvWR{SGL: []SGE{sge(x.there, 0, 100), sge(x.there, 200, 5000)}}
	for _, c := range []struct {
		name string
		wr   SendWR
		recv bool
	}{
		{"write", SendWR{Op: WRWrite, SGL: gather, RemoteSTag: x.there.STag()}, false},
		{"inline write", SendWR{Op: WRWrite, Inline: make([]byte, 64), RemoteSTag: x.there.STag()},
			false},
		{"read", SendWR{Op: WRRead, SGL: gather[:1], RemoteSTag: x.there.STag()}, false},
		{"send", SendWR{Op: WRSend, SGL: gather}, true},
		{"immediate", SendWR{Op: WRImm}, true},
		{"fetch-add", SendWR{Op: WRFetchAdd, SGL: []SGE{sge(x.local, 0, 8)},
			RemoteSTag: x.there.STag()}, false},
	} {
		c.wr.Flags = Signaled
		run := func() {
			if c.recv {
				if err := x.b.qp.PostRecv(&recv); err != nil {
					t.Fatal(err)
				}
			}
			if err := x.a.qp.PostSend(&c.wr); err != nil {
				t.Fatal(err)
			}
			for x.wire.move(t, x.a.qp, x.b.qp)+x.wire.move(t, x.b.qp, x.a.qp) > 0 {
			}
		}
		before := x.ca.n
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
		if x.ca.n-before != 101 || x.ca.bad+x.cb.bad != 0 {
			t.Errorf("%s: %d completions, %d bad", c.name, x.ca.n-before, x.ca.bad+x.cb.bad)
		}
	}
}

// TestNoAllocationsAhead: refusing to place a segment ahead of its turn allocates nothing.
func TestNoAllocationsAhead(t *testing.T) {
	h := victim(t)
	v := ulpdu.ViewOf(unhex(t, untagged(3, 0, 9, 0, 0)))
	if n := testing.AllocsPerRun(100, func() {
		if h.qp.Place(&v, false) == nil {
			t.Fatal("placed")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPlaceWrite(b *testing.B) {
	x := newBench(b)
	h := ddp.Tagged{Control: ddp.MakeControl(true, true, ddp.IETF), ULP: 0x40, STag: x.there.STag()}
	f := append(ddp.AppendTagged(nil, h), make([]byte, 1440)...)
	v := ulpdu.ViewOf(f)
	b.SetBytes(1440)
	b.ReportAllocs()
	for b.Loop() {
		if x.b.qp.Place(&v, true) != nil || x.b.qp.Deliver(f[:18], len(f)) != nil {
			b.Fatal("refused")
		}
	}
}

func BenchmarkWrite64K(b *testing.B) {
	x := newBench(b)
	wr := SendWR{Op: WRWrite, SGL: []SGE{sge(x.local, 0, 1<<16)}, RemoteSTag: x.there.STag()}
	b.SetBytes(1 << 16)
	b.ReportAllocs()
	for b.Loop() {
		if err := x.a.qp.PostSend(&wr); err != nil {
			b.Fatal(err)
		}
		x.wire.move(b, x.a.qp, x.b.qp)
	}
}
