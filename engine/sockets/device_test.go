package sockets_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/ddp/rdmap"
	"xwarp/engine/internal/core"
	"xwarp/engine/sockets"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
	"xwarp/mpa/startup"
)

//req:rfc5044-7.1-2
func TestKernelTransfer(t *testing.T) {
	for _, tc := range []struct {
		name         string
		mpa          verbs.MPAConfig
		window, emss int
	}{
		{name: "markers"},
		{name: "no markers", mpa: verbs.MPAConfig{Markers: verbs.MarkersOff}},
		{name: "no CRC", mpa: verbs.MPAConfig{CRC: verbs.CRCOptional}},
		{name: "revision 1", mpa: verbs.MPAConfig{Revision: startup.RevIETF}},
		{name: "window of 1", window: 1}, // an incomplete FPDU is held nevertheless
		{name: "EMSS of 1448", emss: 1448},
		{name: "EMSS of 140", emss: 140},
		{name: "EMSS of 100", emss: 100},
		{name: "EMSS of 36 without markers", emss: 36, mpa: verbs.MPAWith(false, true)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			open := func() *core.Device {
				cfg := sockets.Config{EMSS: tc.emss}
				cfg.MPA, cfg.Window = tc.mpa, tc.window
				cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
				d, err := sockets.Open(cfg)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { d.Close() })
				return d
			}
			const size = 4 << 20
			a, b := verbstest.New(t, open(), size), verbstest.New(t, open(), size)
			verbstest.Connect(t, a, b, netip.MustParseAddrPort("127.0.0.1:0"))
			verbstest.Exercise(t, a, b)
		})
	}
}

// TestLongFPDUs counts the FPDUs of a Write of 1 MiB over the kernel transport: FPDUs of 64 KiB to a device without an
// EMSS, FPDUs of one segment to a device with one.
func TestLongFPDUs(t *testing.T) {
	const size = 1 << 20
	for _, c := range []struct {
		emss  int
		fpdus uint64 // at most, for size bytes
	}{{0, 17}, {1448, 800}} {
		var ends [2]*verbstest.End
		for i, emss := range []int{0, c.emss} {
			d, err := sockets.Open(sockets.Config{EMSS: emss,
				Dial: segments(1448)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.Close() })
			ends[i] = verbstest.New(t, d, size)
		}
		a, b := ends[0], ends[1]
		verbstest.Connect(t, a, b, netip.MustParseAddrPort("127.0.0.1:0"))
		a.Post(verbs.SendWR{Op: verbs.WRWrite, SGL: []verbs.SGE{a.MR.SGE(0, size)},
			RemoteSTag: b.MR.STag(), Flags: verbs.Signaled})
		a.Wait()
		totals, err := a.Dev.(*core.Device).Totals()
		if err != nil {
			t.Fatal(err)
		}
		if n := totals.RDMA.SegmentsOut; n > c.fpdus+8 || n < c.fpdus/2 {
			t.Errorf("EMSS %d: %d segments, want at most %d", c.emss, n, c.fpdus)
		}
	}
}

// segments returns a Config.Dial of sockets with segments of size bytes, regardless of the MTU of the loopback
// interface.
func segments(size int) func(context.Context, netip.AddrPort, netip.AddrPort) (net.Conn, error) {
	return func(ctx context.Context, _, remote netip.AddrPort) (net.Conn, error) {
		d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
			e := c.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, size)
			})
			return errors.Join(e, err)
		}}
		return d.DialContext(ctx, "tcp", remote.String())
	}
}

// TestKernelDialGivesUp cancels Dial while the kernel still connects: there is no iwarp.Conn yet, and the late socket
// must be closed.
func TestKernelDialGivesUp(t *testing.T) {
	asked, late := make(chan struct{}), make(chan net.Conn)
	cfg := sockets.Config{Dial: func(context.Context, netip.AddrPort, netip.AddrPort) (
		net.Conn, error) {
		close(asked)
		return <-late, nil
	}}
	d, err := sockets.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	e := verbstest.New(t, d, 4096)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if err := d.Dial(ctx, netip.MustParseAddrPort("192.0.2.1:1"), e.QP,
		verbs.DialConfig{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Dial: %v", err)
	}
	select {
	case <-e.QP.(*core.QP).Gone():
	default:
		t.Error("the connection is destroyed, but Gone is not closed")
	}
	ours, theirs := net.Pipe()
	late <- theirs
	if _, err := ours.Read(make([]byte, 1)); err == nil {
		t.Error("the late connection was used")
	}
	if err := e.QP.Close(); err != nil {
		t.Error(err)
	}
}

// TestKernelDialTooLate: an attempt that takes too long ends with the caller's cause, even if the dialer notices the
// timeout first.
func TestKernelDialTooLate(t *testing.T) {
	cfg := sockets.Config{Dial: func(ctx context.Context, _, _ netip.AddrPort) (
		net.Conn, error) {
		for end, _ := ctx.Deadline(); time.Now().Before(end); {
		}
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
	}}
	d, err := sockets.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	cause := errors.New("nobody there")
	for range 100 {
		e := verbstest.New(t, d, 4096)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, cause)
		err := d.Dial(ctx, netip.MustParseAddrPort("192.0.2.1:1"), e.QP, verbs.DialConfig{})
		cancel()
		if !errors.Is(err, cause) {
			t.Fatalf("Dial: %v", err)
		}
	}
}

