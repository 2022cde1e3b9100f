package verbs_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/netip"
	"os"
	"testing"
	"time"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
	"xwarp/tcp"
)

// On AF_XDP: as root, or with the capabilities that xdp.Open names, on an Ethernet interface. The kernel keeps all
// other traffic. The peer is a server like that of Example_sockets.
func Example_xdp() {
	dev, err := xdp.Open(xdp.Config{
		Interface: "eth0",
		// a peer that disappears ends the connection
		TCP: xdp.TCPConfig{Config: tcp.Config{UserTimeout: 30 * time.Second}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := useServer(ctx, dev, netip.MustParseAddrPort("192.0.2.2:7174")); err != nil {
		log.Fatal(err)
	}
}

// TestExampleXDP runs Example_xdp between two hosts, and checks its output and that of its server: the first three
// lines of the output of Example_sockets.
func TestExampleXDP(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	n, err := topo.New(topo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	var server *xdp.Device
	if err := n.B.Do(func() (err error) {
		server, err = xdp.Open(xdp.Config{Interface: n.B.Link.Name})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	l, err := server.Listen(netip.AddrPortFrom(n.B.Addr4.Addr(), 7174), verbs.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	stdout := os.Stdout
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	os.Stdout = w
	go func() { served <- serveOne(t.Context(), server, l) }()
	err = n.A.Do(func() error { Example_xdp(); return nil })
	err = errors.Join(err, <-served, w.Close())
	os.Stdout = stdout
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	const want = "read back \"12345678\"\nthe counter was 41\nthe server got \"done\"\n"
	if string(got) != want || err != nil {
		t.Errorf("the example prints\n%s%v, want\n%s", got, err, want)
	}
}
