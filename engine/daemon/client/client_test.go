package client_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"

	"xwarp/ddp"
	"xwarp/engine/daemon"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/config"
	"xwarp/engine/sockets"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
)

func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

// configIn writes a configuration into a directory, with the socket there too, and loads it. text is TOML that follows
// the socket's keys.
func configIn(dir, text string) (cfg *config.Loaded, socket string, err error) {
	socket = filepath.Join(dir, "s")
	path := filepath.Join(dir, "xwarp.toml")
	text = fmt.Sprintf("[daemon]\nsocket = %q\nsocket_mode = \"0666\"\ngrace = \"1s\"\n%s", socket,
		text)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return nil, "", err
	}
	cfg, err = config.Load(config.Source{Path: path})
	return cfg, socket, err
}

func loadConfig(t testing.TB, text string) (*config.Loaded, string) {
	t.Helper()
	cfg, socket, err := configIn(t.TempDir(), text)
	if err != nil {
		t.Fatal(err)
	}
	return cfg, socket
}

// kernelDaemon starts a daemon with a device on kernel sockets.
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

var loopback = netip.MustParseAddrPort("127.0.0.1:0")

func TestKernel(t *testing.T) {
	_, socket := kernelDaemon(t, "")
	a, b := verbstest.New(t, open(t, socket), 1<<20), verbstest.New(t, open(t, socket), 1<<20)
	verbstest.Connect(t, a, b, loopback)
	verbstest.Exercise(t, a, b)
	if err := a.QP.Disconnect(); err != nil {
		t.Fatal(err)
	}
	<-a.QP.Done()
	<-b.QP.Done()
	if err := errors.Join(a.QP.Err(), b.QP.Err()); err != nil {
		t.Errorf("a graceful close is an error: %v", err)
	}
	if err := a.PD.Close(); !errors.Is(err, ddp.ErrBusy) {
		t.Errorf("closing a domain that is in use: %v", err)
	}
	for _, e := range []*verbstest.End{a, b} {
		if err := errors.Join(e.QP.Close(), e.MR.Close(), e.CQ.Close(), e.PD.Close(),
			e.Dev.Free(e.Mem)); err != nil {
			t.Error(err)
		}
	}
}

// TestReceivesComeFirst: receives posted before the connection are available when the peer sends immediately.
func TestReceivesComeFirst(t *testing.T) {
	_, socket := kernelDaemon(t, "")
	dev := open(t, socket)
	peer, err := sockets.Open(sockets.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	l, err := dev.Listen(loopback, verbs.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	pd, _ := peer.AllocPD()
	cq, _ := peer.CreateCQ(16)
	for i := range 50 {
		e := verbstest.New(t, dev, 4096)
		if err := e.QP.PostRecv(&verbs.RecvWR{SGL: []verbs.SGE{e.MR.SGE(0, 64)}}); err != nil {
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
				err = r.Accept(t.Context(), e.QP, nil)
			}
			accepted <- err
		}()
		err = peer.Dial(t.Context(), l.Addr(), qp, verbs.DialConfig{})
		if err == nil {
			err = qp.PostSend(&verbs.SendWR{Op: verbs.WRSend, Inline: []byte("at once")})
		}
		if err = errors.Join(err, <-accepted); err != nil {
			t.Fatal(err)
		}
		if c := e.Wait(); c.Op != verbs.WRRecv || string(e.Mem[:c.ByteLen]) != "at once" {
			t.Fatalf("connection %d: %+v", i, c)
		}
		if err := errors.Join(qp.Close(), e.QP.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestErrors: the client returns the errors that package verbs documents.
func TestErrors(t *testing.T) {
	_, socket := kernelDaemon(t, "")
	verbstest.Errors(t, open(t, socket), open(t, socket), loopback.Addr())
}

// TestConcurrentClose: Close returns after the object is destroyed, also in a second concurrent call.
func TestConcurrentClose(t *testing.T) {
	_, socket := kernelDaemon(t, "")
	dev := open(t, socket)
	for range 50 {
		pd, err := dev.AllocPD()
		if err != nil {
			t.Fatal(err)
		}
		cq, err := dev.CreateCQ(16)
		if err != nil {
			t.Fatal(err)
		}
		mem, err := dev.Alloc(4096)
		if err != nil {
			t.Fatal(err)
		}
		mr, err := pd.RegMR(mem, verbs.LocalWrite)
		if err != nil {
			t.Fatal(err)
		}
		qp, err := dev.CreateQP(verbs.QPConfig{PD: pd, SendCQ: cq, RecvCQ: cq})
		if err != nil {
			t.Fatal(err)
		}
		for _, users := range [][]func() error{{qp.Close, mr.Close}, {cq.Close, pd.Close}} {
			var group errgroup.Group
			for range 2 {
				for _, f := range users {
					group.Go(f)
				}
			}
			if err := group.Wait(); err != nil {
				t.Fatal(err)
			}
		}
		if err := dev.Free(mem); err != nil {
			t.Fatal(err)
		}
	}
}
