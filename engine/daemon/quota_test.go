package daemon_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
	"xwarp/engine/verbs"
)

// TestDaemonMemory: a program creates queue pairs and a listener that use much memory of the daemon.
// limits.daemon_memory limits the bytes, not the number of objects. The end of the session releases all.
//
//req:rfc5042-7.2-1
func TestDaemonMemory(t *testing.T) {
	d, socket := kernel(t, "[limits]\ndaemon_memory = \"16MiB\"\n")
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, _ := dev.CreateCQ(256)
	base := verbs.QPConfig{PD: pd, SendCQ: cq, RecvCQ: cq, SendDepth: 1, RecvDepth: 1, MaxSGE: 1,
		MaxInline: 1, IRD: 1, ORD: 1}
	most := func(name string, want int, change func(*verbs.QPConfig)) {
		t.Helper()
		cfg := base
		change(&cfg)
		var have []verbs.QP
		for {
			qp, err := dev.CreateQP(cfg)
			if err != nil {
				quotaError(t, name, "limits.daemon_memory", err)
				break
			}
			have = append(have, qp)
		}
		if len(have) > want {
			t.Errorf("%s: %d queue pairs in 16 MiB, at most %d should go in", name, len(have), want)
		}
		for _, qp := range have {
			if err := qp.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	most("small", 41, func(*verbs.QPConfig) {})
	most("reads", 6, func(c *verbs.QPConfig) { c.IRD, c.ORD = 4096, 4096 })
	most("inline", 1, func(c *verbs.QPConfig) { c.SendDepth, c.MaxInline = 1024, 4096 })
	most("pieces", 4, func(c *verbs.QPConfig) { c.RecvDepth, c.MaxSGE = 4096, 16 })
	_, err = dev.Listen(netip.MustParseAddrPort("127.0.0.1:0"),
		verbs.ListenConfig{Backlog: 1000})
	quotaError(t, "a long backlog", "of at most 16.0 MiB daemon_memory and needs ", err)
	dev.Close()
	if _, ok := eventually(func() bool {
		return empty(d)
	}); !ok {
		t.Errorf("left over: %+v", d.Snapshot().Users)
	}
}

func quotaError(t *testing.T, name, what string, err error) {
	t.Helper()
	var e *control.Error
	if !errors.As(err, &e) || e.Code != control.CodeQuota || !strings.Contains(e.Text, what) {
		t.Errorf("%s: %v, want an error about %s", name, err, what)
	}
}

// TestConnects exceeds a user's limit of concurrent connection attempts, to a peer that never responds. The third
// attempt must fail, and canceled ones must no longer count.
func TestConnects(t *testing.T) {
	d, socket := kernel(t, "[limits]\nconnects = 2\n")
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	at := netip.MustParseAddrPort(silent.Addr().String())
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, _ := dev.CreateCQ(16)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 3)
	for range 3 {
		qp, err := dev.CreateQP(verbs.QPConfig{PD: pd, SendCQ: cq, RecvCQ: cq, SendDepth: 1,
			RecvDepth: 1})
		if err != nil {
			t.Fatal(err)
		}
		go func() { ended <- dev.Dial(ctx, at, qp, verbs.DialConfig{}) }()
	}
	quotaError(t, "a third connection", "limits.connects", <-ended)
	cancel()
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("given up: %v", err)
		}
	}
	if _, ok := eventually(func() bool {
		return used(d, uint32(os.Getuid()), "connects") == 0
	}); !ok {
		t.Errorf("left over: %+v", d.Snapshot().Users)
	}
}

// TestPendingArgs sends a request that waits, with needlessly long arguments, which the daemon would have to keep. It
// must be refused.
func TestPendingArgs(t *testing.T) {
	_, socket := kernel(t, "")
	r := dialRaw(t, socket)
	control.CloseAll(r.hello())
	args := `{"handle":1,"qp":1,"private_data":"` + strings.Repeat("A", 8<<10) + `"}`
	if reply, _ := r.call(control.OpAccept, args); reply.Error == nil ||
		reply.Error.Code != control.CodeInvalid {
		t.Errorf("8 KiB of arguments: %v", reply.Error)
	}
}
