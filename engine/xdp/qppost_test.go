package xdp_test

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"xwarp/bench/topo"
	"xwarp/ddp/rdmap"
	"xwarp/engine/internal/core"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
)

// onWorker provides a Config.Consumer, turn, which calls the function of the current run.
type onWorker struct {
	f atomic.Pointer[func(queue int) bool]
}

func (o *onWorker) turn(queue int) bool {
	f := o.f.Load()
	return f != nil && (*f)(queue)
}

// run makes turn call f until f reports that it is done, or returns an error.
func (o *onWorker) run(t *testing.T, f func(queue int) (done bool, err error)) {
	t.Helper()
	end := make(chan error, 1)
	turn := func(queue int) bool {
		done, err := f(queue)
		if done || err != nil {
			o.f.Store(nil)
			end <- err
		}
		return true
	}
	o.f.Store(&turn)
	select {
	case err := <-end:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(60 * time.Second):
		t.Fatal("the consumer is not done")
	}
}

// TestPostOn posts requests from Config.Consumer, in random order by PostSend and PostSendOn, and by PostRecv and
// PostRecvOn. It posts more sends than their queue holds. The requests must stay in order, none may be lost, and a full
// send queue must return ErrQueueFull. A send before the connection returns ErrNotReady. Requests after its end
// complete as flushed.
func TestPostOn(t *testing.T) {
	var o onWorker
	da, db, net := xdpPair(t, topo.Options{}, func(c *xdp.Config) { c.Consumer = nil })
	da.Close()
	var err error
	if err = net.A.Do(func() (err error) {
		da, err = xdp.Open(xdp.Config{Interface: net.A.Link.Name, Consumer: o.turn})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer da.Close()
	a, b := verbstest.New(t, da, 4096), verbstest.New(t, db, 4096)
	if a.QP, err = da.CreateQP(verbs.QPConfig{PD: a.PD, SendCQ: a.CQ, RecvCQ: a.CQ, SendDepth: 16,
		RecvDepth: 64}); err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(5, 6))
	recv := func(queue int, id uint64) error {
		wr := verbs.RecvWR{ID: id, SGL: []verbs.SGE{a.MR.SGE(0, 8)}}
		if rnd.IntN(3) == 0 {
			return a.QP.PostRecv(&wr)
		}
		return a.QP.(*core.QP).PostRecvOn(queue, &wr)
	}
	send := func(queue int, id uint64) error {
		wr := verbs.SendWR{ID: id, Op: rdmap.WRWrite, Flags: rdmap.Signaled,
			SGL: []verbs.SGE{a.MR.SGE(0, 8)}, RemoteSTag: b.MR.STag()}
		switch rnd.IntN(8) {
		case 0:
			return a.QP.PostSend(&wr)
		case 1:
			return a.QP.(*core.QP).PostSendOn(queue+1, &wr) // not the queue of the connection's worker: as PostSend
		}
		return a.QP.(*core.QP).PostSendOn(queue, &wr)
	}
	o.run(t, func(queue int) (bool, error) { // before there is a connection
		if err := send(queue, 0); !errors.Is(err, verbs.ErrNotReady) {
			return true, errors.New("a send was taken without a connection")
		}
		return true, errors.Join(recv(queue, 0), recv(queue, 1))
	})
	verbstest.Connect(t, a, b, netip.AddrPortFrom(net.B.Addr4.Addr(), 7174))

	const sends, receives = 400, 60 // not more, because each burst waits for a delayed acknowledgement
	posted, full := uint64(0), 0
	var sent, received uint64
	next := uint64(2)
	batch := make([]verbs.Completion, 32)
	poll := func() error {
		n, err := a.CQ.Poll(batch)
		for _, c := range batch[:n] {
			want := &sent
			if c.Op == rdmap.WRRecv {
				want = &received
			}
			if c.Status != rdmap.Success || c.ID != *want {
				return errors.Join(err, errors.New("a completion failed or is out of order"))
			}
			*want++
		}
		return err
	}
	o.run(t, func(queue int) (bool, error) {
		if next < receives {
			next++
			return false, recv(queue, next-1)
		}
		for range rnd.IntN(40) {
			if posted == sends {
				break
			}
			err := send(queue, posted)
			if errors.Is(err, verbs.ErrQueueFull) {
				full++
				break
			}
			if err != nil {
				return false, err
			}
			posted++
		}
		return sent == sends, poll()
	})
	if full == 0 {
		t.Error("the queue was never full")
	}
	for range receives {
		b.Post(verbs.SendWR{Op: rdmap.WRSend, SGL: []verbs.SGE{b.MR.SGE(0, 8)}})
		b.Wait()
	}
	o.run(t, func(int) (bool, error) { return received == receives, poll() })

	// After the end of the connection, requests posted with either method complete as flushed.
	b.QP.Close()
	<-a.QP.(*core.QP).Gone()
	flushed, queued := 0, 0
	o.run(t, func(queue int) (bool, error) {
		if queued < 8 {
			queued++
			return false, send(queue, uint64(queued))
		}
		n, err := a.CQ.Poll(batch)
		for _, c := range batch[:n] {
			if c.Status != rdmap.WRFlushErr {
				return false, errors.New("a request on a dead connection did not end as flushed")
			}
			flushed++
		}
		return flushed >= queued, err
	})
}
