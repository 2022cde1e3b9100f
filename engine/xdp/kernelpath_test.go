package xdp_test

import (
	"context"
	"net/netip"
	"testing"

	"xwarp/ddp/rdmap"
	"xwarp/engine/internal/core"
	"xwarp/engine/sockets"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
)

// TestKernelAllocatesNothing: once a kernel-transport connection is set up, Writes and Reads allocate no memory at
// either end. The test accepts an allocation in two messages, because the runtime allocates now and then.
func TestKernelAllocatesNothing(t *testing.T) {
	const size = 1 << 20
	open := func() *core.Device {
		cfg := sockets.Config{}
		cfg.MPA.Markers = verbs.MarkersOff
		d, err := sockets.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	a, b := verbstest.New(t, open(), size), verbstest.New(t, open(), size)
	verbstest.Connect(t, a, b, netip.MustParseAddrPort("127.0.0.1:0"))
	var done [1]verbs.Completion
	sge := []verbs.SGE{a.MR.SGE(0, size)}
	for _, op := range []verbs.WROp{rdmap.WRWrite, rdmap.WRRead} {
		wr := verbs.SendWR{Op: op, SGL: sge, RemoteSTag: b.MR.STag(), Flags: verbs.Signaled}
		do := func() {
			if err := a.QP.PostSend(&wr); err != nil {
				t.Fatal(err)
			}
			n, err := a.CQ.Wait(context.Background(), done[:])
			if n != 1 || err != nil || done[0].Err() != nil {
				t.Fatalf("%v: %v, %v", op, err, done[0].Err())
			}
		}
		for range 50 {
			do()
		}
		if n := testing.AllocsPerRun(200, do); n >= 0.5 { // occasional allocations of the runtime
			t.Errorf("%v: %v allocations for a message", op, n)
		}
	}
}

// TestKernelLostMemory: the kernel detects that memory of a Write cannot be read, because without a CRC the engine does
// not read it. The connection ends, the region becomes invalid, the Write fails with a protection error, and another
// connection of the device continues.
func TestKernelLostMemory(t *testing.T) {
	const size, keep = 1 << 20, 256 << 10
	da, db, at := pairWith(t, "kernel",
		core.Options{MPA: verbs.MPAConfig{Markers: verbs.MarkersOff, CRC: verbs.CRCOptional}})
	a, b := verbstest.New(t, da, size), verbstest.New(t, db, size)
	verbstest.Connect(t, a, b, at)
	otherA, otherB := verbstest.New(t, da, size), verbstest.New(t, db, size)
	verbstest.Connect(t, otherA, otherB, at)
	mem, cut := mapped(t, size)
	mr, err := b.PD.RegMR(mem, 0)
	if err != nil {
		t.Fatal(err)
	}
	cut(keep)
	b.Post(verbs.SendWR{ID: 7, Op: rdmap.WRWrite, SGL: []verbs.SGE{mr.SGE(0, size)},
		RemoteSTag: a.MR.STag()})
	if c := failure(b); c == nil || c.ID != 7 || c.Status != rdmap.LocProtErr {
		t.Errorf("completion: %+v, want IBV_WC_LOC_PROT_ERR of 7", c)
	}
	<-a.QP.Done()
	if h := db.Contained(); mr.Err() == nil || h.RegionFaults != 1 {
		t.Errorf("region: %v, device: %+v", mr.Err(), h)
	}
	verbstest.Exercise(t, otherA, otherB)
	if err := b.QP.Close(); err != nil {
		t.Error(err)
	}
	if err := mr.Close(); err != nil {
		t.Error(err)
	}
}
