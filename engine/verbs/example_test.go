package verbs_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"xwarp/engine/sockets"
	"xwarp/engine/verbs"
)

// pair connects two endpoints over loopback, calls use with the first one, and closes everything. mr is the region of
// the first endpoint, peer describes the 64 bytes of the second one that the first can access.
func pair(use func(ctx context.Context, e *verbs.Endpoint, mr verbs.MR,
	peer verbs.RemoteMR) error) (
	err error) {
	ctx := context.Background()
	dev, err := sockets.Open(sockets.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	l, err := dev.Listen(netip.MustParseAddrPort("127.0.0.1:0"), verbs.ListenConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	served := make(chan error, 1)
	go func() { served <- serve(ctx, dev, l) }()

	e, err := verbs.NewEndpoint(dev, verbs.EndpointConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	mr, err := e.Buffer(64, verbs.LocalWrite)
	if err != nil {
		return err
	}
	if err := e.Dial(ctx, l.Addr(), verbs.DialConfig{}); err != nil {
		return err
	}
	peer, err := e.RemoteMR()
	if err != nil {
		return err
	}
	return errors.Join(use(ctx, e, mr, peer), e.Disconnect(ctx), <-served)
}

// serve exports 64 bytes to one peer, and returns when the peer has closed the connection.
func serve(ctx context.Context, dev verbs.Device, l verbs.Listener) error {
	e, err := verbs.NewEndpoint(dev, verbs.EndpointConfig{})
	if err != nil {
		return err
	}
	mr, err := e.Buffer(64, verbs.LocalWrite|verbs.RemoteRights)
	if err == nil {
		copy(mr.Bytes(), "what the server has")
		err = e.Accept(ctx, l, mr.Remote().Append(nil))
	}
	if err == nil {
		<-e.QP.Done()
		err = e.QP.Err()
	}
	return errors.Join(err, e.Close())
}

// An RDMA Read fetches the peer's bytes. The peer's program is not involved.
func ExampleEndpoint_Do() {
	err := pair(func(ctx context.Context, e *verbs.Endpoint, mr verbs.MR,
		peer verbs.RemoteMR) error {
		c, err := e.Do(ctx, &verbs.SendWR{Op: verbs.WRRead, SGL: []verbs.SGE{mr.SGE(0, 19)},
			RemoteSTag: peer.STag, RemoteTO: peer.Base})
		fmt.Printf("%d bytes: %q\n", c.ByteLen, mr.Bytes()[:19])
		return err
	})
	fmt.Println(err)
	// Output:
	// 19 bytes: "what the server has"
	// <nil>
}

// Atomics change eight bytes of the peer, in the byte order of the peer's host, and return the old value.
func ExampleEndpoint_Do_atomics() {
	err := pair(func(ctx context.Context, e *verbs.Endpoint, mr verbs.MR,
		peer verbs.RemoteMR) error {
		const counter = 32     // offset in the peer's region, a multiple of 8
		const all = ^uint64(0) // the compared bits, and the changed bits
		for _, wr := range []verbs.SendWR{
			{Op: verbs.WRFetchAdd, Data: 41},
			{Op: verbs.WRFetchAdd, Data: 1},
			{Op: verbs.WRCmpSwap, Compare: 42, CompareMask: all, Data: 7, Mask: all},
			{Op: verbs.WRCmpSwap, Compare: 42, CompareMask: all, Data: 8, Mask: all}, // changes nothing
		} {
			wr.SGL, wr.RemoteSTag = []verbs.SGE{mr.SGE(0, 8)}, peer.STag
			wr.RemoteTO = peer.Base + counter
			if _, err := e.Do(ctx, &wr); err != nil {
				return err
			}
			fmt.Println(wr.Op, "found", binary.NativeEndian.Uint64(mr.Bytes()))
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// fetch-add found 0
	// fetch-add found 41
	// cmp-swap found 42
	// cmp-swap found 7
	// <nil>
}

// A listener returns requests. Each is accepted with a queue pair, or rejected; both replies carry private data.
func ExampleConnRequest() {
	ctx := context.Background()
	dev, err := sockets.Open(sockets.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dev.Close()
	l, err := dev.Listen(netip.MustParseAddrPort("127.0.0.1:0"), verbs.ListenConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	go func() {
		r, err := l.Accept(ctx)
		if err == nil {
			err = r.Reject(fmt.Appendf(nil, "not %q", r.PrivateData))
		}
		if err != nil {
			fmt.Println(err)
		}
	}()
	e, err := verbs.NewEndpoint(dev, verbs.EndpointConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close()
	err = e.Dial(ctx, l.Addr(), verbs.DialConfig{PrivateData: []byte("version 9")})
	if no := (*verbs.Rejection)(nil); errors.As(err, &no) {
		fmt.Printf("rejected: %s\n", no.PrivateData)
	}
	// Output: rejected: not "version 9"
}
