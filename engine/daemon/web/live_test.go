package web_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"xwarp/engine/daemon"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/config"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
)

// program opens the device of the daemon, and creates a queue pair.
func program(t *testing.T, socket, name string) (*client.Device, verbs.QP) {
	t.Helper()
	dev, err := client.OpenConfig(client.Config{Path: socket, Program: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev, verbstest.New(t, dev, 4096).QP
}

// TestLive shows a live daemon in the browser while a connection opens and closes.
func TestLive(t *testing.T) {
	dir, err := os.MkdirTemp("", "xwarp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	socket, file := filepath.Join(dir, "s"), filepath.Join(dir, "xwarp.toml")
	text := fmt.Sprintf("[daemon]\nsocket = %q\ngrace = \"1s\"\n[[interface]]\nname = "+
		"\"lo\"\ntransport = \"kernel\"\n[http]\nlisten = %q\nstatus_page = true\n", socket,
		free.Addr())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Source{Path: file})
	if err != nil {
		t.Fatal(err)
	}
	d, err := daemon.New(cfg, daemon.Options{Version: "v9"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	b := open(t)
	b.run(t, chromedp.Navigate("http://"+free.Addr().String()+"/"))
	b.until(t,
		`document.documentElement.dataset.ready === "yes" && $("conns").innerText.includes("No connections.")`)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dialer, qa := program(t, socket, "ping")
	answerer, qb := program(t, socket, "pong")
	l, err := answerer.Listen(netip.MustParseAddrPort("127.0.0.1:0"), verbs.ListenConfig{})
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
	if err := dialer.Dial(ctx, l.Addr(), qa, verbs.DialConfig{}); err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	b.until(t,
		fmt.Sprintf(
			`$("t-conns").innerText === "2" && $("conns").innerText.includes(%q) && $("events").innerText.includes("RDMA_CM_EVENT_ESTABLISHED")`, l.Addr()))
	dialer.Close()
	answerer.Close()
	b.until(t, `$("t-conns").innerText === "0" && $("events").innerText.includes("RDMA_CM_EVENT_DISCONNECTED")`)
	b.clean(t, "http://"+free.Addr().String())
	if v := eval[string](t, b, `$("version").innerText`); !strings.Contains(v, "v9") {
		t.Errorf("version %q", v)
	}
}
