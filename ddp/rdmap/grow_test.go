package rdmap

import (
	"bytes"
	"runtime"
	"slices"
	"testing"

	"xwarp/ddp"
	"xwarp/mpa/ulpdu"
)

// TestManyReads has more Reads outstanding than their tables have room for at first, with requests that come in reverse
// order, in a second lap of the rings. Until there are many Reads, a queue pair with the largest IRD and ORD has tables
// as small as others.
func TestManyReads(t *testing.T) {
	const n = 500
	a, b := twins(t, func(c *Config) {
		c.SendDepth, c.MaxIRD, c.MaxORD = n, MaxIRD, MaxORD
	}, Params{Version: ddp.IETF, IRD: MaxIRD, ORD: MaxORD})
	if len(a.qp.out.ring) != firstReads || len(b.qp.in.ring) != firstReads {
		t.Errorf("tables of %d and %d from the start", len(a.qp.out.ring), len(b.qp.in.ring))
	}
	sink := a.region(n, ddp.Attr{Access: ddp.LocalWrite})
	src := b.region(n, ddp.Attr{Access: ddp.RemoteRead})
	for lap := range 3 {
		clear(a.held(sink))
		for i := range n {
			a.send(SendWR{ID: uint64(i), Op: WRRead, Flags: Signaled, SGL: []SGE{sge(sink, i, 1)},
				RemoteSTag: src.STag(), RemoteTO: src.Base() + ddp.TO(i)})
		}
		requests := a.pullAll(1500)
		for _, f := range slices.Backward(requests) {
			v := ulpdu.ViewOf(f.b)
			if err := b.qp.Place(&v, f == requests[0]); err != nil {
				t.Fatal(err)
			}
		}
		for _, f := range requests {
			if err := b.qp.Deliver(f.b[:18], len(f.b)); err != nil {
				t.Fatal(err)
			}
			a.qp.ReleaseULPDU(f.ref)
		}
		settle(a, b, 1500)
		if got := a.take(); len(got) != n || slices.ContainsFunc(got, func(c Completion) bool {
			return c.Status != Success
		}) {
			t.Fatalf("lap %d: %d completions: %v", lap, len(got), got)
		}
		if !bytes.Equal(a.held(sink), b.held(src)) {
			t.Fatalf("lap %d: what was read is not what is there", lap)
		}
	}
}

// TestFootprint compares the promised size of a queue pair with its heap use once everything was in use.
func TestFootprint(t *testing.T) {
	for _, c := range []Config{
		{SendDepth: 128, RecvDepth: 128, MaxSGE: 4, MaxInline: 64, MaxIRD: 16, MaxORD: 16},
		{SendDepth: 4097, RecvDepth: 1, MaxSGE: 16, MaxInline: 4096, MaxIRD: 1, MaxORD: 1},
		{SendDepth: 1, RecvDepth: 4097, MaxSGE: 16, MaxIRD: 4096, MaxORD: 4096},
	} {
		const n = 16
		h := newHost(t, 1)
		c.Table, c.PD, c.Stream, c.Completer = h.table, h.pd, 1, h
		before := heap()
		var qps [n]*QP
		for i := range qps {
			q := new(QP)
			if err := q.Init(c); err != nil {
				t.Fatal(err)
			}
			for i := 0; i < len(q.sq.ring); i += inlineStep {
				q.sq.allocInline(uint64(i))
			}
			for len(q.in.ring) < q.in.maxSize {
				q.in.slotFor(uint64(len(q.in.ring)))
			}
			for range c.MaxORD {
				q.out.push(outboundRead{})
			}
			qps[i] = q
		}
		each, most := (heap()-before)/n, c.Footprint()
		runtime.KeepAlive(&qps)
		if each > most*11/10 || each < most*8/10 {
			t.Errorf("%+v: %d bytes are promised, the heap has %d", c, most, each)
		}
	}
}

// TestSRQFootprint compares the promised size of a shared receive queue, which allocates all at once, with its heap
// use.
func TestSRQFootprint(t *testing.T) {
	const n = 16
	h := newHost(t, 1)
	c := SRQConfig{Table: h.table, PD: h.pd, Depth: 4096, MaxSGE: 2}
	before := heap()
	var queues [n]*SRQ
	for i := range queues {
		queues[i], _ = NewSRQ(c)
	}
	each, most := (heap()-before)/n, c.Footprint()
	runtime.KeepAlive(&queues)
	if each > most*102/100 || each < most*9/10 {
		t.Errorf("%d bytes are promised, the heap has %d", most, each)
	}
}

// heap returns the bytes of live objects.
func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
