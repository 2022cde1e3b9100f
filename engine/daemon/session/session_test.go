package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
	"xwarp/engine/sockets"
	"xwarp/engine/testkit/rawclient"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
)

// TestDefect: the handler of a request panics, with an immediate and with a waiting reply. The session ends, its quota
// is released, the defect is reported, and another program is not affected.
func TestDefect(t *testing.T) {
	const atOnce, later = control.OpConfirm, control.OpEndCapture
	oldHandler, oldBlocking := handlers[atOnce], blockingHandlers[later]
	handlers[atOnce] = func(*Session, *control.Request, []int) (any, error) {
		panic("made to fail")
	}
	blockingHandlers[later] = func(*Session, context.Context, *control.Request) (any, error) {
		panic("made to fail")
	}
	t.Cleanup(func() { handlers[atOnce], blockingHandlers[later] = oldHandler, oldBlocking })
	d, socket := start(t)
	other := rawclient.Dial(t, socket, "")
	for i, op := range []control.Op{atOnce, later} {
		r := rawclient.Dial(t, socket, "")
		if err := r.Ask(op, &control.Object{}); err == nil {
			t.Errorf("%s: the session did not end", op)
		}
		eventually(t, "end of the session", func() bool { return len(d.Sessions()) == 1 })
		if n := d.defects.Load(); n != uint64(i+1) {
			t.Errorf("%s: %d defects by the count", op, n)
		}
		if err := other.Ask(control.OpAllocPD, &struct{}{}); err != nil {
			t.Errorf("%s: another program: %v", op, err)
		}
	}
	other.Close()
	eventually(t, "end of all sessions", func() bool { return len(d.Sessions()) == 0 })
	if n := d.used(); n != (budget.Amounts{}) {
		t.Errorf("%v stay", n)
	}
}

// TestStartedAnew: the resources of a killed program are available to its successor, even if the daemon is slow to
// release them. Resources that are never released do not block others.
func TestStartedAnew(t *testing.T) {
	d, socket := start(t)
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listen := &control.ListenArgs{Addr: netip.MustParseAddrPort(busy.Addr().String())}
	busy.Close()

	first := rawclient.Dial(t, socket, "")
	if err := first.Ask(control.OpListen, listen); err != nil {
		t.Fatal(err)
	}
	beside := rawclient.Dial(t, socket, "") // still alive, and not waited for
	held := d.session(t, 1)
	held.executing.Lock() // as while it executes a request
	if err := beside.Ask(control.OpListen, listen); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("while its owner lives: %v", err)
	}
	first.Close()
	begin := time.Now()
	time.AfterFunc(deadSessionWait/8, held.executing.Unlock)
	second := rawclient.Dial(t, socket, "")
	if time.Since(begin) < deadSessionWait/8 {
		t.Error("it does not wait for the dead one")
	}
	if err := second.Ask(control.OpListen, listen); err != nil {
		t.Errorf("restarted: %v", err)
	}

	held = d.session(t, 3)
	held.executing.Lock()
	defer held.executing.Unlock()
	second.Close()
	third := rawclient.Dial(t, socket, "")
	if err := third.Ask(control.OpListen, listen); err == nil {
		t.Error("a port that is not given back was given away")
	}
}

// TestGIDPortsOfReopenedDevice: a program that queries its GIDs again after its device was reopened can be reached
// at the new device.
func TestGIDPortsOfReopenedDevice(t *testing.T) {
	d, socket := start(t)
	r := rawclient.Dial(t, socket, "")
	s := d.session(t, 1)
	isOpen := func(when string) {
		t.Helper()
		if err := r.Ask(control.OpQueryGIDs, &struct{}{}); err != nil {
			t.Fatal(err)
		}
		p := s.rendezvous.portOf(rendezvousAddr{d.dev.Load(), netip.MustParseAddr("127.0.0.1")})
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.listener == nil {
			t.Errorf("%s: the port is closed", when)
		}
	}
	isOpen("at first")
	d.dev.Load().Close()
	d.open(t)
	if err := r.Ask(control.OpAllocPD, &struct{}{}); err != nil { // uses the new device
		t.Fatal(err)
	}
	isOpen("after the device was reopened")
}

