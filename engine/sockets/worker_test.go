package sockets

import (
	"testing"
	"xwarp/engine/internal/core"
)

// TestLeastLoadedWorker: connections that arrive together are distributed to the workers in turn, and later ones to the
// worker with the fewest connections.
func TestLeastLoadedWorker(t *testing.T) {
	k := &Driver{workers: []*worker{{}, {}, {}}}
	for range 4 {
		seen := map[*worker]bool{}
		for range k.workers {
			seen[k.leastLoaded()] = true
		}
		if len(seen) != len(k.workers) {
			t.Fatalf("three connections at once have %d workers of %d", len(seen), len(k.workers))
		}
	}
	idle := k.workers[1]
	for _, w := range k.workers {
		w.addConn(&conn{})
		w.addConn(&conn{})
	}
	idle.removeConn(0)
	for range 6 {
		if k.leastLoaded() != idle {
			t.Fatal("a worker with more connections than another has the next one")
		}
	}
}

// TestStepsOfOwners: on sockets, the connection of one user is stepped in a turn in which 30 connections of another
// user have work, too. A turn steps at most core.StepsPerTurn connections, and later turns step the others.
func TestStepsOfOwners(t *testing.T) {
	w := &worker{shard: core.NewShard(sleeping{})}
	var hostile, honest core.Share
	for range 30 {
		w.addConn(&conn{worker: w, share: &hostile, hasWork: true, ended: true})
	}
	slot := w.addConn(&conn{worker: w, share: &honest, hasWork: true, ended: true})
	w.stepConns(0) // each connection has ended, so its slot is free after its turn
	if w.slots[slot] != nil {
		t.Error("the other user's connection had no turn")
	}
	if n := len(w.free); n > core.StepsPerTurn {
		t.Errorf("%d connections were served in one turn, want at most %d", n, core.StepsPerTurn)
	}
	for range 30 {
		w.stepConns(0)
	}
	if len(w.free) != 31 {
		t.Errorf("%d connections of 31 had a turn", len(w.free))
	}
}

// sleeping is the worker of a shard that runs when the test requests it.
type sleeping struct{}

func (sleeping) Wake()           {}
func (sleeping) Notify(f func()) { f() }
