package verbs_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"

	"xwarp/engine/sockets"
	"xwarp/engine/verbs"
)

// A client writes into memory that xwarpd on another host exports ([[export]]), and reads it back.
func Example() {
	server := netip.MustParseAddrPort("192.0.2.2:7174")
	if err := hello(context.Background(), server); err != nil {
		log.Fatal(err)
	}
}

func hello(ctx context.Context, server netip.AddrPort) error {
	dev, err := sockets.Open(sockets.Config{}) // xdp.Open and client.Open return the same interface
	if err != nil {
		return err
	}
	defer dev.Close()
	e, err := verbs.NewEndpoint(dev, verbs.EndpointConfig{})
	if err != nil {
		return err
	}
	defer e.Close()
	mr, err := e.Buffer(4096, verbs.LocalWrite)
	if err != nil {
		return err
	}
	if err := e.Dial(ctx, server, verbs.DialConfig{}); err != nil {
		return err
	}
	peer, err := e.RemoteMR() // the server's reply names its memory
	if err != nil {
		return err
	}
	n := copy(mr.Bytes(), "hello over RDMA")
	for _, wr := range []verbs.SendWR{
		{Op: verbs.WRWrite, SGL: []verbs.SGE{mr.SGE(0, n)}},
		{Op: verbs.WRRead, SGL: []verbs.SGE{mr.SGE(2048, n)}},
	} {
		wr.RemoteSTag, wr.RemoteTO = peer.STag, peer.Base
		if _, err := e.Do(ctx, &wr); err != nil {
			return err
		}
	}
	fmt.Printf("%s\n", mr.Bytes()[2048:][:n])
	return e.Disconnect(ctx)
}
