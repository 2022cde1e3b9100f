package client_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine/daemon/client"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
)

// shareSRQ gives e n queue pairs that share one receive queue, in place of e's own.
func shareSRQ(t *testing.T, e *verbstest.End, n int, cfg verbs.SRQConfig) (verbs.SRQ,
	[]*verbstest.End) {
	t.Helper()
	cfg.PD = e.PD
	srq, err := e.Dev.CreateSRQ(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var list []*verbstest.End
	for range n {
		x := *e
		if x.Endpoint, err = verbs.NewEndpoint(e.Dev, verbs.EndpointConfig{QPConfig: verbs.QPConfig{
			PD: e.PD, SendCQ: e.CQ, RecvCQ: e.CQ, SRQ: srq, RecvDepth: 8}}); err != nil {
			t.Fatal(err)
		}
		list = append(list, &x)
	}
	return srq, list
}

// TestSRQ: the peers of several queue pairs consume receives of one queue, and the program gets the limit event.
//
//req:rfc5040-8.1.2-8 rfc5042-6.4.3.1-1
func TestSRQ(t *testing.T) {
	_, socket := kernelDaemon(t, "")
	const qps, size, rounds = 3, 256, 200
	b := verbstest.New(t, open(t, socket), 64*size)
	reached := make(chan struct{}, 8)
	srq, ends := shareSRQ(t, b, qps, verbs.SRQConfig{Depth: 64, MaxSGE: 2,
		Limit: func() { reached <- struct{}{} }})
	post := func(id int) {
		t.Helper()
		list := []verbs.SGE{b.MR.SGE(id*size, 10), b.MR.SGE(id*size+10, size-10)}
		if err := srq.PostRecv(&verbs.RecvWR{ID: uint64(id), SGL: list}); err != nil {
			t.Fatal(err)
		}
	}
	for id := range 64 {
		post(id)
	}
	peer := open(t, socket)
	var peers []*verbstest.End
	for _, e := range ends {
		a := verbstest.New(t, peer, size)
		verbstest.Connect(t, a, e, loopback)
		peers = append(peers, a)
	}
	for i := range rounds { // each queue pair has one message at a time, the shared queue several
		for j, a := range peers {
			a.Mem[0], a.Mem[size-1] = byte(i), byte(j)
			a.Post(verbs.SendWR{ID: 1, Op: rdmap.WRSend, SGL: []verbs.SGE{a.MR.SGE(0, size)}})
		}
		for range peers {
			c := b.Wait()
			m := b.Mem[c.ID*size:]
			if j := int(m[size-1]); m[0] != byte(i) || c.QP != ends[j].QP || c.ByteLen != size {
				t.Fatalf("round %d: %+v holds %d of peer %d", i, c, m[0], j)
			}
			post(int(c.ID))
		}
		for _, a := range peers {
			a.Wait()
		}
	}
	if n := srq.Len(); n != 64 {
		t.Errorf("%d receives wait, of 64", n)
	}
	send := func() {
		peers[0].Post(verbs.SendWR{Op: rdmap.WRSend, SGL: []verbs.SGE{peers[0].MR.SGE(0, 1)}})
		peers[0].Wait()
		b.Wait()
	}
	if err := srq.Arm(63); err != nil || srq.Limit() != 63 {
		t.Fatalf("%v, limit %d", err, srq.Limit())
	}
	send() // 63 wait
	select {
	case <-reached:
		t.Error("the limit is reached while as many are left as it says")
	default:
	}
	send()
	<-reached
	if srq.Limit() != 0 || srq.Len() != 62 {
		t.Errorf("limit %d, %d wait", srq.Limit(), srq.Len())
	}
	send()
	if err := srq.Arm(64); err != nil { // the event comes at once, because only 61 receives wait
		t.Fatal(err)
	}
	<-reached
	closeSRQ(t, b, srq, ends)
}

// closeSRQ closes everything in the only permitted order.
func closeSRQ(t *testing.T, b *verbstest.End, srq verbs.SRQ, ends []*verbstest.End) {
	t.Helper()
	if err := srq.Close(); !errors.Is(err, ddp.ErrBusy) {
		t.Errorf("closing a queue that is in use: %v", err)
	}
	for _, e := range ends {
		if err := e.QP.Close(); err != nil {
			t.Error(err)
		}
	}
	b.QP.Close()
	b.MR.Close()
	if err := b.PD.Close(); !errors.Is(err, ddp.ErrBusy) {
		t.Errorf("closing the domain of a queue: %v", err)
	}
	if err := errors.Join(srq.Close(), srq.Close(), b.PD.Close()); err != nil {
		t.Error(err)
	}
	if err := srq.PostRecv(&verbs.RecvWR{}); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("posting to a closed queue: %v", err)
	}
}