// TestPostAfterClose posts on a queue pair whose device is closed: it must return an error, since no completion would
// ever arrive.
func TestPostAfterClose(t *testing.T) {
	open := func() *core.Device {
		d, err := sockets.Open(sockets.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	a, b := verbstest.New(t, open(), 1<<12), verbstest.New(t, open(), 1<<12)
	verbstest.Connect(t, a, b, netip.MustParseAddrPort("127.0.0.1:0"))
	if err := a.Dev.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.QP.PostSend(&verbs.SendWR{Op: rdmap.WRSend}); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("PostSend: %v, want ErrClosed", err)
	}
	if err := a.QP.PostRecv(&verbs.RecvWR{}); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("PostRecv: %v, want ErrClosed", err)
	}
}

// TestRegionAfterClose: the STag and the SGEs of a closed region stay readable, for callers that list regions during a
// close.
func TestRegionAfterClose(t *testing.T) {
	d, err := sockets.Open(sockets.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	pd, err := d.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	mr, err := pd.RegMR(make([]byte, 4096), verbs.LocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	tag, piece := mr.STag(), mr.SGE(16, 8)
	if err := mr.Close(); err != nil {
		t.Fatal(err)
	}
	if mr.STag() != tag || mr.SGE(16, 8) != piece {
		t.Errorf("STag %v and piece %v, before %v and %v", mr.STag(), mr.SGE(16, 8), tag, piece)
	}
}

// oneConn is a listener with one connection.
type oneConn struct {
	conns chan net.Conn
	stop  chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.stop:
		return nil, net.ErrClosed
	}
}
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }
func (l *oneConn) Close() error   { close(l.stop); return nil }

// internet is a local socket with addresses that look remote.
type internet struct{ *net.UnixConn }

func (internet) LocalAddr() net.Addr  { return &net.TCPAddr{} }
func (internet) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// TestKernelStopsReading: data that arrives before the consumer has responded stays in the kernel, whose window stops
// the peer. The device reads at most 16 KiB, the MPA Request included.
func TestKernelStopsReading(t *testing.T) {
	var i startup.Initiator
	if err := i.Init(startup.Config{}); err != nil {
		t.Fatal(err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, peer := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "peer")
	defer ours.Close()
	defer peer.Close()
	sock, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	const many = 64 << 10 // fits the socket's buffer
	first := i.Output()
	if _, err := peer.Write(first); err != nil {
		t.Fatal(err)
	}
	l := &oneConn{make(chan net.Conn, 1), make(chan struct{})}
	l.conns <- internet{sock.(*net.UnixConn)}
	d, err := sockets.Open(sockets.Config{Listen: func(netip.AddrPort) (net.Listener,
		error) {
		return l, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ln, err := d.Listen(netip.AddrPort{}, verbs.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if _, err := ln.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := peer.Write(make([]byte, many)); err != nil {
		t.Fatal(err)
	}
	// Each AllocPD takes a turn of the worker's loop, which could read.
	for range 1 << 12 {
		pd, err := d.AllocPD()
		if err != nil {
			t.Fatal(err)
		}
		pd.Close()
	}
	left, err := unix.IoctlGetInt(fds[0], unix.SIOCINQ)
	if err != nil {
		t.Fatal(err)
	}
	if read := len(first) + many - left; read < len(first) || read > 16<<10 {
		t.Errorf("%d bytes read, of a Request of %d and unclaimed data", read, len(first))
	}
}

// TestDialTriesPort: Dial uses a TryPort that is free, and another port if a socket has the TryPort.
func TestDialTriesPort(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	for _, l := range []net.Listener{taken, free} {
		port := netip.MustParseAddrPort(l.Addr().String()).Port()
		open := func() *core.Device {
			d, err := sockets.Open(sockets.Config{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.Close() })
			return d
		}
		peer := open()
		ln, err := peer.Listen(netip.MustParseAddrPort("127.0.0.1:0"), verbs.ListenConfig{})
		if err != nil {
			t.Fatal(err)
		}
		a, b := verbstest.New(t, open(), 4096), verbstest.New(t, peer, 4096)
		accepted := make(chan error, 1)
		go func() {
			r, err := ln.Accept(t.Context())
			if err == nil {
				err = r.Accept(t.Context(), b.QP, nil)
			}
			accepted <- err
		}()
		err = a.Dev.Dial(t.Context(), ln.Addr(), a.QP, verbs.DialConfig{
			Local: netip.MustParseAddrPort("127.0.0.1:0"), TryPort: port})
		if err != nil {
			t.Fatal(err)
		}
		if err := <-accepted; err != nil {
			t.Fatal(err)
		}
		if got := a.QP.LocalAddr().Port(); (got == port) != (l == free) {
			t.Errorf("dialled from port %d, with %d to be tried", got, port)
		}
	}
}
