package xdp_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"xwarp/bench/topo"
	"xwarp/ddp/rdmap"
	"xwarp/engine/internal/core"
	"xwarp/engine/sockets"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
	"xwarp/mpa/startup"
	"xwarp/tcp"
)

// deaf listens and closes each of len(rst) connections without a reply to its MPA Request: by RST if the element of rst
// is true, otherwise by FIN. It returns the results of asked.
func deaf(t *testing.T, rst ...bool) (netip.AddrPort, <-chan [2]byte) {
	return asked(t, len(rst), func(i int, c net.Conn) {
		if rst[i] {
			c.(*net.TCPConn).SetLinger(0)
		}
	})
}

// asked listens and receives n MPA Requests on a connection each. It calls answer for each of them, then closes the
// connection. The channel receives the revision and the flags of each Request.
func asked(t *testing.T, n int, answer func(i int, c net.Conn)) (netip.AddrPort, <-chan [2]byte) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	seen := make(chan [2]byte, n)
	go func() {
		for i := range n {
			c, err := l.Accept()
			if err != nil {
				return
			}
			var b [20]byte
			if _, err := io.ReadFull(c, b[:]); err != nil {
				t.Errorf("Request %d: %v", i, err)
			}
			io.CopyN(io.Discard, c, int64(b[18])<<8|int64(b[19]))
			seen <- [2]byte{b[17], b[16]}
			answer(i, c)
			c.Close()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String()), seen
}

// TestNoFallback: a peer that does not reply until the start-up times out, or that rejects every Request, has refused
// neither revision 2 nor markers. The next connection must request both again.
//
//req:rfc6581-10-4
func TestNoFallback(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(int, net.Conn)
		want   [][2]byte
	}{
		"silent": {func(_ int, c net.Conn) {
			io.Copy(io.Discard, c)
		}, [][2]byte{{2, 0xd8}, {2, 0xd8}}},
		"rejected": {func(_ int, c net.Conn) {
			io.WriteString(c, "MPA ID Rep Frame\x70\x02\x00\x04\x00\x00\x00\x00")
		}, [][2]byte{{2, 0xd8}, {2, 0x58}, {2, 0xd8}, {2, 0x58}}},
		"rejected by the consumer": {func(_ int, c net.Conn) {
			io.WriteString(c, "MPA ID Rep Frame\xf0\x02\x00\x04\x00\x00\x00\x00")
		}, [][2]byte{{2, 0xd8}, {2, 0xd8}}},
	} {
		t.Run(name, func(t *testing.T) {
			at, seen := asked(t, len(c.want), c.answer)
			cfg := sockets.Config{}
			cfg.StartupTimeout = 100 * time.Millisecond
			d, err := sockets.Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			for range 2 {
				if err := d.Dial(t.Context(), at, verbstest.New(t, d, 4096).QP,
					verbs.DialConfig{}); err == nil {
					t.Error("connected")
				}
			}
			for i, want := range c.want {
				if got := <-seen; got != want {
					t.Errorf("Request %d has revision and flags %x, want %x", i, got, want)
				}
			}
		})
	}
}