// TestSRQEmpty: a message that finds no receive ends its connection, and no other.
func TestSRQEmpty(t *testing.T) {
	_, socket := kernelDaemon(t, "")
	b := verbstest.New(t, open(t, socket), 4096)
	srq, ends := shareSRQ(t, b, 2, verbs.SRQConfig{})
	peer := open(t, socket)
	first, second := verbstest.New(t, peer, 64), verbstest.New(t, peer, 64)
	verbstest.Connect(t, first, ends[0], loopback)
	verbstest.Connect(t, second, ends[1], loopback)
	if err := first.QP.PostSend(&verbs.SendWR{Op: rdmap.WRSend, Inline: []byte{1}}); err != nil {
		t.Fatal(err)
	}
	<-ends[0].QP.Done()
	<-first.QP.Done()
	if first.QP.Err() == nil || !strings.Contains(first.QP.Err().Error(), "no buffer") {
		t.Errorf("the sender: %v", first.QP.Err())
	}
	if err := srq.PostRecv(&verbs.RecvWR{ID: 5, SGL: []verbs.SGE{b.MR.SGE(0, 8)}}); err != nil {
		t.Fatal(err)
	}
	if n := srq.Len(); n != 1 {
		t.Fatalf("%d receives wait", n)
	}
	second.Post(verbs.SendWR{Op: rdmap.WRSend, Inline: []byte{7}})
	if c := b.Wait(); c.ID != 5 || b.Mem[0] != 7 || c.QP != ends[1].QP {
		t.Errorf("%+v", c)
	}
}

