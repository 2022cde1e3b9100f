package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine"
	"xwarp/engine/daemon"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/config"
	"xwarp/engine/verbs"
)

func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

// loadConfig reads a configuration; text is TOML behind the socket's key.
func loadConfig(t testing.TB, text string) (*config.Loaded, string) {
	t.Helper()
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	path := filepath.Join(dir, "xwarp.toml")
	writeFile(t, path, fmt.Sprintf("[daemon]\nsocket = %q\nsocket_mode = \"0666\"\ngrace = "+
		"\"1s\"\n%s", socket, text))
	cfg, err := config.Load(config.Source{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return cfg, socket
}

// kernelDaemon starts a daemon on the kernel's sockets.
func kernelDaemon(t testing.TB, text string) (*daemon.Daemon, string) {
	t.Helper()
	cfg, socket := loadConfig(t, "[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n"+text)
	d, err := daemon.New(cfg, daemon.Options{Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, socket
}

func open(t testing.TB, socket string) *client.Device {
	t.Helper()
	d, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// end is one program with everything that a test needs of it.
type end struct {
	t   testing.TB
	dev *client.Device
	pd  verbs.PD
	cq  verbs.CQ
	qp  verbs.QP
	mem []byte
	mr  verbs.MR
}

func newEnd(t testing.TB, dev *client.Device, size int) *end {
	t.Helper()
	e := &end{t: t, dev: dev}
	var err error
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
		if err == nil && string(r.PrivateData) != "hello" {
			err = fmt.Errorf("private data %q", r.PrivateData)
		}
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
	if got := a.qp.Params().PrivateData; string(got) != "welcome" {
		t.Errorf("private data of the reply: %q", got)
	}
	if a.qp.RemoteAddr() != l.Addr() || b.qp.RemoteAddr() != a.qp.LocalAddr() {
		t.Errorf("addresses: %v to %v, %v to %v", a.qp.LocalAddr(), a.qp.RemoteAddr(),
			b.qp.LocalAddr(), b.qp.RemoteAddr())
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
	if c := a.wait(); c.ID != 1 || c.QP != a.qp {
		t.Fatalf("completion %+v, want the Write's", c)
	}
	a.post(verbs.SendWR{ID: 2, Op: rdmap.WRRead, SGL: []verbs.SGE{a.mr.SGE(half, half)},
		RemoteSTag: b.mr.STag()})
	if c := a.wait(); c.ID != 2 || c.ByteLen != uint32(half) {
		t.Fatalf("completion %+v, want the Read's", c)
	}
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
	// Nothing of b's tells a that the receive is posted; Info returns after the daemon took it.
	if _, err := b.qp.Info(); err != nil {
		t.Fatal(err)
	}
	a.post(verbs.SendWR{ID: 5, Op: rdmap.WRSend, SGL: []verbs.SGE{a.mr.SGE(0, n)}})
	if c := b.wait(); c.ID != 3 || c.ByteLen != uint32(n) || c.QP != b.qp {
		t.Fatalf("receive: %+v", c)
	}
	a.wait()
	if !bytes.Equal(b.mem[half:half+n], a.mem[:n]) {
		t.Fatal("Send: receive buffer differs from source")
	}
}

var loopback = netip.MustParseAddrPort("127.0.0.1:0")

func TestKernel(t *testing.T) {
	_, socket := kernelDaemon(t, "")
	a, b := newEnd(t, open(t, socket), 1<<20), newEnd(t, open(t, socket), 1<<20)
	connect(t, a, b, loopback)
	exercise(t, a, b)
	if err := a.qp.Disconnect(); err != nil {
		t.Fatal(err)
	}
	<-a.qp.Down()
	<-b.qp.Down()
	if err := errors.Join(a.qp.Err(), b.qp.Err()); err != nil {
		t.Errorf("a graceful close is an error: %v", err)
	}
	if err := a.pd.Close(); !errors.Is(err, ddp.ErrBusy) {
		t.Errorf("closing a domain that is in use: %v", err)
	}
	for _, e := range []*end{a, b} {
		if err := errors.Join(e.qp.Close(), e.mr.Close(), e.cq.Close(), e.pd.Close(),
			e.dev.Free(e.mem)); err != nil {
			t.Error(err)
		}
	}
}

func TestRejected(t *testing.T) {
	_, socket := kernelDaemon(t, "")
	a, b := newEnd(t, open(t, socket), 4096), open(t, socket)
	l, err := b.Listen(loopback, 0, verbs.ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	go func() {
		r, err := l.Accept(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		if err := r.Reject([]byte("no")); err != nil {
			t.Error(err)
		}
		if err := r.Reject(nil); !errors.Is(err, verbs.ErrLapsed) {
			t.Errorf("a second answer: %v", err)
		}
	}()
	if err := a.dev.Dial(ctx, l.Addr(), a.qp, verbs.ConnConfig{}); !errors.Is(err,
		verbs.ErrRejected) {
		t.Errorf("Dial: %v", err)
	}
	canceled, cancel := context.WithCancel(ctx)
	time.AfterFunc(time.Millisecond, cancel)
	if _, err := l.Accept(canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("Accept with a context that ends: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := l.Accept(ctx); !errors.Is(err, verbs.ErrListenerClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
	if err := a.qp.PostSend(&verbs.SendWR{}); !errors.Is(err, verbs.ErrNotReady) {
		t.Errorf("PostSend without a connection: %v", err)
	}
}

// TestReceivesComeFirst: what was posted before the connection is there when the peer sends at once.
func TestReceivesComeFirst(t *testing.T) {
	_, socket := kernelDaemon(t, "")
	dev := open(t, socket)
	peer, err := engine.OpenKernel(engine.KernelConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	l, err := dev.Listen(loopback, 0, verbs.ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	pd, _ := peer.AllocPD()
	cq, _ := peer.CreateCQ(16)
	for i := range 50 {
		e := newEnd(t, dev, 4096)
		if err := e.qp.PostRecv(&verbs.RecvWR{SGL: []verbs.SGE{e.mr.SGE(0, 64)}}); err != nil {
			t.Fatal(err)
		}
		qp, err := peer.CreateQP(verbs.QPConfig{PD: pd, SendCQ: cq, RecvCQ: cq})
		if err != nil {
			t.Fatal(err)
		}
		accepted := make(chan error, 1)
		go func() {
			r, err := l.Accept(t.Context())
			if err == nil {
				err = r.Accept(t.Context(), e.qp, nil)
			}
			accepted <- err
		}()
		err = peer.Dial(t.Context(), l.Addr(), qp, verbs.ConnConfig{})
		if err == nil {
			err = qp.PostSend(&verbs.SendWR{Op: verbs.WRSend, Inline: []byte("at once")})
		}
		if err = errors.Join(err, <-accepted); err != nil {
			t.Fatal(err)
		}
		if c := e.wait(); c.Op != verbs.WRRecv || string(e.mem[:c.ByteLen]) != "at once" {
			t.Fatalf("connection %d: %+v", i, c)
		}
		if err := errors.Join(qp.Close(), e.qp.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
