package transfer

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine/sockets"
	"xwarp/engine/verbs"
)

// mutedDevice makes connections through a relay, which forwards everything from a client, but only the first bytes to
// it. sock is the relay's latest socket to the server.
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
	const size = 32 << 20
	dev, err := sockets.Open(sockets.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	region, err := NewRegion(size)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var events []Event
	srv, err := Listen(ServerConfig{Device: dev, Region: region, Event: func(e Event) {
		mu.Lock()
		events = append(events, e)
		mu.Unlock()
	}}, netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx) }()
	var sock *net.TCPConn
	client := mutedDevice(t, &sock)
	defer client.Close()
	l := readUnread(t, client, srv.Addr(), size)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		mu.Lock()
		n := len(events)
		mu.Unlock()
		if n > 0 || time.Now().After(deadline) {
			break
		}
	}
	sock.SetLinger(0)
	sock.Close() // RST
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if len(events) != 1 || !errors.Is(events[0].Err, errUnread) {
		t.Errorf("events %v, want one with %q", events, errUnread)
	}
	for _, e := range events {
		if errors.Is(e.Err, ddp.ErrBusy) {
			t.Errorf("something was not given back: %v", e.Err)
		}
	}
	if n := region.now.holders; n != 1 {
		t.Errorf("the content has %d holders, want the region alone", n)
	}
	if err := errors.Join(l.end.Close(), region.Close()); err != nil {
		t.Error(err)
	}
}

// readUnread requests the region, starts to read it, and sends Done when part of it has arrived.
func readUnread(t *testing.T, dev verbs.Device, at netip.AddrPort, size int) *link {
	t.Helper()
	l, err := newLink(dev, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	sink, err := l.expose(make([]byte, size), verbs.LocalWrite|verbs.RemoteWrite, func() error {
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := dev.Dial(ctx, at, l.end.QP, verbs.DialConfig{}); err != nil {
		t.Fatal(err)
	}
	l.startLoops()
	if err := l.postMessage(&Message{Type: TypeGet, Length: uint64(size)}); err != nil {
		t.Fatal(err)
	}
	m, err := l.expect(ctx, TypeRegion)
	if err != nil {
		t.Fatal(err)
	}
	read := verbs.SendWR{Op: rdmap.WRRead, SGL: []verbs.SGE{sink.mr.SGE(0, size)},
		RemoteSTag: m.STag, RemoteTO: m.TO}
	if err := l.end.QP.PostSend(&read); err != nil {
		t.Fatal(err)
	}
	for i, err := l.end.QP.Info(); i.Counters.PayloadIn < 100_000; i, err = l.end.QP.Info() {
		if err != nil || ctx.Err() != nil {
			t.Fatal(i.Counters, err)
		}
		time.Sleep(time.Millisecond)
	}
	if err = errors.Join(err, l.postMessage(&Message{Type: TypeDone, Length: m.Length,
		Sum: m.Sum})); err != nil {
		t.Fatal(err)
	}
	return l
}

// A failed deregistration is reported, and the memory stays mapped.
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
	if _, err := l.end.PD.RegMR(make([]byte, 1), verbs.LocalWrite); err != nil { // not in use
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