// TestSRQBounds: invalid values, objects of other programs, receives beyond the depth, and queues beyond limits.srqs
// are refused.
func TestSRQBounds(t *testing.T) {
	_, socket := kernelDaemon(t, "[limits]\nsrqs = 2\n")
	b := verbstest.New(t, open(t, socket), 4096)
	other := verbstest.New(t, open(t, socket), 4096)
	invalid := func(what string, err error) {
		t.Helper()
		if err == nil {
			t.Error(what + " is accepted")
		}
	}
	for _, c := range []verbs.SRQConfig{
		{Depth: -1}, {Depth: 1 << 20}, {MaxSGE: -1}, {MaxSGE: 100},
	} {
		c.PD = b.PD
		_, err := b.Dev.CreateSRQ(c)
		invalid("a wrong number", err)
	}
	_, err := b.Dev.CreateSRQ(verbs.SRQConfig{PD: other.PD})
	invalid("a domain of another program", err)
	srq, ends := shareSRQ(t, b, 1, verbs.SRQConfig{Depth: 4, MaxSGE: 1})
	invalid("a limit of more than there are", srq.Arm(5))
	invalid("a negative limit", srq.Arm(-1))
	invalid("too many pieces", srq.PostRecv(&verbs.RecvWR{SGL: make([]verbs.SGE, 2)}))
	invalid("a receive of its own", ends[0].QP.PostRecv(&verbs.RecvWR{}))
	pd, err := b.Dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Dev.CreateQP(verbs.QPConfig{PD: pd, SendCQ: b.CQ, RecvCQ: b.CQ, SRQ: srq})
	invalid("a queue pair of another domain", err)
	_, err = other.Dev.CreateQP(verbs.QPConfig{PD: other.PD, SendCQ: other.CQ, RecvCQ: other.CQ,
		SRQ: srq})
	invalid("a queue of another program", err)
	for i := range 100 { // more than the ring and the daemon's queue hold
		if err = srq.PostRecv(&verbs.RecvWR{ID: uint64(i)}); err != nil {
			break
		}
	}
	if !errors.Is(err, verbs.ErrQueueFull) {
		t.Errorf("a hundred receives in a queue of 4: %v", err)
	}
	if _, err := b.Dev.CreateSRQ(verbs.SRQConfig{PD: b.PD}); err != nil {
		t.Fatal(err)
	}
	_, err = b.Dev.CreateSRQ(verbs.SRQConfig{PD: b.PD})
	if err == nil || !strings.Contains(err.Error(), "limits.srqs") {
		t.Errorf("a third queue: %v", err)
	}
	b.Dev.Close()
	if _, err := other.Dev.CreateSRQ(verbs.SRQConfig{PD: other.PD}); err != nil {
		// The daemon releases a program's resources after the program ends.
		stop := time.Now().Add(20 * time.Second)
		for err != nil && time.Now().Before(stop) {
			_, err = other.Dev.CreateSRQ(verbs.SRQConfig{PD: other.PD})
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// TestSRQManySenders: the peers of many queue pairs send at once to a queue that never runs empty.
func TestSRQManySenders(t *testing.T) {
	_, socket := kernelDaemon(t, "")
	const qps, window, each = 8, 4, 500
	b := verbstest.New(t, open(t, socket), qps*window*64)
	srq, ends := shareSRQ(t, b, qps, verbs.SRQConfig{Depth: qps * window})
	post := func(id uint64) {
		if err := srq.PostRecv(&verbs.RecvWR{ID: id,
			SGL: []verbs.SGE{b.MR.SGE(int(id)*64, 64)}}); err != nil {
			t.Fatal(err)
		}
	}
	for id := range uint64(qps * window) {
		post(id)
	}
	peer := open(t, socket)
	done := make(chan error, qps)
	for _, e := range ends {
		a := verbstest.New(t, peer, 64)
		verbstest.Connect(t, a, e, netip.MustParseAddrPort("127.0.0.1:0"))
		for range window {
			if err := a.QP.PostRecv(&verbs.RecvWR{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := a.QP.Info(); err != nil { // when it returns, the daemon has the receives
			t.Fatal(err)
		}
		go func() { done <- sendAnswered(a, window, each) }()
	}
	for range qps * each {
		c := b.Wait()
		for c.Op != rdmap.WRRecv {
			c = b.Wait()
		}
		post(c.ID)
		if err := c.QP.(*client.QP).PostSend(&verbs.SendWR{Op: rdmap.WRSend}); err != nil {
			t.Fatal(err)
		}
	}
	for range qps {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// sendAnswered sends messages and waits for replies, with at most window outstanding.
func sendAnswered(a *verbstest.End, window, n int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for sent, answered := 0, 0; answered < n; {
		for ; sent < n && sent-answered < window; sent++ {
			wr := verbs.SendWR{Op: rdmap.WRSend, Inline: []byte("x")}
			if err := a.QP.PostSend(&wr); err != nil {
				return err
			}
		}
		var c [8]verbs.Completion
		k, err := a.CQ.Wait(ctx, c[:])
		if err != nil {
			return err
		}
		for i := range c[:k] {
			if err := c[i].Err(); err != nil {
				return err
			}
			answered++
			if err := a.QP.PostRecv(&verbs.RecvWR{}); err != nil {
				return err
			}
		}
	}
	return nil
}