// TestRejectIsFinal: if a listener's consumer rejects a connection, Dial does not try again, whether the listener wants
// markers or not: the consumer is called once. The log must not report the rejection as a failure.
func TestRejectIsFinal(t *testing.T) {
	for name, noMarkers := range map[string]bool{"markers": false, "no markers": true} {
		t.Run(name, func(t *testing.T) {
			d, err := sockets.Open(sockets.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			var log lines
			far, err := sockets.Open(sockets.Config{
				Options: core.Options{Log: slog.New(slog.NewTextHandler(&log, nil))}})
			if err != nil {
				t.Fatal(err)
			}
			mpa := verbs.MPAWith(!noMarkers, true)
			l, err := far.Listen(netip.MustParseAddrPort("127.0.0.1:0"),
				verbs.ListenConfig{MPA: &mpa})
			if err != nil {
				t.Fatal(err)
			}
			requests := make(chan int)
			go func() {
				n := 0
				for {
					r, err := l.Accept(context.Background())
					if err != nil {
						requests <- n
						return
					}
					n++
					r.Reject(nil)
				}
			}()
			if err := d.Dial(t.Context(), l.Addr(), verbstest.New(t, d, 4096).QP,
				verbs.DialConfig{}); !errors.Is(err, verbs.ErrRejected) {
				t.Errorf("Dial: %v", err)
			}
			l.Close()
			if n := <-requests; n != 1 {
				t.Errorf("the consumer was called %d times", n)
			}
			far.Close()
			if log.contains("not established") {
				t.Errorf("the log has the rejection as a failure:\n%s", log.b.String())
			}
		})
	}
}

// TestDialTriesAgain: a peer closes each connection after the MPA Request, by FIN or by RST. Each attempt of Dial
// requests fewer features, and the error is that of the last attempt. Then a receive that was posted before is flushed,
// and the queue pair cannot dial again. The next connection to the peer starts with the last request.
//
//req:rfc6581-10-4
func TestDialTriesAgain(t *testing.T) {
	for _, rst := range [][]bool{{false, false, false}, {true, true, true}, {false, true, true},
		{true, false, true}} {
		at, seen := deaf(t, append(rst, false)...)
		d, err := sockets.Open(sockets.Config{})
		if err != nil {
			t.Fatal(err)
		}
		e := verbstest.New(t, d, 4096)
		if err := e.QP.PostRecv(&verbs.RecvWR{ID: 7}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err = d.Dial(ctx, at, e.QP, verbs.DialConfig{})
		if !errors.Is(err, verbs.ErrStartup) || !strings.Contains(err.Error(), "Reply") {
			t.Errorf("%v: Dial: %v", rst, err)
		}
		// revision 2 with M, C, S and the offer of long FPDUs; without the last two; without M
		for i, want := range [][2]byte{{2, 0xd8}, {1, 0xc0}, {1, 0x40}} {
			if got := came(seen); got != want {
				t.Errorf("%v: Request %d has revision and flags %x, want %x", rst, i, got, want)
			}
		}
		var c [1]verbs.Completion
		if _, err = e.CQ.Wait(ctx, c[:]); err != nil || c[0].ID != 7 ||
			c[0].Status != rdmap.WRFlushErr {
			t.Errorf("%v: the receive completed with %v, %v", rst, c[0].Status, err)
		}
		next, err := d.CreateQP(verbs.QPConfig{PD: e.PD, SendCQ: e.CQ, RecvCQ: e.CQ})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Dial(ctx, at, next, verbs.DialConfig{}); err == nil {
			t.Errorf("%v: connected", rst)
		}
		if got := came(seen); got != [2]byte{1, 0x40} {
			t.Errorf("%v: the next connection requests revision and flags %x", rst, got)
		}
		if err := d.Dial(ctx, at, e.QP, verbs.DialConfig{}); err == nil ||
			!strings.Contains(err.Error(), "already has or had a connection") {
			t.Errorf("%v: a second Dial: %v", rst, err)
		}
		cancel()
		if err := errors.Join(e.QP.Close(), next.Close(), d.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestDialMeetsClosingListener: with SingleAttempt and Patience, Dial repeats the same MPA Request after the peer has
// closed the connection, as a listener that ends does. It does not take that for a refusal of revision 2.
func TestDialMeetsClosingListener(t *testing.T) {
	for _, rst := range []bool{false, true} {
		d, err := sockets.Open(sockets.Config{})
		if err != nil {
			t.Fatal(err)
		}
		at, seen := deaf(t, rst, rst)
		err = d.Dial(t.Context(), at, verbstest.New(t, d, 4096).QP,
			verbs.DialConfig{Patience: time.Minute, MPA: &verbs.MPAConfig{SingleAttempt: true}})
		if !errors.Is(err, verbs.ErrStartup) {
			t.Errorf("RST %v: %v", rst, err)
		}
		for range 2 {
			if got := came(seen); got != [2]byte{2, 0xd8} {
				t.Errorf("RST %v: a Request has revision and flags %x", rst, got)
			}
		}
		d.Close()
	}
}

// came returns the revision and the flags of a Request that has arrived, or zeros if there is none.
func came(seen <-chan [2]byte) (got [2]byte) {
	select {
	case got = <-seen:
	default:
	}
	return got
}

// TestCloseWhileDialing closes a queue pair whose peer does not respond to the MPA Request: Dial must return
// tcp.CauseAborted.
func TestCloseWhileDialing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d, err := sockets.Open(sockets.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	e := verbstest.New(t, d, 4096)
	dialed := make(chan error, 1)
	go func() {
		dialed <- d.Dial(t.Context(), netip.MustParseAddrPort(l.Addr().String()), e.QP,
			verbs.DialConfig{})
	}()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.ReadFull(c, make([]byte, 20)); err != nil {
		t.Fatal(err)
	}
	if err := e.QP.Close(); err != nil {
		t.Error(err)
	}
	if err := <-dialed; !errors.Is(err, tcp.CauseAborted) {
		t.Errorf("Dial: %v", err)
	}
}

// transports returns, by the name of the transport, a function that opens two devices. It also returns an address at
// which the second device can listen.
func transports(t *testing.T) map[string]func() (a, b *core.Device, at netip.AddrPort) {
	return map[string]func() (a, b *core.Device, at netip.AddrPort){
		"kernel": func() (a, b *core.Device, at netip.AddrPort) {
			for _, d := range []**core.Device{&a, &b} {
				var err error
				if *d, err = sockets.Open(sockets.Config{}); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { (*d).Close() })
			}
			return a, b, netip.MustParseAddrPort("127.0.0.1:0")
		},
		"xdp": func() (a, b *core.Device, at netip.AddrPort) {
			ours, peer, n := xdpPair(t, topo.Options{}, nil)
			return ours.Device, peer.Device, netip.AddrPortFrom(n.B.Addr4.Addr(), 7174)
		},
	}
}

// TestRefusedIsNoFallback: a refused SYN (RST) says nothing about the peer's MPA. The next connection must request
// revision 2 and markers.
//
//req:rfc6581-10-4
func TestRefusedIsNoFallback(t *testing.T) {
	for name, open := range transports(t) {
		t.Run(name, func(t *testing.T) {
			da, db, at := open()
			if at.Port() == 0 { // take a free port, at an address that no other test uses
				l, err := net.Listen("tcp", "127.71.74.1:0")
				if err != nil {
					t.Fatal(err)
				}
				at = netip.MustParseAddrPort(l.Addr().String())
				l.Close()
			}
			for range 3 {
				if err := da.Dial(t.Context(), at, verbstest.New(t, da, 4096).QP,
					verbs.DialConfig{}); err == nil || !strings.Contains(err.Error(), "refused") {
					t.Fatalf("Dial: %v", err)
				}
			}
			l, err := db.Listen(at, verbs.ListenConfig{})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			dialed := make(chan error, 1)
			a, b := verbstest.New(t, da, 4096), verbstest.New(t, db, 4096)
			go func() { dialed <- da.Dial(t.Context(), at, a.QP, verbs.DialConfig{}) }()
			r, err := l.Accept(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(r.Accept(t.Context(), b.QP, nil), <-dialed); err != nil {
				t.Fatal(err)
			}
			if p := b.QP.Params(); r.Revision != startup.RevEnhanced || !p.Send.Markers ||
				r.IRD == startup.NotNegotiated {
				t.Errorf("the next Request has revision %d, IRD %d, markers %v", r.Revision, r.IRD,
					p.Send.Markers)
			}
		})
	}
}

// TestDialTwice dials with a queue pair that is connected: Dial must fail, and the connection must continue.
func TestDialTwice(t *testing.T) {
	for name, open := range transports(t) {
		t.Run(name, func(t *testing.T) {
			da, db, at := open()
			a, b := verbstest.New(t, da, 1<<16), verbstest.New(t, db, 1<<16)
			verbstest.Connect(t, a, b, at)
			l, err := db.Listen(at, verbs.ListenConfig{})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if err := da.Dial(t.Context(), l.Addr(), a.QP, verbs.DialConfig{}); err == nil ||
				!strings.Contains(err.Error(), "already") {
				t.Errorf("second Dial: %v", err)
			}
			verbstest.Exercise(t, a, b)
		})
	}
}
