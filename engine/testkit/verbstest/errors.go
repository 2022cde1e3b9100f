package verbstest

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"xwarp/engine/verbs"
	"xwarp/mpa/ulpdu"
)

// Errors checks that two devices return the errors that package verbs documents. b listens on the address, with a port
// of its choice. Errors closes both.
func Errors(t *testing.T, a, b verbs.Device, at netip.Addr) {
	for _, part := range []struct {
		name string
		run  func(*contract)
	}{{"objects", (*contract).objects}, {"connections", (*contract).connections},
		{"requests", (*contract).requests}, {"windows", (*contract).windows},
		{"resize", (*contract).resize}, {"closed", (*contract).closed}} {
		t.Run(part.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			part.run(&contract{t, ctx, a, b, netip.AddrPortFrom(at, 0)})
		})
	}
}

type contract struct {
	*testing.T
	ctx  context.Context // ends before the test does
	a, b verbs.Device
	at   netip.AddrPort
}

// is checks that err matches every error in want.
func (c *contract) is(call string, err error, want ...error) {
	c.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			c.Errorf("%s: %v, want %q (%T)", call, err, w, w)
		}
	}
}

// down waits for the end of a connection.
func (c *contract) down(qp verbs.QP) {
	c.Helper()
	select {
	case <-qp.Done():
	case <-c.ctx.Done():
		c.Error("the connection is still open")
	}
}

func (c *contract) listen() verbs.Listener {
	c.Helper()
	l, err := c.b.Listen(c.at, verbs.ListenConfig{})
	if err != nil {
		c.Fatal(err)
	}
	return l
}

// objects tries to create invalid objects, and to close objects in use.
func (c *contract) objects() {
	e := New(c, c.a, 4096)
	foreign := New(c, c.b, 4096)
	_, err := c.a.Alloc(0)
	c.is("Alloc(0)", err, syscall.EINVAL)
	c.is("Free of other memory", c.a.Free(make([]byte, 4096)), syscall.EINVAL)
	for _, depth := range []int{-1, 0, verbs.MaxCQDepth + 1} {
		_, err = c.a.CreateCQ(depth)
		c.is("CreateCQ", err, syscall.EINVAL)
	}
	_, err = e.PD.RegMR(nil, verbs.LocalWrite)
	c.is("RegMR of nothing", err, syscall.EINVAL)
	good := verbs.QPConfig{PD: e.PD, SendCQ: e.CQ, RecvCQ: e.CQ}
	for _, change := range []func(*verbs.QPConfig){
		func(q *verbs.QPConfig) { q.PD = nil },
		func(q *verbs.QPConfig) { q.PD = foreign.PD },
		func(q *verbs.QPConfig) { q.SendCQ = nil },
		func(q *verbs.QPConfig) { q.SendDepth = 1 << 30 },
		func(q *verbs.QPConfig) { q.MaxSGE = -1 },
	} {
		bad := good
		change(&bad)
		_, err = c.a.CreateQP(bad)
		c.is("CreateQP", err, syscall.EINVAL)
	}
	_, err = c.a.CreateSRQ(verbs.SRQConfig{PD: foreign.PD})
	c.is("CreateSRQ", err, verbs.ErrForeign, syscall.EINVAL)
	c.is("PD.Close in use", e.PD.Close(), syscall.EBUSY, verbs.ErrBusy)
	c.is("CQ.Close in use", e.CQ.Close(), syscall.EBUSY, verbs.ErrBusy)
	if err := errors.Join(e.QP.Close(), e.QP.Close(), e.MR.Close(), e.CQ.Close(), e.PD.Close(),
		e.PD.Close(), c.a.Free(e.Mem)); err != nil {
		c.Errorf("closing in order, some twice: %v", err)
	}
	_, err = e.CQ.Poll(make([]verbs.Completion, 1))
	c.is("Poll after Close", err, net.ErrClosed)
	_, err = e.CQ.Wait(c.ctx, make([]verbs.Completion, 1))
	c.is("Wait after Close", err, net.ErrClosed)
	c.is("PostRecv after Close", e.QP.PostRecv(&verbs.RecvWR{}), net.ErrClosed)
	_, err = verbs.ParseRemoteMR([]byte("nothing of the kind"))
	c.is("ParseRemoteMR", err, verbs.ErrRemoteMR)
}

