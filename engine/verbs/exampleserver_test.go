package verbs_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"net/netip"

	"xwarp/engine/sockets"
	"xwarp/engine/verbs"
)

// The server exports 64 bytes of its memory to one peer, receives one message, and returns when the peer is gone.
func serveOne(ctx context.Context, dev verbs.Device, l verbs.Listener) error {
	e, err := verbs.NewEndpoint(dev, verbs.EndpointConfig{})
	if err != nil {
		return err
	}
	defer e.Close()
	mr, err := e.Buffer(64, verbs.LocalWrite|verbs.RemoteRights)
	if err != nil {
		return err
	}
	// Before the connection, because the peer may send at once.
	if err := e.QP.PostRecv(&verbs.RecvWR{SGL: []verbs.SGE{mr.SGE(32, 32)}}); err != nil {
		return err
	}
	if err := e.Accept(ctx, l, mr.Remote().Append(nil)); err != nil { // the STag is private data
		return err
	}
	c, err := e.Recv(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("the server got %q\n", mr.Bytes()[32:][:c.ByteLen])
	<-e.QP.Done()
	return e.QP.Err()
}

// A complete server and client. With Open of package xdp, or of package client, the rest is the same.
func Example_sockets() {
	ctx := context.Background()
	server, err := sockets.Open(sockets.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	l, err := server.Listen(netip.MustParseAddrPort("127.0.0.1:0"), verbs.ListenConfig{})
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- serveOne(ctx, server, l) }()

	dev, err := sockets.Open(sockets.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	if err := useServer(ctx, dev, l.Addr()); err != nil {
		log.Fatal(err)
	}
	fmt.Println("the server ended:", <-served)
	// Output:
	// read back "12345678"
	// the counter was 41
	// the server got "done"
	// the server ended: <nil>
}

func useServer(ctx context.Context, dev verbs.Device, at netip.AddrPort) error {
	e, err := verbs.NewEndpoint(dev, verbs.EndpointConfig{})
	if err != nil {
		return err
	}
	defer e.Close()
	mr, err := e.Buffer(4096, verbs.LocalWrite)
	if err != nil {
		return err
	}
	if err := e.Dial(ctx, at, verbs.DialConfig{}); err != nil {
		return err
	}
	peer, err := e.RemoteMR()
	if err != nil {
		return err
	}
	mem := mr.Bytes()
	copy(mem, "12345678")
	binary.NativeEndian.PutUint64(mem[8:], 41) // atomics use the byte order of the target's host
	for _, wr := range []verbs.SendWR{
		{Op: verbs.WRWrite, SGL: []verbs.SGE{mr.SGE(0, 16)}, RemoteTO: peer.Base},
		{Op: verbs.WRRead, SGL: []verbs.SGE{mr.SGE(16, 8)}, RemoteTO: peer.Base},
		{Op: verbs.WRFetchAdd, SGL: []verbs.SGE{mr.SGE(24, 8)}, RemoteTO: peer.Base + 8, Data: 1},
	} {
		wr.RemoteSTag = peer.STag
		if _, err := e.Do(ctx, &wr); err != nil {
			return err
		}
	}
	fmt.Printf("read back %q\n", mem[16:24])
	fmt.Println("the counter was", binary.NativeEndian.Uint64(mem[24:]))
	if _, err := e.Do(ctx, &verbs.SendWR{Op: verbs.WRSend, Inline: []byte("done")}); err != nil {
		return err
	}
	return e.Disconnect(ctx)
}
