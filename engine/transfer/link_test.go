package transfer

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine/sockets"
	"xwarp/engine/verbs"
)

// mutedDevice makes connections through a relay, which forwards everything from a client, but only the first MiB to it.
// sock is the relay's latest socket to the server.
func mutedDevice(t *testing.T, sock **net.TCPConn) verbs.Device {
	t.Helper()
	relay, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { relay.Close() })
	dev, err := sockets.Open(sockets.Config{Dial: func(ctx context.Context, _,
		remote netip.AddrPort) (net.Conn, error) {
		server, err := (&net.Dialer{}).DialContext(ctx, "tcp", remote.String())
		if err != nil {
			return nil, err
		}
		client, err := (&net.Dialer{}).DialContext(ctx, "tcp", relay.Addr().String())
		if err != nil {
			return nil, err
		}
		near, err := relay.Accept()
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { near.Close() })
		*sock = server.(*net.TCPConn)
		go io.Copy(server, near)
		go io.CopyN(near, server, 1<<20)
		return client, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

// A client that sends Done while its RDMA Read Responses are in flight, and then disappears, leaves no state. The queue
// pair, whose responses hold the memory, must be destroyed before the memory.
func TestDoneBeforeItsReads(t *testing.T) {
	dev, err := sockets.Open(sockets.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	lis, err := dev.Listen(netip.MustParseAddrPort("127.0.0.1:0"), verbs.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	served := make(chan [2]error, 1)
	go func() {
		freed, err := exposeUntilDone(t.Context(), dev, lis)
		served <- [2]error{freed, err}
	}()
	var sock *net.TCPConn
	client := mutedDevice(t, &sock)
	defer client.Close()
	l := readUnread(t, client, lis.Addr())
	errs := <-served
	sock.SetLinger(0)
	sock.Close() // RST
	if !errors.Is(errs[0], errUnread) {
		t.Errorf("free: %v, want %q", errs[0], errUnread)
	}
	if err := errors.Join(errs[1], l.end.Close()); err != nil {
		t.Errorf("something was not given back: %v", err)
	}
}

// exposeUntilDone accepts a client, shows it memory until it sends Done, and frees everything.
func exposeUntilDone(ctx context.Context, dev verbs.Device, lis verbs.Listener) (freed, err error) {
	l, err := newLink(dev, time.Hour)
	if err != nil {
		return nil, err
	}
	req, err := lis.Accept(ctx)
	if err == nil {
		err = req.Accept(ctx, l.end.QP, nil)
	}
	if err != nil {
		return nil, err
	}
	l.startLoops()
	mr, err := l.end.Buffer(unread, verbs.RemoteRead)
	if err == nil {
		err = l.postMessage(&Message{Type: TypeRegion, Length: unread, STag: mr.STag()})
	}
	if err == nil {
		_, err = l.expect(ctx, TypeDone)
	}
	if err == nil {
		freed = l.free(ctx, mr)
	}
	l.shut()
	return freed, errors.Join(err, l.end.Close())
}

// unread is the number of bytes of memory of which a client reads a part: more than its sockets take.
const unread = 32 << 20

// readUnread starts to read memory, and sends Done when part of it has arrived.
func readUnread(t *testing.T, dev verbs.Device, at netip.AddrPort) *link {
	t.Helper()
	l, err := newLink(dev, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := dev.Dial(ctx, at, l.end.QP, verbs.DialConfig{}); err != nil {
		t.Fatal(err)
	}
	l.startLoops()
	m, err := l.expect(ctx, TypeRegion)
	if err != nil {
		t.Fatal(err)
	}
	sink, err := l.end.Buffer(unread, verbs.LocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	read := verbs.SendWR{Op: rdmap.WRRead, SGL: []verbs.SGE{sink.SGE(0, unread)},
		RemoteSTag: m.STag}
	if err := l.end.QP.PostSend(&read); err != nil {
		t.Fatal(err)
	}
	for i, err := l.end.QP.Info(); i.Counters.PayloadIn < 100_000; i, err = l.end.QP.Info() {
		if err != nil || ctx.Err() != nil {
			t.Fatal(i.Counters, err)
		}
		time.Sleep(time.Millisecond)
	}
	if err := l.postMessage(&Message{Type: TypeDone}); err != nil {
		t.Fatal(err)
	}
	return l
}

// Closing the end of a link reports that its protection domain still has a memory region.
func TestFreeTells(t *testing.T) {
	dev, err := sockets.Open(sockets.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	l, err := newLink(dev, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.end.PD.RegMR(make([]byte, 1), verbs.LocalWrite); err != nil { // keeps the domain busy
		t.Fatal(err)
	}
	if err := l.end.Close(); !errors.Is(err, ddp.ErrBusy) {
		t.Errorf("free: %v, want an error: the domain still has a region", err)
	}
}

// A link that cannot be created returns the reason, instead of ending the process.
func TestNoLinkOnClosedDevice(t *testing.T) {
	dev, err := sockets.Open(sockets.Config{})
	if err != nil {
		t.Fatal(err)
	}
	dev.Close()
	if l, err := newLink(dev, time.Hour); !errors.Is(err, verbs.ErrClosed) || l != nil {
		t.Errorf("%v, %v", l, err)
	}
}
