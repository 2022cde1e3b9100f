package client_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"
	"os"
	"testing"
	"time"

	"xwarp/engine/daemon"
	"xwarp/engine/daemon/client"
	"xwarp/engine/verbs"
)

// serve exports its memory to one peer, and prints its content when the peer's message arrives.
func serve(ctx context.Context, dev verbs.Device, l verbs.Listener) error {
	e, err := verbs.NewEndpoint(dev, verbs.EndpointConfig{})
	if err != nil {
		return err
	}
	defer e.Close()
	mr, err := e.Buffer(4096, verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite)
	if err != nil {
		return err
	}
	if err := e.QP.PostRecv(&verbs.RecvWR{SGL: []verbs.SGE{mr.SGE(64, 64)}}); err != nil {
		return err
	}
	if err := e.Accept(ctx, l, mr.Remote().Append(nil)); err != nil { // with the STag
		return err
	}
	c, err := e.Recv(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("the peer wrote %q and says %q\n", mr.Bytes()[:8], mr.Bytes()[64:][:c.ByteLen])
	return nil
}

// Unprivileged programs share the interface of xwarpd. Here one program connects to itself; usually two programs on two
// hosts do this.
func ExampleOpen() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dev, err := client.Open("") // at XWARP_SOCKET, or at client.DefaultPath
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	l, err := dev.Listen(netip.MustParseAddrPort("127.0.0.1:0"), verbs.ListenConfig{})
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- serve(ctx, dev, l) }()

	e, err := verbs.NewEndpoint(dev, verbs.EndpointConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	mr, err := e.Buffer(4096, verbs.LocalWrite) // not from make: the daemon has to map it
	if err != nil {
		log.Fatal(err)
	}
	if err := e.Dial(ctx, l.Addr(), verbs.DialConfig{}); err != nil {
		log.Fatal(err)
	}
	peer, err := e.RemoteMR()
	if err != nil {
		log.Fatal(err)
	}
	copy(mr.Bytes(), "12345678")
	for _, wr := range []verbs.SendWR{
		{Op: verbs.WRWrite, SGL: []verbs.SGE{mr.SGE(0, 8)}},
		{Op: verbs.WRRead, SGL: []verbs.SGE{mr.SGE(8, 8)}},
		{Op: verbs.WRSend, Inline: []byte("done")},
	} {
		wr.RemoteSTag, wr.RemoteTO = peer.STag, peer.Base
		if _, err := e.Do(ctx, &wr); err != nil {
			log.Fatal(err)
		}
	}
	if err := <-served; err != nil {
		log.Fatal(err)
	}
	fmt.Printf("read back %q\n", mr.Bytes()[8:16])
	// Output:
	// the peer wrote "12345678" and says "done"
	// read back "12345678"
}

// TestMain starts the daemon of ExampleOpen.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "xwarp")
	if err != nil {
		log.Fatal(err)
	}
	cfg, socket, err := configIn(dir, "[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n")
	if err != nil {
		log.Fatal(err)
	}
	d, err := daemon.New(cfg, daemon.Options{})
	if err != nil {
		log.Fatal(err)
	}
	os.Setenv(client.SocketVariable, socket)
	status := m.Run()
	d.Close()
	os.RemoveAll(dir)
	os.Exit(status)
}
