package sim

import (
	"errors"
	"fmt"
	"sync/atomic"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/mpa/ulpdu"
)

// lateSeen counts, over all scenarios, the connections with late receives: those where every message found its receive
// in time, and those that ended because one did not.
var lateSeen struct{ inTime, refused atomic.Uint64 }

// lateReceives draws whether both ends post their receives late, some of them after the Send has arrived. RDMAP then
// must end the stream (RFC 5040, 7.1; RFC 5041, 7.1).
func (w *wide) lateReceives(cfg *rdmaConfig, name string) {
	drawn := w.rnd
	defer func() { w.rnd = drawn }()
	w.draws("late receives of " + name)
	if cfg.early == endGraceful && !cfg.srq && w.one(5) && !w.off("late receives") {
		cfg.early = endLate
		cfg.late = pick(w.rnd, 0, 20*us, ms, 100*ms)
	}
}

// inTime returns how many receives e posts before it starts.
func (e *rdmaEnd) inTime() int {
	if e.c.cfg.early != endLate {
		return min(len(e.recvs), recvDepth)
	}
	return len(e.recvs) / 2
}

// postNext replaces completed receives.
func (e *rdmaEnd) postNext() {
	for e.c.cfg.early != endLate && e.recvPosted < min(len(e.recvs), e.recvDone+recvDepth) {
		if err := e.postRecv(); err != nil {
			return
		}
	}
}

// postRecv posts the next receive.
func (e *rdmaEnd) postRecv() error {
	b := &e.recvs[e.recvPosted]
	err := e.qp.PostRecv(&rdmap.RecvWR{ID: uint64(e.recvPosted),
		SGL: []rdmap.SGE{{STag: e.mr.STag(), TO: ddp.TO(b.off), Len: uint32(b.n)}}})
	if err == nil {
		e.recvPosted++
	}
	return err
}

// postLate posts one more receive after some time, and repeats that until all are posted.
func (e *rdmaEnd) postLate() {
	if e.c.cfg.early != endLate || e.lateDue || !e.up || e.recvPosted == len(e.recvs) {
		return
	}
	e.lateDue = true
	e.c.s.world.After(e.c.cfg.late, func() {
		e.lateDue = false
		if !e.alive() || e.closed > 0 {
			return
		}
		switch err := e.postRecv(); {
		case errors.Is(err, rdmap.ErrState): // one of the others was late
			e.lateDue = true
		case err != nil:
			e.fail("PostRecv: %v", err)
		}
		e.wake()
	})
}

// lostCode is the MPA error of a connection that was closed, terminated or lost (RFC 5044, 8).
const lostCode = 1

// lateVerdict checks that each message found its receive, or that an end with missing receives ended the stream for
// that reason and the other end was told. On a path that loses or drops segments, the Terminate may arrive after the
// close timeout.
func (c *rdmaConn) lateVerdict() error {
	if c.mayFail() || c.cfg.badOp || !c.a.alive() || !c.b.alive() {
		return nil
	}
	refused, lost, missing := 0, 0, 0
	for _, e := range []*rdmaEnd{c.a, c.b} {
		if e.recvPosted < len(e.recvs) {
			missing++
		}
		err := e.qp.Err()
		if err == nil {
			continue
		}
		switch no := ddp.CauseNoBuffer; {
		case err.Layer == no.Layer() && err.Type == no.Type() && err.Code == no.Code():
			refused++
		case (c.s.swallows || c.s.loses) && err.Layer == ulpdu.MPA && err.Code == lostCode:
			lost++
		default:
			return fmt.Errorf("end %s: %w, although only receives can be missing", e.name, err)
		}
	}
	switch {
	case lost > 0 && refused == 0:
		return errors.New("the connection was lost, although only receives can be missing")
	case refused > 0 && missing == 0:
		return errors.New("a message found no receive, and all are posted")
	case refused > 0:
		lateSeen.refused.Add(1)
		return nil
	}
	for _, e := range []*rdmaEnd{c.a, c.b} {
		if err := e.whole(); err != nil {
			return fmt.Errorf("end %s: %w", e.name, err)
		}
	}
	if len(c.a.recvs)+len(c.b.recvs) > c.a.inTime()+c.b.inTime() {
		lateSeen.inTime.Add(1)
	}
	return nil
}
