package xdp_test

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"xwarp/bench/topo"
	"xwarp/ddp/rdmap"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
)

// underWrites runs disturb during Writes, and checks that every byte arrives.
func underWrites(t *testing.T, disturb func(tn *topo.Net)) {
	t.Helper()
	underWritesOf(t, nil, func(_ *xdp.Device, tn *topo.Net) { disturb(tn) })
}

// underWritesOf is underWrites, with devices that edit configures. It also passes the receiving device to disturb.
func underWritesOf(t *testing.T, edit func(*xdp.Config), disturb func(to *xdp.Device,
	tn *topo.Net)) {
	t.Helper()
	da, db, tn := xdpPair(t, topo.Options{}, edit)
	const size, rounds = 1 << 20, 20
	a, b := verbstest.New(t, da, 2*size), verbstest.New(t, db, size)
	verbstest.Connect(t, a, b, netip.AddrPortFrom(tn.B.Addr4.Addr(), 7174))
	copy(a.Mem, randomBytes(size, 5))
	disturbed := make(chan bool)
	go func() { defer close(disturbed); disturb(db, tn) }()
	for i, over := 0, false; i < rounds || !over; i++ {
		a.Post(verbs.SendWR{ID: 1, Op: rdmap.WRWrite, SGL: []verbs.SGE{a.MR.SGE(0, size)},
			RemoteSTag: b.MR.STag()})
		a.Wait()
		select {
		case <-disturbed:
			over = true
		default:
		}
	}
	a.Post(verbs.SendWR{ID: 2, Op: rdmap.WRRead, SGL: []verbs.SGE{a.MR.SGE(size, size)},
		RemoteSTag: b.MR.STag()})
	a.Wait()
	if !bytes.Equal(a.Mem[size:], a.Mem[:size]) {
		t.Fatal("written and read data differ")
	}
}

// TestLinkFlaps takes the link down and up again: TCP must resume.
func TestLinkFlaps(t *testing.T) {
	underWrites(t, func(tn *topo.Net) {
		h := tn.A.Netlink()
		l, err := h.LinkByName(tn.A.Link.Name)
		if err != nil {
			t.Error(err)
			return
		}
		for range 3 {
			time.Sleep(50 * time.Millisecond)
			h.LinkSetDown(l)
			time.Sleep(50 * time.Millisecond)
			h.LinkSetUp(l)
		}
	})
}

// TestNeighbourMoves changes the peer's Ethernet address in the kernel's neighbour table: the engine must use the new
// one.
func TestNeighbourMoves(t *testing.T) {
	da, db, tn := xdpPair(t, topo.Options{}, nil)
	a, b := verbstest.New(t, da, 1<<20), verbstest.New(t, db, 1<<20)
	verbstest.Connect(t, a, b, netip.AddrPortFrom(tn.B.Addr4.Addr(), 7174))
	verbstest.Exercise(t, a, b)
	moved := net.HardwareAddr{0x02, 0, 0, 0, 0xbe, 0xef}
	h := tn.A.Netlink()
	if err := h.NeighSet(&netlink.Neigh{
		LinkIndex: tn.A.Link.Index, IP: tn.B.Addr4.Addr().AsSlice(), HardwareAddr: moved,
		State: netlink.NUD_REACHABLE,
	}); err != nil {
		t.Fatal(err)
	}
	if !eventually(func() bool {
		s, err := db.Stats()
		if err != nil {
			t.Fatal(err)
		}
		a.QP.PostSend(&verbs.SendWR{ID: 9, Op: rdmap.WRWrite, SGL: []verbs.SGE{a.MR.SGE(0, 8)},
			RemoteSTag: b.MR.STag()})
		return s.Queues[0].Stack.DropNotForUs > 0
	}) {
		t.Error("frames do not go to the current address of the neighbour table")
	}
	if err := h.NeighSet(&netlink.Neigh{
		LinkIndex: tn.A.Link.Index, IP: tn.B.Addr4.Addr().AsSlice(), HardwareAddr: tn.B.Link.MAC,
		State: netlink.NUD_REACHABLE,
	}); err != nil {
		t.Fatal(err)
	}
	verbstest.Exercise(t, a, b)
}
