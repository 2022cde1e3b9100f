package engine_test

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine"
	"xwarp/engine/verbs"
)

// end is one host with everything that a test needs of it.
type end struct {
	t   testing.TB
	dev *engine.Device
	pd  verbs.PD
	cq  verbs.CQ
	qp  verbs.QP
	mem []byte
	mr  verbs.MR
}

func newEnd(t testing.TB, dev *engine.Device, size int) *end {
	t.Helper()
	e := &end{t: t, dev: dev}
	var err error
	// Not of Go's heap: what a peer does to registered memory is ordered with nothing that the race detector
	// sees. It stays mapped, for the device may outlive its ends.
	if e.mem, err = dev.Alloc(size); err != nil {
		t.Fatal(err)
	}
	if e.pd, err = dev.AllocPD(); err != nil {
		t.Fatal(err)
	}
	if e.cq, err = dev.CreateCQ(1024); err != nil {
		t.Fatal(err)
	}
	if e.mr, err = e.pd.RegMR(e.mem,
		verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite); err != nil {
		t.Fatal(err)
	}
	if e.qp, err = dev.CreateQP(verbs.QPConfig{PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq}); err != nil {
		t.Fatal(err)
	}
	return e
}

// wait returns the next completion, which must be a success.
func (e *end) wait() verbs.Completion {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var c [1]verbs.Completion
	if _, err := e.cq.Wait(ctx, c[:]); err != nil {
		i, _ := e.qp.Info()
		e.t.Fatalf("completion: %v; queue pair: %v, %+v", err, e.qp.Err(), i)
	}
	if c[0].Status != rdmap.Success {
		e.t.Fatalf("completion %d: %v (queue pair: %v)", c[0].ID, c[0].Status, e.qp.Err())
	}
	return c[0]
}

func (e *end) post(wr verbs.SendWR) {
	e.t.Helper()
	wr.Flags |= rdmap.Signaled
	if err := e.qp.PostSend(&wr); err != nil {
		e.t.Fatal(err)
	}
}

// connect joins two ends.
func connect(t testing.TB, a, b *end, at netip.AddrPort) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	l, err := b.dev.Listen(at, 0, verbs.ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		r, err := l.Accept(ctx)
		if err == nil {
			err = r.Accept(ctx, b.qp, []byte("welcome"))
		}
		accepted <- err
	}()
	if err := a.dev.Dial(ctx, l.Addr(), a.qp,
		verbs.ConnConfig{PrivateData: []byte("hello")}); err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
}

// exercise moves data by every verb and checks it.
func exercise(t testing.TB, a, b *end) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	half := len(a.mem) / 2
	for i := range a.mem[:half] {
		a.mem[i] = byte(rnd.Uint32())
	}
	a.post(verbs.SendWR{ID: 1, Op: rdmap.WRWrite, SGL: []verbs.SGE{a.mr.SGE(0, half)},
		RemoteSTag: b.mr.STag()})
	if c := a.wait(); c.ID != 1 {
		t.Fatalf("completion of %d, want the Write", c.ID)
	}
	a.post(verbs.SendWR{ID: 2, Op: rdmap.WRRead, SGL: []verbs.SGE{a.mr.SGE(half, half)},
		RemoteSTag: b.mr.STag()})
	if c := a.wait(); c.ID != 2 {
		t.Fatalf("completion of %d, want the Read", c.ID)
	}
	// The Write's completion says that its memory is free; the Read behind it, that it was placed (RFC 5040, 5.5).
	if !bytes.Equal(b.mem[:half], a.mem[:half]) {
		t.Fatal("RDMA Write: target differs from source")
	}
	if !bytes.Equal(a.mem[half:], b.mem[:half]) {
		t.Fatal("RDMA Read: sink differs from source")
	}
	n := min(half, 100_000)
	if err := b.qp.PostRecv(&verbs.RecvWR{ID: 3,
		SGL: []verbs.SGE{b.mr.SGE(half, n)}}); err != nil {
		t.Fatal(err)
	}
	// One round trip, so that the receive is posted before the Send is there.
	a.post(verbs.SendWR{ID: 4, Op: rdmap.WRRead, SGL: []verbs.SGE{a.mr.SGE(half, 8)},
		RemoteSTag: b.mr.STag()})
	a.wait()
	a.post(verbs.SendWR{ID: 5, Op: rdmap.WRSend, SGL: []verbs.SGE{a.mr.SGE(0, n)}})
	if c := b.wait(); c.ID != 3 || c.ByteLen != uint32(n) {
		t.Fatalf("receive: %+v", c)
	}
	a.wait()
	if !bytes.Equal(b.mem[half:half+n], a.mem[:n]) {
		t.Fatal("Send: receive buffer differs from source")
	}
}

func xdpPair(t testing.TB, o topo.Options, edit func(*engine.XDPConfig)) (a, b *engine.Device,
	net *topo.Net) {
	t.Helper()
	needs.XSK(t)
	needs.NetNS(t)
	net, err := topo.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { net.Close() })
	open := func(h *topo.Host) *engine.Device {
		cfg := engine.XDPConfig{Interface: h.Link.Name}
		cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
		if edit != nil {
			edit(&cfg)
		}
		var d *engine.Device
		if err := h.Do(func() (err error) {
			d, err = engine.OpenXDP(cfg)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	return open(net.A), open(net.B), net
}

//req:rfc5044-7.1-2
func TestXDPTransfer(t *testing.T) {
	for _, tc := range []struct {
		name string
		mtu  int
		v6   bool
		edit func(*engine.XDPConfig)
	}{
		{name: "1500"},
		{name: "9000", mtu: 9000},
		{name: "ipv6", v6: true},
		{name: "no markers", edit: func(c *engine.XDPConfig) { c.MPA.NoMarkers = true }},
		{name: "EMSS of 140", edit: func(c *engine.XDPConfig) { c.TCP.MSS = 152 }},
		{name: "EMSS of 76", edit: func(c *engine.XDPConfig) {
			c.TCP.MSS, c.MPA.NoMarkers = 88, true
		}},
		{name: "EMSS of 36", edit: func(c *engine.XDPConfig) { c.TCP.MSS = 48 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			da, db, net := xdpPair(t, topo.Options{MTU: tc.mtu}, tc.edit)
			const size = 4 << 20
			a, b := newEnd(t, da, size), newEnd(t, db, size)
			at := net.B.Addr4.Addr()
			if tc.v6 {
				at = net.B.Addr6.Addr()
			}
			connect(t, a, b, netip.AddrPortFrom(at, 7174))
			exercise(t, a, b)
		})
	}
}

func ddpTO(n int) ddp.TO { return ddp.TO(n) }