// TestStoppingRefuses: a program can neither listen nor connect in a daemon that stops, and gets an event before its
// session ends.
func TestStoppingRefuses(t *testing.T) {
	d, socket := start(t)
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	c := control.NewSocket(conn, control.MaxReply)
	defer c.Close()
	hello := control.Marshal(control.Request{ID: 1, Op: control.OpHello,
		Args: control.Marshal(control.HelloArgs{Version: control.Version})})
	receive := func() (control.Kind, []byte) {
		k, body, files, err := c.Receive()
		if err != nil {
			t.Fatal(err)
		}
		control.CloseAll(files)
		return k, body
	}
	if err := c.Send(control.KindRequest, hello); err != nil {
		t.Fatal(err)
	}
	receive()
	s := d.session(t, 1)
	s.Shutdown(t.Context())
	<-s.resourcesReleased
	s.mu.Lock()
	h := s.addObject(&qp{}) // as if the program had created it just before
	s.mu.Unlock()
	at := netip.MustParseAddrPort("127.0.0.1:7199")
	_, listen := s.listen(&control.ListenArgs{Addr: at})
	_, _, connect := s.beginConnect(t.Context(), h, 1, 1)
	s.mu.Lock()
	delete(s.objects, h)
	s.mu.Unlock()
	for _, err := range []error{listen, connect} {
		if !errors.Is(err, ErrShutdown) {
			t.Errorf("%v, want %v", err, ErrShutdown)
		}
	}
	if d.dev.Load().Core.Listens(at) {
		t.Errorf("still listens on %v", at)
	}
	if k, body := receive(); k != control.KindEvent || string(body) != `{"event":"stopping"}` {
		t.Errorf("got %v %s", k, body)
	}
}

// TestLateQueuePairs stops a worker for longer than the daemon waits for queue pairs to end, and resumes it. Nothing
// may remain of a program that ended, or of queue pairs that a live program destroyed.
func TestLateQueuePairs(t *testing.T) {
	before := destroyWait
	destroyWait = 50 * time.Millisecond
	t.Cleanup(func() { destroyWait = before })
	for _, leaves := range []bool{false, true} {
		t.Run(fmt.Sprintf("the program leaves: %v", leaves), func(t *testing.T) {
			d, socket := start(t)
			dev, err := client.Open(socket)
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			end := verbstest.New(t, dev, 4096)
			connectTo(t, end)
			recv := verbs.RecvWR{SGL: []verbs.SGE{end.MR.SGE(0, 64)}}
			if err := end.QP.PostRecv(&recv); err != nil {
				t.Fatal(err)
			}
			if _, err := end.QP.Info(); err != nil { // it moves the receive out of the ring
				t.Fatal(err)
			}
			var queues []*cq
			for _, s := range d.Sessions() {
				queues = append(queues, objectsOf[*cq](s)...)
			}
			for _, c := range queues {
				c.mu.Lock() // blocks the worker as soon as it completes something
			}
			if leaves {
				dev.Close()
			} else if err := end.QP.Close(); err == nil ||
				!strings.Contains(err.Error(), errStuck.Error()) {
				t.Errorf("destroying a queue pair whose worker is blocked: %v", err)
			}
			time.Sleep(3 * destroyWait)
			if n := d.used(); n[budget.QPs] != 1 {
				t.Errorf("%d queue pairs count while the worker is blocked", n[budget.QPs])
			}
			for _, c := range queues {
				c.mu.Unlock()
			}
			eventually(t, "return of the queue pair", func() bool {
				return d.used()[budget.QPs] == 0
			})
			if !leaves {
				dev.Close()
			}
			eventually(t, "empty accounts", func() bool {
				return d.used() == budget.Amounts{}
			})
			if n := len(d.Sessions()); n != 0 {
				t.Errorf("%d sessions are left", n)
			}
		})
	}
}

