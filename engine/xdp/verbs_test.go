package xdp_test

import (
	"log/slog"
	"net/netip"
	"testing"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/ddp"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
)

func xdpPair(t testing.TB, o topo.Options, edit func(*xdp.Config)) (a, b *xdp.Device,
	net *topo.Net) {
	t.Helper()
	net = xdpNet(t, o)
	a, b = openPair(t, net, edit)
	return a, b, net
}

func xdpNet(t testing.TB, o topo.Options) *topo.Net {
	t.Helper()
	needs.XSK(t)
	needs.NetNS(t)
	net, err := topo.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { net.Close() })
	return net
}

// openPair opens a device on each host's link.
func openPair(t testing.TB, net *topo.Net, edit func(*xdp.Config)) (a, b *xdp.Device) {
	t.Helper()
	open := func(h *topo.Host) *xdp.Device {
		cfg := xdp.Config{Interface: h.Link.Name}
		cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
		if edit != nil {
			edit(&cfg)
		}
		var d *xdp.Device
		if err := h.Do(func() (err error) {
			d, err = xdp.Open(cfg)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	return open(net.A), open(net.B)
}

//req:rfc5044-7.1-2
func TestXDPTransfer(t *testing.T) {
	for _, tc := range []struct {
		name string
		mtu  int
		v6   bool
		edit func(*xdp.Config)
	}{
		{name: "1500"},
		{name: "9000", mtu: 9000},
		{name: "ipv6", v6: true},
		{name: "no markers", edit: func(c *xdp.Config) { c.MPA.Markers = verbs.MarkersOff }},
		{name: "EMSS of 140", edit: func(c *xdp.Config) { c.TCP.MSS = 152 }},
		{name: "EMSS of 76", edit: func(c *xdp.Config) {
			c.TCP.MSS, c.MPA.Markers = 88, verbs.MarkersOff
		}},
		{name: "EMSS of 36", edit: func(c *xdp.Config) { c.TCP.MSS = 48 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			da, db, net := xdpPair(t, topo.Options{MTU: tc.mtu}, tc.edit)
			const size = 4 << 20
			a, b := verbstest.New(t, da, size), verbstest.New(t, db, size)
			at := net.B.Addr4.Addr()
			if tc.v6 {
				at = net.B.Addr6.Addr()
			}
			verbstest.Connect(t, a, b, netip.AddrPortFrom(at, 7174))
			verbstest.Exercise(t, a, b)
		})
	}
}

func ddpTO(n int) ddp.TO { return ddp.TO(n) }
