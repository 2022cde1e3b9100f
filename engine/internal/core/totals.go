package core

import (
	"errors"
	"slices"

	"xwarp/ddp/rdmap"
	"xwarp/engine/tally"
	"xwarp/engine/verbs"
	"xwarp/mpa"
	"xwarp/tcp"
)

// Totals are the sums of the counters of all connections since the device was opened, including those that ended. They
// never decrease.
type Totals struct {
	RDMA rdmap.Counters
	MPA  mpa.ReceiverCounters
	TCP  tcp.AllCounters // zero on the kernel's sockets
}

// sums are the counters of all connections of a shard. The worker owns them.
type sums struct {
	rdma  tally.Sum[rdmap.Counters]
	mpa   tally.Sum[mpa.ReceiverCounters]
	qps   map[*QP]bool // bound to the shard, and not destroyed
	conns map[*Conn]bool
}

func newSums() sums { return sums{qps: map[*QP]bool{}, conns: map[*Conn]bool{}} }

// addQP adds a queue pair whose rdmap.QP was initialised.
func (s *sums) addQP(q *QP) {
	s.qps[q] = true
	q.counted = tally.Counted[rdmap.Counters]{}
}

// removeQP adds the last counters of a queue pair and removes it.
func (s *sums) removeQP(q *QP) {
	s.countQP(q)
	delete(s.qps, q)
}

func (s *sums) countQP(q *QP) {
	if s.qps[q] {
		s.rdma.Add(&q.counted, &q.rdma.Counters)
	}
}

// AddConn adds a connection.
func (s *sums) AddConn(c *Conn) { s.conns[c] = true }

// removeConn adds the last counters of a connection and removes it.
func (s *sums) removeConn(c *Conn) {
	s.countConn(c)
	delete(s.conns, c)
}

func (s *sums) countConn(c *Conn) {
	if s.conns[c] {
		n := c.iw.Stats()
		s.mpa.Add(&c.counted, &n.ReceiverCounters)
	}
}

// countBatch is the number of objects that a worker counts before it goes on with its packets.
const countBatch = 64

// liveObjects returns the objects of a shard that have counters.
func (s *Shard) liveObjects() (all []any) {
	for q := range s.Sums.qps {
		all = append(all, q)
	}
	for c := range s.Sums.conns {
		all = append(all, c)
	}
	if s.TCP != nil {
		for _, c := range s.TCP.Connections() {
			all = append(all, c)
		}
	}
	return all
}

// count brings the sums up to date with the counters of some objects that liveObjects returned. The counters of objects
// that ended meanwhile are in the sums already.
func (s *Shard) count(some []any) {
	for _, o := range some {
		switch o := o.(type) {
		case *QP:
			s.Sums.countQP(o)
		case *Conn:
			s.Sums.countConn(o)
		case TCPConn:
			o.Count()
		}
	}
}

func (s *Shard) totals() Totals {
	t := Totals{RDMA: s.Sums.rdma.Total(), MPA: s.Sums.mpa.Total()}
	if s.TCP != nil {
		t.TCP = s.TCP.Totals()
	}
	return t
}

// Totals returns the sums. The counters of different connections are read at slightly different times. After Close it
// returns the final sums. It fails with ErrDefect when the tables of a worker are inconsistent.
func (d *Device) Totals() (t Totals, err error) {
	for _, s := range d.shards {
		var all []any
		err := s.Call(func() { all = s.liveObjects() })
		for part := range slices.Chunk(all, countBatch) {
			if err == nil {
				err = s.Call(func() { s.count(part) })
			}
		}
		if err == nil {
			err = s.Call(func() { t = tally.Join(t, s.totals()) })
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

// closeTotals stores the final totals. The workers have ended.
func (d *Device) closeTotals() {
	t := new(Totals)
	for _, s := range d.shards {
		s.count(s.liveObjects())
		*t = tally.Join(*t, s.totals())
	}
	d.final.Store(t)
}
