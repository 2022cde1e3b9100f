package core

import (
	"errors"
	"testing"
	"time"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine/iwarp"
	"xwarp/engine/verbs"
	"xwarp/mpa/startup"
)

// greedy is a queue pair of a program that posts again with each completion, many times.
type greedy struct {
	*QP
	again func(g *greedy) error
	done  int // completions
	bind  verbs.SendWR
}

const manyTimes = 50 * 1024

// newGreedy returns an established queue pair on the first worker of d. From then on, the worker runs when the test
// requests it.
func newGreedy(t *testing.T, d *Device, owner any, again func(g *greedy) error) *greedy {
	t.Helper()
	s := d.shards[0]
	s.thread = &atOnce{s}
	g := &greedy{again: again}
	cq := NewSinkCQ(func(*verbs.Completion, *Shard) bool {
		if g.done++; g.done < manyTimes {
			if err := g.again(g); err != nil {
				t.Error(err)
			}
		}
		return true
	})
	pd, err := d.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	mr, err := pd.RegMR(make([]byte, 8), verbs.LocalWrite|verbs.BindMW)
	w, err2 := pd.AllocMW()
	v, err3 := d.CreateQP(verbs.QPConfig{PD: pd, SendCQ: cq, RecvCQ: cq, RecvDepth: 8192,
		MaxSGE: 2})
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	g.bind = verbs.SendWR{Op: rdmap.WRBindMW, Flags: rdmap.Signaled, RemoteSTag: w.STag(),
		Region: mr.STag(), Data: 8, Access: verbs.RemoteRead}
	g.QP = v.(*QP)
	g.SetUser(owner)
	c := &Conn{dev: d, qp: g.QP, iw: &iwarp.Conn{}, result: make(chan error, 1)}
	c.Owner.Store(s)
	if err := errors.Join(g.attach(c), g.rdma.Start(rdmap.Params{Version: ddp.IETF})); err != nil {
		t.Fatal(err)
	}
	g.markEstablished(&startup.Params{})
	s.thread = &asleep{}
	return g
}

// twoPieces posts a Read into two pieces, which is refused.
func twoPieces(g *greedy) error {
	return g.PostSend(&verbs.SendWR{Op: rdmap.WRRead, SGL: make([]verbs.SGE, 2)})
}

// binding posts another bind of a window.
func binding(g *greedy) error {
	g.bind.RemoteSTag = g.bind.RemoteSTag&^0xff | ddp.STag(g.done&0xff)
	return g.PostSend(&g.bind)
}

func receive(g *greedy) error { return g.PostRecv(&verbs.RecvWR{}) }

// TestTurnIsBounded: however much a program posts, one turn of its worker ends, and later turns continue with the rest.
func TestTurnIsBounded(t *testing.T) {
	work := func(g *greedy) { g.dev.shards[0].RunPosted() }
	pull := func(g *greedy) { g.takeUnrung() }
	for name, tc := range map[string]struct {
		again  func(g *greedy) error
		dead   bool // the connection has ended
		shared bool // another user has a queue pair on the worker
		turn   func(g *greedy)
		most   int // completions in one turn
	}{
		"refused":                 {twoPieces, false, false, work, 1024},
		"binding":                 {binding, false, false, work, 1024},
		"flushed":                 {twoPieces, true, false, work, 1024},
		"flushed receives":        {receive, true, false, work, 1024},
		"at transmission":         {twoPieces, false, false, pull, 256},
		"refused, shared":         {twoPieces, false, true, work, 64},
		"binding, shared":         {binding, false, true, work, 64},
		"flushed, shared":         {twoPieces, true, true, work, 64},
		"at transmission, shared": {twoPieces, false, true, pull, 32},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGreedy(t, twoLoops(), nil, tc.again)
			if tc.shared {
				newGreedy(t, g.dev, "another", nil)
			}
			if tc.dead {
				g.rdma.Lost()
				g.markDisconnected(nil)
			}
			if err := g.again(g); err != nil {
				t.Fatal(err)
			}
			tc.turn(g)
			if g.done == 0 || g.done > tc.most {
				t.Errorf("%d completions in one turn, want 1 to %d", g.done, tc.most)
			}
			for turns := 0; g.done < manyTimes; turns++ {
				if work(g); turns > manyTimes {
					t.Fatalf("%d completions after %d turns", g.done, turns)
				}
			}
		})
	}
}

