package transfer

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"
)

// gate forwards the first 4096 bytes of one client to a server, and the rest once open is closed. Data from the server
// always passes.
func gate(t *testing.T, server netip.AddrPort, open <-chan struct{}) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		in, err := l.Accept()
		if err != nil {
			return
		}
		defer in.Close()
		out, err := net.Dial("tcp", server.String())
		if err != nil {
			t.Error(err)
			return
		}
		go io.Copy(in, out)
		io.CopyN(out, in, 4096) // start-up and request
		<-open
		io.Copy(out, in)
		out.(*net.TCPConn).CloseWrite()
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// servePatiently runs a server with an idle time of an hour, for a minute at most.
func servePatiently(t *testing.T, cfg ServerConfig) (ctx context.Context, at netip.AddrPort) {
	t.Helper()
	cfg.Idle = time.Hour
	s, err := Listen(cfg, netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	t.Cleanup(func() { stop(); <-served })
	return ctx, s.Addr()
}

// While a store stalls on a slow path, Beats become due repeatedly, and queue behind its data. Sent all at once, they
// would exceed the server's receives, and end the connection.
func TestBeatsBehindData(t *testing.T) {
	ctx, dev, at, dir := treeServer(t, nil)
	open := make(chan struct{})
	c, err := Dial(ctx, dev, gate(t, at, open), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	content := pattern(BufferLen)
	store := make(chan error, 1)
	go func() {
		_, err := c.StoreFrom(ctx, "stored", 0o600, bytes.NewReader(content))
		store <- err
	}()
	const waiting = 2 + 2*steps // the requests before, and the data with its messages
	for c.posted.Load() < waiting {
		select {
		case err := <-store:
			t.Fatal("the store ended despite a closed gate:", err)
		case <-time.After(time.Millisecond):
		}
	}
	for range receives {
		i, err := c.end.QP.Info()
		if err != nil {
			t.Fatal(err)
		}
		c.beat(i.Counters.MessagesOut)
	}
	if n := c.posted.Load(); n != waiting+1 {
		t.Errorf("%d Beats are queued behind the data, want 1", n-waiting)
	}
	close(open)
	if err := <-store; err != nil {
		t.Fatal(err)
	}
	if !holds(dir+"/stored", content) {
		t.Error("other bytes were stored")
	}
	// The data has left, so the next Beat is sent.
	before := c.posted.Load()
	i, err := c.end.QP.Info()
	if err != nil {
		t.Fatal(err)
	}
	if c.beat(i.Counters.MessagesOut); c.posted.Load() != before+1 {
		t.Error("no Beat after the transfer")
	}
}
