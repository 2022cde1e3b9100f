package session

import (
	"net/netip"
	"testing"

	"xwarp/ddp/rdmap"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
)

// ownPeer returns a daemon, the end of a program, its queue pair q, and the arguments with which setState makes q its
// own peer.
func ownPeer(t *testing.T) (d *testDaemon, end *verbstest.End, q *qp, a *control.SetStateArgs) {
	t.Helper()
	d, socket := start(t)
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	end = verbstest.New(t, dev, 4096)
	q = objectsOf[*qp](d.session(t, 1))[0]
	lo := netip.MustParseAddr("127.0.0.1")
	return d, end, q, &control.SetStateArgs{QP: q.handle, State: control.ToRTR, LocalGID: lo,
		RemoteGID: lo, RemoteQPN: q.number}
}

// TestTwinThatFailsIsGone: a queue pair that is its own peer fails to get to RTR, because its twin cannot take its
// receives. The twin must be destroyed, and the next attempt must connect.
func TestTwinThatFailsIsGone(t *testing.T) {
	d, end, q, a := ownPeer(t)
	before, depth := d.used(), q.cfg.RecvDepth
	for range 4 {
		if err := end.QP.PostRecv(&verbs.RecvWR{SGL: []verbs.SGE{end.MR.SGE(0, 8)}}); err != nil {
			t.Fatal(err)
		}
	}
	q.s.drain(q)
	q.cfg.RecvDepth = 2 // the twin has no room for the receives
	if err := q.s.setState(a); err == nil {
		t.Fatal("a twin with less room takes all receives")
	}
	if got := d.used(); got != before || q.twin != nil {
		t.Errorf("afterwards: %v, before %v; twin %v", got, before, q.twin)
	}
	q.cfg.RecvDepth = depth
	if err := q.s.setState(a); err != nil {
		t.Fatal(err)
	}
	if d := q.roce.Load(); d != nil {
		<-d.met
	}
	if !q.connected.Load() {
		t.Error("the next attempt does not connect it")
	}
}

// TestTwinThatRefuses: a queue pair fails if its twin refuses it, although its timeout is 0, which means to wait for a
// peer forever.
func TestTwinThatRefuses(t *testing.T) {
	_, _, q, a := ownPeer(t)
	if err := q.s.setState(a); err != nil {
		t.Fatal(err)
	}
	d := q.roce.Load()
	<-d.met
	a.State = control.ToRTS
	if err := q.s.setState(a); err != nil {
		t.Fatal(err)
	}
	q.twin.Abort()
	d.failSelf(verbs.ErrTimeout)
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.ended || d.failure != rdmap.RetryExcErr {
		t.Errorf("ended %v; the next send fails with %v", d.ended, d.failure)
	}
}