// TestRefillIsBounded: a message that finds no receive makes a worker fetch some of the posted ones, not all.
func TestRefillIsBounded(t *testing.T) {
	g := newGreedy(t, twoLoops(), nil, nil)
	for g.PostRecv(&verbs.RecvWR{}) == nil {
	}
	before := g.rq.len()
	g.refill()
	if n := before - g.rq.len(); n == 0 || n > 256 {
		t.Errorf("%d of %d receives were fetched at once", n, before)
	}
}

// TestMailIsBounded: functions that post further functions to the worker do not keep it busy.
func TestMailIsBounded(t *testing.T) {
	s := NewShard(&asleep{})
	ran := 0
	var f func()
	f = func() {
		if ran++; ran < manyTimes/2 {
			s.Post(f)
		}
	}
	for range manyTimes / 2 {
		s.Post(f)
	}
	if s.RunPosted(); ran == 0 || ran > 64 {
		t.Errorf("%d functions ran in one turn, want 1 to 64", ran)
	}
	for turns := 0; s.HasPosted() && turns < manyTimes; turns++ {
		s.RunPosted()
	}
	if want := manyTimes - 1; ran != want {
		t.Errorf("%d functions ran of %d", ran, want)
	}
}

// TestSlowMailIsBounded: a turn starts no further function after mailTime.
func TestSlowMailIsBounded(t *testing.T) {
	s := NewShard(&asleep{})
	ran := 0
	for range 8 {
		s.Post(func() { ran++; time.Sleep(mailTime) })
	}
	for turn := 1; turn <= 8; turn++ {
		if s.RunPosted(); ran != turn {
			t.Fatalf("%d functions ran in %d turns, want one a turn", ran, turn)
		}
	}
	if s.HasPosted() {
		t.Error("functions are left")
	}
}

// TestOwnersHaveTurns: the request of a user with one queue pair is served in the next turn, although 30 queue pairs of
// another user post continuously. The 30 get about equally many turns.
func TestOwnersHaveTurns(t *testing.T) {
	d := twoLoops()
	var hostile []*greedy
	for range 30 {
		hostile = append(hostile, newGreedy(t, d, "hostile", twoPieces))
	}
	honest := newGreedy(t, d, "honest", func(*greedy) error { return nil })
	for _, g := range hostile {
		if err := g.again(g); err != nil {
			t.Fatal(err)
		}
	}
	total := func() (n int) {
		for _, g := range hostile {
			n += g.done
		}
		return n
	}
	const turns = 100
	for i := range turns {
		before := total()
		if err := twoPieces(honest); err != nil {
			t.Fatal(err)
		}
		if d.shards[0].RunPosted(); honest.done != i+1 {
			t.Fatalf("turn %d: the honest user's request is not done after %d requests of another", i,
				total()-before)
		}
	}
	mean := total() / len(hostile)
	for i, g := range hostile {
		if g.done < mean/2 || g.done > 2*mean {
			t.Errorf("queue pair %d of one user has had %d requests, the mean is %d", i, g.done,
				mean)
		}
	}
	if n := len(d.shards[0].shares); n != 2 {
		t.Errorf("%d owners on the worker, want 2", n)
	}
	for _, g := range hostile {
		g.again = func(*greedy) error { return nil }
	}
	d.shards[0].thread = &atOnce{d.shards[0]}
	honest.markGone(nil)
	honest.Close()
	if n := len(d.shards[0].shares); n != 1 {
		t.Errorf("%d owners on the worker after the last queue pair of one was destroyed, want 1", n)
	}
}

// TestCloseFlushesAll: a queue pair with more posted requests than one turn handles completes all of them before Close
// returns.
func TestCloseFlushesAll(t *testing.T) {
	d := twoLoops()
	g := newGreedy(t, d, nil, func(*greedy) error { return nil })
	posted := 0
	for g.PostRecv(&verbs.RecvWR{}) == nil {
		posted++
	}
	g.markGone(nil)
	d.shards[0].thread = &atOnce{d.shards[0]}
	g.Close()
	if g.done != posted || posted < 4096 {
		t.Errorf("%d completions of %d receives", g.done, posted)
	}
}
