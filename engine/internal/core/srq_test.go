package core

import (
	"testing"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine/verbs"
)

// idleWorker is a Worker that does nothing.
type idleWorker struct{}

func (idleWorker) Wake()         {}
func (idleWorker) Notify(func()) {}

// TestStarvedDoesNotSpin: incomplete messages hold all places of a worker's part of a shared receive queue. A queue
// pair whose message begins to wait for a receive must not be retried before one of the places is free, although a
// receive is posted. Otherwise a peer could keep the worker busy.
func TestStarvedDoesNotSpin(t *testing.T) {
	l := NewShard(idleWorker{})
	local, err := rdmap.NewSRQ(rdmap.SRQConfig{Table: l.table, PD: new(ddp.PD), Depth: 1,
		MaxSGE: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := &SRQ{locals: []*rdmap.SRQ{local}}
	s.posted, _ = newFIFO[int32](2)
	s.posted.Push(new(int32))
	q := &QP{srq: s}
	q.shard.Store(l)
	for _, full := range []bool{false, true} {
		if full {
			if err := local.PostRecv(&rdmap.RecvWR{}); err != nil {
				t.Fatal(err)
			}
		}
		l.rung.Store(nil)
		q.doorbell.rung.Store(false)
		s.addStarved(q)
		if rings := l.rung.Load() != nil; rings == full {
			t.Errorf("all places are taken: %v, and the doorbell rings: %v", full, rings)
		}
	}
	s.starved.ring() // as Complete does
	if l.rung.Load() == nil {
		t.Error("the doorbell does not ring once a place is free")
	}
}

// TestReceiveWakesEveryStarved posts one receive while messages of three queue pairs wait. Each queue pair must retry,
// since only its worker can decide which message gets it. A wait that starts after PostRecv ends at once.
func TestReceiveWakesEveryStarved(t *testing.T) {
	l := NewShard(idleWorker{})
	l.dev = &Device{shards: []*Shard{l}}
	pd := &PD{dev: l.dev, pds: []*ddp.PD{new(ddp.PD)}}
	s, err := l.dev.createSRQ((&verbs.SRQConfig{PD: pd}).Complete())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.localFor(l); err != nil {
		t.Fatal(err)
	}
	var early [3]*QP
	late := &QP{srq: s}
	late.shard.Store(l)
	for i := range early {
		early[i] = &QP{srq: s}
		early[i].shard.Store(l)
		s.addStarved(early[i])
	}
	if l.rung.Load() != nil {
		t.Error("a doorbell rings without a receive")
	}
	if err := s.PostRecv(&verbs.RecvWR{}); err != nil {
		t.Fatal(err)
	}
	s.addStarved(late)
	for i, q := range append(early[:], late) {
		if !q.doorbell.rung.Load() {
			t.Errorf("the doorbell of queue pair %d does not ring", i)
		}
	}
}
