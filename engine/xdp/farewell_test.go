package xdp_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/internal/core"
	"xwarp/engine/sockets"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/xdp"
)

// TestCloseAfterDisconnect: if a program disconnects and closes at once, the peer still sees a graceful close, even if
// the FIN is lost.
func TestCloseAfterDisconnect(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	for name, open := range map[string]func(h *topo.Host) (*core.Device, error){
		"xdp": func(h *topo.Host) (d *core.Device, err error) {
			err = h.Do(func() error {
				x, err := xdp.Open(xdp.Config{Interface: "eth0"})
				if err == nil {
					d = x.Device
				}
				return err
			})
			return d, err
		},
		"kernel": openKernel,
	} {
		t.Run(name, func(t *testing.T) {
			for range 5 {
				if lost := closeAfterDisconnect(t, open); lost < 500*time.Millisecond {
					return
				}
			}
			t.Error("this machine is too busy to lose frames for less than half a second")
		})
	}
}

// closeAfterDisconnect disconnects and closes a connection while all frames to the peer are lost. It checks how the
// peer's connection ends, and returns the time during which frames were lost. With 500 ms or more it does not check.
func closeAfterDisconnect(t *testing.T,
	open func(*topo.Host) (*core.Device, error)) time.Duration {
	tn, err := topo.New(topo.Options{IPv4Only: true, OffloadsA: topo.NoOffloads})
	if err != nil {
		t.Fatal(err)
	}
	defer tn.Close()
	peer, err := openKernel(tn.A)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	dev, err := open(tn.B)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	here, there := verbstest.New(t, dev, 4096), verbstest.New(t, peer, 4096)
	verbstest.Connect(t, here, there, netip.AddrPortFrom(tn.A.Addr4.Addr(), 7174))
	verbstest.Exercise(t, here, there)
	time.Sleep(50 * time.Millisecond) // until all is acknowledged, or Disconnect would reset the connection
	drop, begin := dropAll(t, tn.A), time.Now()
	if err := here.QP.Disconnect(); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- here.QP.Close() }()
	time.Sleep(50 * time.Millisecond)
	drop.Close()
	lost := time.Since(begin)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := <-closed; err != nil {
		t.Errorf("Close: %v", err)
	}
	select {
	case <-there.QP.Done():
	case <-ctx.Done():
	}
	if err := there.QP.Err(); lost < 500*time.Millisecond && (err != nil || ctx.Err() != nil) {
		t.Errorf("the peer's connection ended with %v, %v", err, ctx.Err())
	}
	return lost
}

func openKernel(h *topo.Host) (*core.Device, error) {
	return sockets.Open(sockets.Config{Dial: h.Dial, Listen: h.Listen})
}
