package xdp_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"xwarp/ddp/rdmap"
	"xwarp/engine/internal/core"
	"xwarp/engine/sockets"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
)

// TestCQOverrun gives one queue pair a completion queue that is too small. The queue reports the overrun, its queue
// pair fails, and the other connection of the device continues.
//
//req:rfc5040-8.1.1-10
//req:rfc5042-6.4.6-1
func TestCQOverrun(t *testing.T) {
	open := func() *core.Device {
		d, err := sockets.Open(sockets.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	da, db := open(), open()
	a, b := verbstest.New(t, da, 4096), verbstest.New(t, db, 4096)
	small, err := da.CreateCQ(1)
	if err != nil {
		t.Fatal(err)
	}
	c, d := verbstest.New(t, da, 4096), verbstest.New(t, db, 4096)
	if c.QP, err = da.CreateQP(verbs.QPConfig{PD: c.PD, SendCQ: small, RecvCQ: c.CQ}); err != nil {
		t.Fatal(err)
	}
	loopback := netip.MustParseAddrPort("127.0.0.1:0")
	verbstest.Connect(t, a, b, loopback)
	verbstest.Connect(t, c, d, loopback)
	for range 64 {
		err := c.QP.PostSend(&verbs.SendWR{Op: rdmap.WRWrite, Flags: rdmap.Signaled,
			RemoteSTag: d.MR.STag(), SGL: []verbs.SGE{c.MR.SGE(0, 8)}})
		if err != nil && !errors.Is(err, verbs.ErrQueueFull) {
			t.Fatal(err)
		}
	}
	select {
	case <-c.QP.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the queue pair does not fail")
	}
	if c.QP.Err() == nil {
		t.Error("the queue pair with the lost completion has no error")
	}
	var got [64]verbs.Completion
	n, err := small.Poll(got[:])
	for ; n > 0 && err == nil; n, err = small.Poll(got[:]) {
	}
	if !errors.Is(err, verbs.ErrCQOverrun) {
		t.Errorf("Poll: %v", err)
	}
	verbstest.Exercise(t, a, b)
}
