package xdp_test

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
	"xwarp/engine/internal/core"
	"xwarp/engine/sockets"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/xdp"
	"xwarp/tcp/tick"
)

// TestKeepaliveOfSockets: both ends of a kernel-transport connection have keepalive, by default and as configured, and
// none if Idle is tick.Forever.
func TestKeepaliveOfSockets(t *testing.T) {
	for _, c := range []struct {
		k    core.Keepalive
		want [4]int // SO_KEEPALIVE, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT
	}{
		{core.Keepalive{}, [4]int{1, 60, 10, 6}},
		{core.Keepalive{Idle: 7 * time.Second, Interval: 2 * time.Second, Probes: 3},
			[4]int{1, 7, 2, 3}},
		{core.Keepalive{Idle: tick.Forever}, [4]int{}},
	} {
		var mu sync.Mutex
		var socks []*net.TCPConn
		keep := func(s net.Conn, err error) (net.Conn, error) {
			if err == nil {
				mu.Lock()
				socks = append(socks, s.(*net.TCPConn))
				mu.Unlock()
			}
			return s, err
		}
		dev, err := sockets.Open(sockets.Config{
			Options: core.Options{Keepalive: c.k},
			Dial: func(ctx context.Context, _, remote netip.AddrPort) (net.Conn, error) {
				return keep((&net.Dialer{}).DialContext(ctx, "tcp", remote.String()))
			},
			Listen: func(at netip.AddrPort) (net.Listener, error) {
				l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
				return &listener{l, keep}, err
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		a, b := verbstest.New(t, dev, 4096), verbstest.New(t, dev, 4096)
		verbstest.Connect(t, a, b, netip.MustParseAddrPort("127.0.0.1:0"))
		mu.Lock()
		if len(socks) != 2 {
			t.Fatalf("%d sockets", len(socks))
		}
		for _, s := range socks {
			if got := keepaliveOf(t, s); got[0] != c.want[0] || c.want[0] == 1 && got != c.want {
				t.Errorf("%+v: %v, want %v", c.k, got, c.want)
			}
		}
		mu.Unlock()
	}
}

type listener struct {
	net.Listener
	keep func(net.Conn, error) (net.Conn, error)
}

func (l *listener) Accept() (net.Conn, error) { return l.keep(l.Listener.Accept()) }

func keepaliveOf(t *testing.T, s *net.TCPConn) (v [4]int) {
	t.Helper()
	raw, err := s.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		const tcp = unix.IPPROTO_TCP
		for i, o := range [][2]int{{unix.SOL_SOCKET, unix.SO_KEEPALIVE}, {tcp, unix.TCP_KEEPIDLE},
			{tcp, unix.TCP_KEEPINTVL}, {tcp, unix.TCP_KEEPCNT}} {
			if v[i], err = unix.GetsockoptInt(int(fd), o[0], o[1]); err != nil {
				t.Error(err)
			}
		}
	})
	return v
}

// acked waits until all data of e is acknowledged, because keepalive starts only then (RFC 9293, 3.8.4).
func acked(e *verbstest.End) {
	e.T.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(
		time.Millisecond) {
		if i, err := e.QP.Info(); err != nil {
			e.T.Fatal(err)
		} else if i.TCP.Unacked == 0 {
			return
		}
	}
	e.T.Fatal("the start-up is not acknowledged")
}

// TestPeerGoneXDP cuts the link of an idle connection: both ends must notice by keepalive alone.
func TestPeerGoneXDP(t *testing.T) {
	da, db, tn := xdpPair(t, topo.Options{}, func(c *xdp.Config) {
		c.Keepalive = core.Keepalive{Idle: 200 * time.Millisecond,
			Interval: 100 * time.Millisecond, Probes: 3}
	})
	a, b := verbstest.New(t, da, 4096), verbstest.New(t, db, 4096)
	verbstest.Connect(t, a, b, netip.AddrPortFrom(tn.B.Addr4.Addr(), 7174))
	acked(a)
	acked(b)
	h := tn.A.Netlink()
	l, err := h.LinkByName(tn.A.Link.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.LinkSetDown(l); err != nil {
		t.Fatal(err)
	}
	for _, e := range []*verbstest.End{a, b} {
		select {
		case <-e.QP.(*core.QP).Gone():
		case <-time.After(30 * time.Second):
			t.Error("a connection to a dead peer still exists")
		}
	}
}