// connectTo connects a queue pair to a kernel socket.
func connectTo(t *testing.T, end *verbstest.End) {
	t.Helper()
	peer, err := sockets.Open(sockets.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	verbstest.Connect(t, end, verbstest.New(t, peer, 4096), netip.MustParseAddrPort("127.0.0.1:0"))
}

// TestNoFreeBell: a queue pair and a shared receive queue that get no bell are refused, and leave nothing in the engine
// that keeps the objects that they use from being closed.
func TestNoFreeBell(t *testing.T) {
	d, socket := start(t)
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := dev.CreateCQ(16)
	if err != nil {
		t.Fatal(err)
	}
	srq, err := dev.CreateSRQ(verbs.SRQConfig{PD: pd, Depth: 4})
	if err != nil {
		t.Fatal(err)
	}
	s := d.session(t, 1)
	s.pumpMu.Lock()
	before := s.posters
	s.posters = make([]poster, control.MaxBells)
	s.pumpMu.Unlock()
	const want = "open another session"
	_, err = dev.CreateQP(verbs.QPConfig{PD: pd, SendCQ: cq, RecvCQ: cq, SRQ: srq})
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("queue pair: %v", err)
	}
	if _, err = dev.CreateSRQ(verbs.SRQConfig{PD: pd, Depth: 4}); err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("shared receive queue: %v", err)
	}
	s.pumpMu.Lock()
	s.posters = before
	s.pumpMu.Unlock()
	if err := errors.Join(srq.Close(), cq.Close(), pd.Close()); err != nil {
		t.Error(err)
	}
}

// TestPumpRestsWithoutWork: the pump of a program that rings without posting pauses. That of a program that posts does
// not, even if the requests fail: a request that the engine refuses ends the connection, and later ones are flushed.
func TestPumpRestsWithoutWork(t *testing.T) {
	d, socket := start(t)
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	end := verbstest.New(t, dev, 4096)
	connectTo(t, end)
	s := d.session(t, 1)
	refused := verbs.SendWR{Op: verbs.WRFetchAdd, SGL: make([]verbs.SGE, 1)} // not of 8 bytes
	for i, tc := range []struct {
		wr    verbs.SendWR
		first verbs.Status
		rest  verbs.Status
	}{
		{verbs.SendWR{Op: verbs.WRWrite}, verbs.Success, verbs.Success},
		{refused, verbs.LocQPOpErr, verbs.WRFlushErr},
		{refused, verbs.WRFlushErr, verbs.WRFlushErr},
	} {
		tc.wr.Flags = verbs.Signaled
		s.pumpMu.Lock()
		for range batchSize {
			if err := end.QP.PostSend(&tc.wr); err != nil {
				t.Fatal(err)
			}
		}
		s.pumpMu.Unlock()
		for n := range batchSize {
			var c [1]verbs.Completion
			_, err := end.CQ.Wait(t.Context(), c[:])
			want := []verbs.Status{tc.first, tc.rest}[min(n, 1)]
			if err != nil || c[0].Status != want {
				t.Fatalf("batch %d, request %d: %v, %v; want %v", i, n, c[0].Status, err, want)
			}
		}
	}
	hasRested := func() bool { return d.count.DoorbellRests.Load() > 0 }
	if hasRested() {
		t.Error("the pump rested although each doorbell announced work")
	}
	eventually(t, "rest of the pump", func() bool {
		control.RingBell(s.bellPage.Mem, 0)
		s.ringer.Rouse()
		return hasRested()
	})
}

// TestRefillDoesNotSleep: a message finds no receive while the pump of its program is stuck. The worker must not wait
// for the pump.
func TestRefillDoesNotSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Session{}
		s.pumpMu.Lock()
		defer s.pumpMu.Unlock()
		start := time.Now()
		if s.refill(&qp{}); time.Since(start) > 0 {
			t.Errorf("the worker slept for %v", time.Since(start))
		}
	})
}