// connections fails to establish a connection in several ways.
func (c *contract) connections() {
	e := New(c, c.a, 4096)
	l := c.listen()
	_, err := c.b.Listen(l.Addr(), verbs.ListenConfig{})
	c.is("Listen where somebody does", err, syscall.EADDRINUSE)
	dial := func(ctx context.Context, qp verbs.QP) error {
		return c.a.Dial(ctx, l.Addr(), qp, verbs.DialConfig{PrivateData: []byte("please")})
	}
	over, cancel := context.WithCancel(c.ctx)
	cancel()
	_, err = l.Accept(over)
	c.is("Accept, canceled", err, context.Canceled)
	late, cancel := context.WithDeadline(c.ctx, time.Now().Add(50*time.Millisecond))
	defer cancel()
	c.is("Dial, nobody accepts in time", dial(late, e.QP), context.DeadlineExceeded)
	c.is("Dial with a queue pair that failed", dial(c.ctx, e.QP), verbs.ErrHasConn,
		syscall.EISCONN)
	c.is("Dial with a foreign queue pair", c.a.Dial(c.ctx, l.Addr(),
		New(c, c.b, 4096).QP, verbs.DialConfig{}), verbs.ErrForeign, syscall.EINVAL)

	answer := func(f func(r *verbs.ConnRequest)) (done chan struct{}) {
		done = make(chan struct{})
		go func() {
			defer close(done)
			for { // the request of the Dial that gave up may come first
				r, err := l.Accept(c.ctx)
				if err != nil {
					c.Error(err)
					return
				}
				if string(r.PrivateData) == "please, really" {
					f(r)
					return
				}
				r.Reject(nil)
			}
		}()
		return done
	}
	really := func(qp verbs.QP) error {
		return c.a.Dial(c.ctx, l.Addr(), qp,
			verbs.DialConfig{PrivateData: []byte("please, really")})
	}
	done := answer(func(r *verbs.ConnRequest) {
		if err := r.Reject([]byte("no")); err != nil {
			c.Error(err)
		}
		c.is("a second answer", r.Reject(nil), verbs.ErrLapsed, syscall.ECONNABORTED)
	})
	err = really(New(c, c.a, 4096).QP)
	c.is("Dial, rejected", err, verbs.ErrRejected, syscall.ECONNREFUSED)
	var no *verbs.Rejection
	if !errors.As(err, &no) || string(no.PrivateData) != "no" {
		c.Errorf("the rejection is %+v in %v", no, err)
	}
	<-done
	// An Accept whose context ends does not leave a half-open connection.
	done = answer(func(r *verbs.ConnRequest) {
		c.is("Accept of a request, canceled", r.Accept(over, New(c, c.b, 4096).QP, nil),
			context.Canceled)
	})
	given := New(c, c.a, 4096)
	dialled := make(chan error, 1)
	go func() { dialled <- really(given.QP) }()
	<-done
	if err := l.Close(); err != nil { // Dial tries again
		c.Error(err)
	}
	if <-dialled == nil {
		c.down(given.QP)
	}
	_, err = l.Accept(c.ctx)
	c.is("Accept after Close", err, verbs.ErrListenerClosed, net.ErrClosed)
	c.is("Dial, nobody listens", dial(c.ctx, New(c, c.a, 4096).QP), syscall.ECONNREFUSED)
}

