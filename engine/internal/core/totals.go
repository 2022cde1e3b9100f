package core

import (
	"errors"
	"slices"

	"xwarp/ddp/rdmap"
	"xwarp/engine/stack"
	"xwarp/engine/tally"
	"xwarp/engine/verbs"
	"xwarp/mpa"
)

// Totals are the sums of what all connections of a device counted since it was opened, with those that
// ended. They never fall, and what a connection counted is in them for good.
type Totals struct {
	RDMA rdmap.Counters
	MPA  mpa.ReceiverCounters
	TCP  stack.TCPCounters // zero on the kernel's sockets
}

// sums are what the connections of a loop counted. The worker alone touches them.
type sums struct {
	rdma  tally.Sum[rdmap.Counters]
	mpa   tally.Sum[mpa.ReceiverCounters]
	qps   map[*QP]bool // bound here, and not destroyed
	conns map[*Conn]bool
}

func newSums() sums { return sums{qps: map[*QP]bool{}, conns: map[*Conn]bool{}} }

// enter begins to count a queue pair whose core was made anew.
func (s *sums) enter(q *QP) {
	s.qps[q] = true
	q.counted = tally.Counted[rdmap.Counters]{}
}

// leave counts a queue pair whose core will count no more.
func (s *sums) leave(q *QP) {
	s.countQP(q)
	delete(s.qps, q)
}

func (s *sums) countQP(q *QP) {
	if s.qps[q] {
		s.rdma.Add(&q.counted, &q.core.Counters)
	}
}

// enterConn begins to count a connection.
func (s *sums) EnterConn(c *Conn) { s.conns[c] = true }

// leaveConn counts one that has ended, or never began.
func (s *sums) leaveConn(c *Conn) {
	s.countConn(c)
	delete(s.conns, c)
}

func (s *sums) countConn(c *Conn) {
	if s.conns[c] {
		n := c.iw.Stats()
		s.mpa.Add(&c.counted, &n.ReceiverCounters)
	}
}

// countBatch is how many objects a worker counts before it goes on with its packets.
const countBatch = 64

// living returns the objects of a loop that count.
func (l *Shard) living() (all []any) {
	for q := range l.Sums.qps {
		all = append(all, q)
	}
	for c := range l.Sums.conns {
		all = append(all, c)
	}
	if l.Stack != nil {
		l.Stack.Endpoints(func(e *stack.Endpoint) { all = append(all, e) })
	}
	return all
}

// count brings the sums up to date with some of those objects. What ended meanwhile is in the sums.
func (l *Shard) count(some []any) {
	for _, o := range some {
		switch o := o.(type) {
		case *QP:
			l.Sums.countQP(o)
		case *Conn:
			l.Sums.countConn(o)
		case *stack.Endpoint:
			l.Stack.Count(o)
		}
	}
}

func (l *Shard) totals() Totals {
	t := Totals{RDMA: l.Sums.rdma.Total(), MPA: l.Sums.mpa.Total()}
	if l.Stack != nil {
		t.TCP = l.Stack.Totals()
	}
	return t
}

// Totals returns the sums, which are up to date with each connection at a moment of its own. After Close
// they are the last ones. It fails with ErrDefect where a worker's are in disorder.
func (d *Device) Totals() (t Totals, err error) {
	for _, l := range d.loops {
		var all []any
		err := l.Call(func() { all = l.living() })
		for part := range slices.Chunk(all, countBatch) {
			if err == nil {
				err = l.Call(func() { l.count(part) })
			}
		}
		if err == nil {
			err = l.Call(func() { t = tally.Join(t, l.totals()) })
		}
		switch {
		case err == nil:
		case errors.Is(err, verbs.ErrClosed) && d.final.Load() != nil:
			return *d.final.Load(), nil
		default:
			return t, err
		}
	}
	return t, nil
}

// close takes the last totals. Nobody uses the loops any more.
func (d *Device) closeTotals() {
	t := new(Totals)
	for _, l := range d.loops {
		l.count(l.living())
		*t = tally.Join(*t, l.totals())
	}
	d.final.Store(t)
}
