package stack

import (
	"fmt"
	"runtime/debug"

	"xwarp/ring"
	"xwarp/tcp"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// Defect is a panic while the Stack was at work: a fault of this program. It ended the connection that was
// being served, and left the others alone.
type Defect struct {
	Tuple tcp.Tuple // of that connection; the zero Tuple: there was none
	Value any       // of panic
	Trace []byte
}

func (d *Defect) Error() string { return fmt.Sprintf("internal error: %v", d.Value) }

// setCurrent notes whose turn it is. Others may read that while the worker is stuck; the store costs more than the
// comparison.
func (s *Stack) setCurrent(e *Endpoint) {
	if s.current.Load() != e {
		s.storeCurrent(e)
	}
}

func (s *Stack) storeCurrent(e *Endpoint) { s.current.Store(e) }

// Serving returns the connection that is or was served last; the zero Tuple: none. Any goroutine may call it.
func (s *Stack) Serving() (t tcp.Tuple) {
	if e := s.current.Load(); e != nil {
		t = e.tuple // never changes
	}
	return t
}

// contain is deferred around the service of many connections. After a panic it ends the one that was being
// served, if Config.Defect is set, and the caller goes on with the next one. One guard for a batch costs
// nothing for each segment.
func (s *Stack) contain(now tick.Time) {
	if s.cfg.Defect == nil {
		return
	}
	v := recover()
	if v == nil {
		return
	}
	e := s.current.Load()
	s.via = nil
	s.giveBack()
	if e != nil && e.recovers(v) {
		e.conn.Finish(now) // of a segment that was being received
		e.advance()
		s.mark(e)
		return
	}
	d := &Defect{Tuple: s.Serving(), Value: v, Trace: debug.Stack()}
	s.current.Store(nil)
	if e != nil {
		s.Abandon(e, d, now)
	}
	s.stats.Panics++
	s.cfg.Defect(d)
}

// recovers reports whether the layer above e survives a panic with v.
func (e *Endpoint) recovers(v any) bool {
	u, ok := e.upper.(Recoverer)
	return ok && u.Recover(v)
}

// giveBack returns the frames that the work which panicked held.
func (s *Stack) giveBack() {
	if i := s.holding; i > 0 {
		s.holding = 0
		s.port.Release(&s.batch[i-1])
	}
	if s.filling {
		s.filling = false
		s.port.CancelTx(ring.NewTxBuf(nil, s.slot))
	}
	for _, buf := range s.block.slots {
		s.port.CancelTx(buf)
	}
	s.block.slots = s.block.slots[:0]
}

// Abandon ends a connection of which nothing can be trusted any more: its peer gets RST, it is forgotten, and
// the layer above is told why. A panic in any of these steps does not keep the others from being done.
func (s *Stack) Abandon(e *Endpoint, why error, now tick.Time) {
	if e.abandoned {
		return
	}
	e.abandoned = true
	attempt(func() { s.reset(e) })
	attempt(func() { s.forget(e, now) })
	if e.upper == nil {
		return
	}
	attempt(func() { e.upper.Abandon(why) })
}

func attempt(f func()) {
	defer func() { _ = recover() }()
	f()
}

// reset sends RST without asking TCP's state machine.
func (s *Stack) reset(e *Endpoint) {
	switch e.conn.State() {
	case tcp.Closed, tcp.SynSent:
		return
	}
	if !e.hop.ready(s) {
		return
	}
	out := tcp.Out{Header: wire.Header{
		SrcPort: e.tuple.LocalPort, DstPort: e.tuple.RemotePort, Seq: e.conn.SndNxt(),
		Ack: e.conn.RcvNxt(), Flags: wire.RST | wire.ACK,
	}}
	s.reply(&e.tuple, &out, e.hop.mac)
}

// Check returns what is not as it should be in the tables of the Stack and in the account of frames; nil says
// that what a panic interrupted did no harm to them. It is called between Steps.
func (s *Stack) Check() error {
	if err := s.port.Audit(); err != nil {
		return err
	}
	waiting := map[*Endpoint]bool{}
	s.dirty.All(func(e *Endpoint) { waiting[e] = true })
	users := map[*hop]int{}
	for t, e := range s.conns {
		if e.tuple != t || e.stack != s {
			return fmt.Errorf("the connection %v stands at %v in the table", e.tuple, t)
		}
		if e.hop != nil {
			users[e.hop]++
		}
		if e.dirty && !waiting[e] {
			return fmt.Errorf("connection %v waits to transmit and is not in the line", t)
		}
	}
	for dst, h := range s.hops {
		if h.dst != dst || len(h.users) != users[h] {
			return fmt.Errorf("next hop to %v: %d connections, and %d say so", dst, users[h],
				len(h.users))
		}
	}
	for i, e := range s.timers.heap {
		if e.timerIdx != i || e.timerAt == tick.Never || i > 0 &&
			s.timers.heap[(i-1)/2].timerAt > e.timerAt {
			return fmt.Errorf("timer %d of %d is in disorder", i, len(s.timers.heap))
		}
	}
	return nil
}
