package xdp_test

import (
	"context"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"xwarp/ddp/rdmap"
	"xwarp/engine/internal/core"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
)

// TestConnFootprint: connected queue pairs occupy at most the memory that Footprint returns for both ends, after each
// slot of their send queues was used with inline data.
func TestConnFootprint(t *testing.T) {
	for _, transport := range []string{"kernel", "xdp"} {
		t.Run(transport, func(t *testing.T) {
			a, b, at := pairWith(t, transport, core.Options{})
			const n = 40
			cfg := verbs.QPConfig{SendDepth: 64, RecvDepth: 1, MaxSGE: 1, MaxInline: 256, IRD: 1,
				ORD: 1}
			most := a.Footprint(&cfg) + b.Footprint(&cfg)
			keep, before := connections(t, a, b, at, n, cfg)
			each := (heapBytes() - before) / n
			runtime.KeepAlive(keep)
			t.Logf("%d bytes are documented for both ends, the heap has %d", most, each)
			if each > most {
				t.Errorf("%d bytes are documented for both ends, the heap has %d", most, each)
			}
		})
	}
}

// connections opens n connections and uses each slot of their send queues twice. before is the heap size without them.
func connections(t *testing.T, a, b *core.Device, at netip.AddrPort, n int, cfg verbs.QPConfig) (
	qps []verbs.QP, before int) {
	t.Helper()
	ea, eb := verbstest.New(t, a, 4096), verbstest.New(t, b, 4096)
	l, err := b.Listen(at, verbs.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	before = heapBytes()
	ca, cb := cfg, cfg
	ca.PD, ca.SendCQ, ca.RecvCQ = ea.PD, ea.CQ, ea.CQ
	cb.PD, cb.SendCQ, cb.RecvCQ = eb.PD, eb.CQ, eb.CQ
	for range n {
		qa, err := a.CreateQP(ca)
		if err != nil {
			t.Fatal(err)
		}
		qb, err := b.CreateQP(cb)
		if err != nil {
			t.Fatal(err)
		}
		accepted := make(chan error, 1)
		go func() {
			r, err := l.Accept(ctx)
			if err == nil {
				err = r.Accept(ctx, qb, nil)
			}
			accepted <- err
		}()
		if err := a.Dial(ctx, l.Addr(), qa, verbs.DialConfig{}); err != nil {
			t.Fatal(err)
		}
		if err := <-accepted; err != nil {
			t.Fatal(err)
		}
		for range 2 {
			for i := range cfg.SendDepth {
				wr := verbs.SendWR{Op: rdmap.WRWrite, Inline: make([]byte, cfg.MaxInline),
					RemoteSTag: eb.MR.STag()}
				if i == cfg.SendDepth-1 {
					wr.Flags = rdmap.Signaled
				}
				if err := qa.PostSend(&wr); err != nil {
					t.Fatal(err)
				}
			}
			ea.Wait()
		}
		qps = append(qps, qa, qb)
	}
	return qps, before
}

func heapBytes() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
