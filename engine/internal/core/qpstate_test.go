package core

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"xwarp/ddp/rdmap"
	"xwarp/engine/iwarp"
	"xwarp/engine/verbs"
	"xwarp/mpa/startup"
)

// TestLifeTransitions makes each call that changes the state of a queue pair's connection, in each state. The table has
// the resulting state, the error of the call, and the completion of a receive posted before.
func TestLifeTransitions(t *testing.T) {
	names := [...]string{"idle", "attached", "established", "disconnected", "gone", "freed"}
	lost := errors.New("lost")
	calls := []struct {
		name     string
		from, to life // the states in which it can happen
		do       func(q *QP, c *Conn) error
	}{
		{"attach", lifeIdle, lifeFreed, func(q *QP, c *Conn) error { return q.attach(c) }},
		{"detach", lifeAttached, lifeAttached, func(q *QP, c *Conn) error {
			q.detach()
			return nil
		}},
		{"Disconnected", lifeEstablished, lifeDisconnected, func(q *QP, c *Conn) error {
			q.rdma.Lost()
			q.markDisconnected(lost)
			return nil
		}},
		{"Closed", lifeAttached, lifeGone, func(q *QP, c *Conn) error {
			q.rdma.Lost()
			q.markGone(lost)
			return nil
		}},
		{"giveUp", lifeIdle, lifeAttached, func(q *QP, c *Conn) error {
			q.GiveUp(lost)
			return nil
		}},
		{"Disconnect", lifeIdle, lifeFreed, func(q *QP, c *Conn) error { return q.Disconnect() }},
	}
	var got strings.Builder
	for from := lifeIdle; from <= lifeFreed; from++ {
		for _, call := range calls {
			if from < call.from || from > call.to {
				continue
			}
			q, c, cq := lifeOf(t, from)
			err := call.do(q, c)
			l := life(q.life.Load())
			for i := lifeAttached; i <= lifeFreed; i++ {
				if done := isClosed(q.reached[i]); done && l < i {
					t.Errorf("%s, %s: a waiter for %s was woken", names[from], call.name, names[i])
				}
			}
			var done [1]verbs.Completion
			status := "none"
			if n, _ := cq.Poll(done[:]); n == 1 {
				status = done[0].Status.String()
			}
			fmt.Fprintf(&got, "%s, %s: %s, %v, receive: %s\n", names[from], call.name, names[l],
				err,
				status)
		}
	}
	want := strings.TrimLeft(lifeGolden, "\n")
	if d := cmp.Diff(want, got.String()); d != "" {
		t.Errorf("(-want +got):\n%s\n%s", d, got.String())
	}
}

// lifeOf returns a queue pair whose connection is in that state, with one receive posted before it was connected.
func lifeOf(t *testing.T, l life) (*QP, *Conn, verbs.CQ) {
	d := twoLoops()
	pd, err := d.AllocPD()
	cq, err2 := d.CreateCQ(16)
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	v, err := d.CreateQP(verbs.QPConfig{PD: pd, SendCQ: cq, RecvCQ: cq})
	if err != nil {
		t.Fatal(err)
	}
	q := v.(*QP)
	if err := q.PostRecv(&verbs.RecvWR{ID: 1}); err != nil {
		t.Fatal(err)
	}
	c := &Conn{dev: d, qp: q, iw: &iwarp.Conn{}, result: make(chan error, 1)}
	c.Owner.Store(d.shards[0])
	for _, step := range []func(){
		func() { err = q.attach(c) },
		func() {
			err = q.rdma.Start(rdmap.Params{Version: 1})
			q.markEstablished(&startup.Params{})
		},
		func() {
			q.rdma.Lost()
			q.markDisconnected(nil)
		},
		func() { q.markGone(nil) },
		func() { q.Close() },
	}[:l] {
		if step(); err != nil {
			t.Fatal(err)
		}
	}
	if got := life(q.life.Load()); got != l {
		t.Fatalf("life %d, want %d", got, l)
	}
	return q, c, cq
}

const lifeGolden = `
idle, attach: attached, <nil>, receive: none
idle, giveUp: gone, <nil>, receive: WR_FLUSH_ERR
idle, Disconnect: idle, queue pair is not connected, receive: none
attached, attach: attached, queue pair already has or had a connection, receive: none
attached, detach: idle, <nil>, receive: none
attached, Closed: gone, <nil>, receive: WR_FLUSH_ERR
attached, giveUp: gone, <nil>, receive: WR_FLUSH_ERR
attached, Disconnect: attached, <nil>, receive: none
established, attach: established, queue pair already has or had a connection, receive: none
established, Disconnected: disconnected, <nil>, receive: WR_FLUSH_ERR
established, Closed: gone, <nil>, receive: WR_FLUSH_ERR
established, Disconnect: established, <nil>, receive: none
disconnected, attach: disconnected, queue pair already has or had a connection, receive: WR_FLUSH_ERR
disconnected, Disconnected: disconnected, <nil>, receive: WR_FLUSH_ERR
disconnected, Closed: gone, <nil>, receive: WR_FLUSH_ERR
disconnected, Disconnect: disconnected, <nil>, receive: WR_FLUSH_ERR
gone, attach: gone, queue pair already has or had a connection, receive: WR_FLUSH_ERR
gone, Closed: gone, <nil>, receive: WR_FLUSH_ERR
gone, Disconnect: gone, <nil>, receive: WR_FLUSH_ERR
freed, attach: freed, closed, receive: WR_FLUSH_ERR
freed, Disconnect: freed, <nil>, receive: WR_FLUSH_ERR
`
