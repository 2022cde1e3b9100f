package xdp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/internal/core"
	"xwarp/engine/sockets"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
)

// TestPortsInTimeWait connects repeatedly while the kernel has few free ports, and closes each connection before its
// peer does. The kernel may assign a port whose previous connection is still in TIME-WAIT in the engine. Then the
// engine must use another port.
func TestPortsInTimeWait(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	tn, err := topo.New(topo.Options{IPv4Only: true, OffloadsB: topo.NoOffloads})
	if err != nil {
		t.Fatal(err)
	}
	defer tn.Close()
	var dev *xdp.Device
	if err := tn.A.Do(func() (err error) {
		if err = os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("40000 40031"),
			0); err != nil {
			return err
		}
		dev, err = xdp.Open(xdp.Config{Interface: "eth0"})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	far, err := sockets.Open(sockets.Config{Listen: tn.B.Listen})
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const rounds = 16
	t.Run("queue pairs", func(t *testing.T) {
		l, err := far.Listen(netip.AddrPortFrom(tn.B.Addr4.Addr(), 7174), verbs.ListenConfig{})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for range rounds {
				e, err := verbstest.Make(far, 4096)
				if err != nil {
					return
				}
				if r, err := l.Accept(ctx); err == nil {
					r.Accept(ctx, e.QP, nil)
				}
			}
		}()
		for range rounds {
			e := verbstest.New(t, dev, 4096)
			if err := dev.Dial(ctx, l.Addr(), e.QP, verbs.DialConfig{}); err != nil {
				t.Fatal(err)
			}
			if err := e.QP.Disconnect(); err != nil {
				t.Fatal(err)
			}
			<-e.QP.(*core.QP).Gone()
		}
	})
	t.Run("streams", func(t *testing.T) {
		l, err := tn.B.Listen(netip.AddrPortFrom(tn.B.Addr4.Addr(), 7175))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if errors.Is(err, net.ErrClosed) {
					return
				}
				io.Copy(io.Discard, c)
				c.Close()
			}
		}()
		for range rounds {
			c, err := dev.DialStream(ctx, netip.MustParseAddrPort(l.Addr().String()),
				xdp.StreamConfig{})
			if err != nil {
				t.Fatal(err)
			}
			c.CloseWrite()
			io.Copy(io.Discard, c)
			c.Close()
		}
	})
}
