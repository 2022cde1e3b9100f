package xdp_test

import (
	"log/slog"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/xdp"
)

// detachByForce detaches the XDP program of an interface of a host, as bpftool link detach does.
func detachByForce(t *testing.T, h *topo.Host, name string) {
	t.Helper()
	id := programOf(t, h, name)
	var it link.Iterator
	defer it.Close()
	for it.Next() {
		info, err := it.Link.Info()
		if err != nil || id == 0 || uint32(info.Program) != id {
			continue
		}
		if err := it.Link.Detach(); err != nil {
			t.Fatal(err)
		}
		if programOf(t, h, name) != 0 {
			t.Fatalf("%s keeps its program", name)
		}
		return
	}
	t.Fatalf("no link has program %d of %s", id, name)
}

// TestDetachedByForce: if another process detaches the program of an interface or of a member of a bond, the device
// must attach it again. Connections that were idle meanwhile continue. If the interface has another program then, the
// device does not replace it, logs that no connection receives frames, and attaches its own once the other has gone.
func TestDetachedByForce(t *testing.T) {
	t.Run("interface", func(t *testing.T) {
		needs.XSK(t)
		var log lines
		da, db, tn := xdpPair(t, topo.Options{}, func(c *xdp.Config) {
			c.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		a, b := verbstest.New(t, da, 1<<20), verbstest.New(t, db, 1<<20)
		verbstest.Connect(t, a, b, netip.AddrPortFrom(tn.B.Addr4.Addr(), 7174))
		verbstest.Exercise(t, a, b)
		detachByForce(t, tn.B, tn.B.Link.Name)
		if !eventually(func() bool { return log.contains("attached the XDP program again") }) {
			t.Fatal("the program was not attached again")
		}
		verbstest.Exercise(t, a, b)

		var other link.Link
		err := error(unix.EBUSY)
		for tries := 0; err != nil && tries < 10; tries++ { // the device may attach its program again first
			detachByForce(t, tn.B, tn.B.Link.Name)
			other, err = tryDropAll(tn.B)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		id := programOf(t, tn.B, tn.B.Link.Name)
		if !eventually(func() bool { return log.contains("no connection receives frames") }) {
			t.Error("the log does not report the loss of the program")
		}
		if now := programOf(t, tn.B, tn.B.Link.Name); now != id {
			t.Errorf("program %d instead of %d of another owner", now, id)
		}
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		if !eventually(func() bool { return programOf(t, tn.B, tn.B.Link.Name) != 0 }) {
			t.Fatal("the program was not attached after the other one had gone")
		}
		verbstest.Exercise(t, a, b)
	})
	t.Run("bond", func(t *testing.T) {
		n := newBondNet(t)
		a, b := n.open(n.A), n.open(n.B)
		ea, eb := n.connect(a, b)
		detachByForce(t, n.B, "eth0")
		if !eventually(func() bool { return n.program(n.B, "eth0") }) {
			t.Fatal("the program of the member was not attached again")
		}
		verbstest.Exercise(t, ea, eb)
	})
}
