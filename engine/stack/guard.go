package stack

import (
	"fmt"
	"runtime/debug"

	"xwarp/ring"
	"xwarp/tcp"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// Defect is a panic in the Stack, caused by a bug. It ended the connection being served, if there was one; the other
// connections continue.
type Defect struct {
	Tuple tcp.Tuple // of the connection that ended; zero if there was none
	Value any       // argument of the panic
	Trace []byte
}

func (d *Defect) Error() string { return fmt.Sprintf("internal error: %v", d.Value) }

// setCurrent records the connection being served. Other goroutines may read it while the worker is stuck. The
// comparison costs less than a store each time.
func (s *Stack) setCurrent(e *Endpoint) {
	if s.current.Load() != e {
		s.storeCurrent(e)
	}
}

func (s *Stack) storeCurrent(e *Endpoint) { s.current.Store(e) }

// Serving returns the connection served now or last, or the zero Tuple. Any goroutine may call it.
func (s *Stack) Serving() (t tcp.Tuple) {
	if e := s.current.Load(); e != nil {
		t = e.tuple // never changes
	}
	return t
}

// contain is deferred around the service of many connections. If Config.Defect is set, it handles a panic, and the
// caller continues with the next connection. The connection being served continues if its Recoverer has handled the
// panic; otherwise it ends. One guard per batch costs nothing per segment.
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
		e.conn.Finish(now) // finish the segment being received, as receive does
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

// giveBack returns the frames held by the code that panicked.
func (s *Stack) giveBack() {
	if i := s.holding; i > 0 {
		s.holding = 0
		s.port.Release(&s.batch[i-1])
	}
	if s.filling {
		s.filling = false
		s.port.CancelTx(ring.NewTxBuf(nil, s.slot))
	}
	for _, buf := range s.pending.slots {
		s.port.CancelTx(buf)
	}
	s.pending.slots = s.pending.slots[:0]
}

// Abandon ends a connection with inconsistent state: it resets the peer, forgets the connection, and tells the upper
// layer why. A panic in one step does not prevent the others.
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

// reset sends RST without TCP's state machine. It sends nothing in CLOSED and SYN-SENT, or if the next hop is not
// resolved.
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

// Check returns an error if the tables of the Stack or the accounting of frames are inconsistent. After a panic, nil
// means that the interrupted operation left them consistent. It is called between Steps.
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