// requests posts invalid requests.
func (c *contract) requests() {
	e, peer := New(c, c.a, 4096), New(c, c.b, 4096)
	write := verbs.SendWR{Op: verbs.WRWrite, SGL: []verbs.SGE{e.MR.SGE(0, 8)},
		RemoteSTag: peer.MR.STag()}
	c.is("PostSend without a connection", e.QP.PostSend(&write), verbs.ErrNotReady,
		syscall.ENOTCONN)
	_, err := e.QP.Info()
	c.is("Info without a connection", err, verbs.ErrNotReady)
	long := make([]verbs.SGE, verbs.DefaultSGE+1)
	c.is("PostRecv of too many pieces", e.QP.PostRecv(&verbs.RecvWR{SGL: long}), verbs.ErrInvalid,
		syscall.EINVAL)
	full := New(c, c.a, 4096)
	for i := 0; ; i++ { // a daemon takes some from the queue
		if err := full.QP.PostRecv(&verbs.RecvWR{}); err != nil {
			c.is("PostRecv into a full queue", err, verbs.ErrQueueFull, syscall.ENOMEM)
			break
		} else if i == 4*verbs.DefaultDepth {
			c.Fatal("the receive queue accepts four times its depth")
		}
	}
	Connect(c, e, peer, c.at)
	c.is("PostSend of too many pieces", e.QP.PostSend(&verbs.SendWR{Op: verbs.WRSend, SGL: long}),
		verbs.ErrInvalid, syscall.EINVAL)
	over, cancel := context.WithCancel(c.ctx)
	cancel()
	_, err = peer.CQ.Wait(over, make([]verbs.Completion, 1))
	c.is("Wait, canceled", err, context.Canceled)
	wrong := verbs.SendWR{Op: verbs.WRRead, Flags: verbs.Signaled,
		SGL: []verbs.SGE{e.MR.SGE(0, 8)}, RemoteSTag: ^peer.MR.STag()}
	if err := e.QP.PostSend(&wrong); err != nil {
		c.Fatal(err)
	}
	_, err = verbs.WaitOne(c.ctx, e.CQ)
	var status *verbs.StatusError
	if !errors.As(err, &status) || status.Op != verbs.WRRead || status.Status == verbs.Success {
		c.Errorf("a Read of memory that the peer does not have: %v", err)
	}
	c.down(e.QP)
	var terminate *ulpdu.Error
	if err := e.QP.Err(); !errors.As(err, &terminate) {
		c.Errorf("the connection ended with %v, want the Terminate", err)
	}
	if err := e.QP.Close(); err != nil {
		c.Error(err)
	}
	c.is("PostSend after Close", e.QP.PostSend(&write), net.ErrClosed)
	c.is("PostRecv after Close", e.QP.PostRecv(&verbs.RecvWR{}), net.ErrClosed)
}

// closed closes devices with objects in use.
func (c *contract) closed() {
	e, peer := New(c, c.a, 4096), New(c, c.b, 4096)
	Connect(c, e, peer, c.at)
	srq, err := c.b.CreateSRQ(verbs.SRQConfig{PD: peer.PD})
	if err != nil {
		c.Fatal(err)
	}
	l := c.listen()
	idle := New(c, c.b, 4096)
	waiting := make(chan error, 2)
	go func() {
		_, err := l.Accept(c.ctx)
		waiting <- err
	}()
	go func() {
		_, err := idle.CQ.Wait(c.ctx, make([]verbs.Completion, 1))
		waiting <- err
	}()
	time.Sleep(10 * time.Millisecond) // probably they wait then
	if err := errors.Join(c.b.Close(), c.b.Close()); err != nil {
		c.Error(err)
	}
	for range cap(waiting) {
		c.is("Accept and Wait under the device's Close", <-waiting, net.ErrClosed)
	}
	c.is("PostRecv of a closed device", srq.PostRecv(&verbs.RecvWR{}), net.ErrClosed)
	_, err = c.b.AllocPD()
	c.is("AllocPD of a closed device", err, net.ErrClosed)
	_, err = peer.PD.RegMR(peer.Mem, 0)
	c.is("RegMR of a closed device", err, net.ErrClosed)
	_, err = c.b.CreateQP(verbs.QPConfig{PD: peer.PD, SendCQ: peer.CQ, RecvCQ: peer.CQ})
	c.is("CreateQP of a closed device", err, net.ErrClosed)
	_, err = c.b.CreateCQ(1)
	c.is("CreateCQ of a closed device", err, net.ErrClosed)
	_, err = c.b.Listen(c.at, verbs.ListenConfig{})
	c.is("Listen of a closed device", err, net.ErrClosed)
	_, err = l.Accept(c.ctx)
	c.is("Accept of a closed device", err, net.ErrClosed)
	c.is("PostSend of a closed device", peer.QP.PostSend(&verbs.SendWR{}), net.ErrClosed)
	c.down(e.QP)
	if e.QP.Err() == nil {
		c.Error("the peer sees a graceful close when the device closes")
	}
	if err := c.a.Close(); err != nil {
		c.Error(err)
	}
	c.is("Dial of a closed device", c.a.Dial(c.ctx, l.Addr(), e.QP, verbs.DialConfig{}),
		net.ErrClosed)
}
