package client_test

import (
	"net/netip"
	"slices"
	"testing"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/daemon"
	"xwarp/engine/daemon/control"
	"xwarp/engine/testkit/verbstest"
)

// xdpDaemons starts a daemon on each of two hosts.
func xdpDaemons(t testing.TB, text string) (tn *topo.Net, a, b *daemon.Daemon, socketA,
	socketB string) {
	t.Helper()
	needs.XSK(t)
	needs.NetNS(t)
	tn, err := topo.New(topo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tn.Close() })
	start := func(h *topo.Host) (d *daemon.Daemon, socket string) {
		cfg, socket := loadConfig(t, "[[interface]]\nname = \""+h.Link.Name+"\"\n"+text)
		err := h.Do(func() (err error) {
			d, err = daemon.New(cfg, daemon.Options{Log: testLog(t)})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d, socket
	}
	a, socketA = start(tn.A)
	b, socketB = start(tn.B)
	return tn, a, b, socketA, socketB
}

func TestXDP(t *testing.T) {
	tn, da, _, socketA, socketB := xdpDaemons(t, "")
	a, b := verbstest.New(t, open(t, socketA), 1<<20), verbstest.New(t, open(t, socketB), 1<<20)
	verbstest.Connect(t, a, b, netip.AddrPortFrom(tn.B.Addr4.Addr(), 7174))
	verbstest.Exercise(t, a, b)
	if tr := a.Dev.Transport(); tr.Name != "xdp" || tr.MTU != 1500 {
		t.Errorf("transport: %+v", tr)
	}
	i, err := a.QP.Info()
	if err != nil || i.TCP == nil || i.Counters.PayloadOut < 1<<19 {
		t.Errorf("information: %+v, %v", i, err)
	}
	s := da.Snapshot()
	if len(s.QPs) != 1 || s.QPs[0].State != "RTS" || s.QPs[0].Remote.Port() != 7174 ||
		s.QPs[0].TCP["retransmits"] > 1000 {
		t.Errorf("queue pairs: %+v", s.QPs)
	}
	if len(s.Devices) != 1 || s.Devices[0].RxFrames == 0 {
		t.Errorf("devices: %+v", s.Devices)
	}
	if !slices.ContainsFunc(s.Users, func(u control.UserState) bool {
		return u.Resource == "memory" && u.Used == 1<<20
	}) {
		t.Errorf("users: %+v", s.Users)
	}
	a.Dev.Close()
	<-b.QP.Done()
}
