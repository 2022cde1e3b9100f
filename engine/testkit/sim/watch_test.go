package sim

import (
	"fmt"
	"strings"

	"xwarp/engine/stack"
	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
)

// watch inspects everything at some moments, as the commands for status, resources and traces do. The results must be
// consistent in every state, and inspection must not change anything.
func (w *wide) watch() {
	w.draws("watcher")
	if !w.one(8) || w.off("watcher") {
		return
	}
	w.say("watched")
	w.watched = true
	for range 12 {
		w.world.After(tick.Duration(w.rnd.Int64N(int64(w.until+tick.Second))), func() {
			for _, h := range w.hosts {
				if err := w.look(h); err != nil {
					w.world.Fail(fmt.Errorf("host %s: %w", h.Name(), err))
				}
			}
		})
	}
}

// look inspects one host.
func (w *wide) look(h *Host) error {
	s, now := h.Stack(), w.world.Now()
	if err := s.Check(); err != nil {
		return err
	}
	n, using := 0, 0
	var wrong error
	s.Endpoints(func(e *stack.Endpoint) {
		n++
		t, c := e.Tuple(), e.Conn()
		if t.Local == h.Addr(w.v6) {
			using++
		}
		e.Count()
		i := c.Info(now)
		text := fmt.Sprint(t.Remote, c.State(), brief(i), brief(c.LossCounters()), c.SoftError())
		switch {
		case s.Find(&t) != e:
			wrong = fmt.Errorf("%v is in the table, and cannot be found", t)
		case e.Upper() == nil || i.State != c.State() || !strings.Contains(text, i.State.String()):
			wrong = fmt.Errorf("%v has an upper layer %v and is %s", t, e.Upper(), text)
		}
	})
	all := s.Totals()
	switch got := s.Using(h.Addr(w.v6)); {
	case wrong != nil:
		return wrong
	case n != s.Len() || got != using+1 && got != using: // 1 more for the listener
		return fmt.Errorf("%d of %d connections seen, %d of %d with the address", n, s.Len(), using,
			got)
	case all.BytesOut > 0 && all.SegsOut == 0:
		return fmt.Errorf("connections in all: %s, %v", brief(all), ip.MAC(h.MAC()))
	}
	if t := s.Serving(); t != (tcp.Tuple{}) && t.Local != h.Addr(w.v6) {
		return fmt.Errorf("%v was served, which is not of this host", t)
	}
	for _, c := range w.conns {
		for _, e := range []*rdmaEnd{c.a, c.b} {
			if e.host == h && e.alive() && e.iw != nil && e.iw.Endpoint != nil {
				if err := e.look(); err != nil {
					return fmt.Errorf("port %d: %w", c.cfg.port, err)
				}
			}
		}
	}
	return nil
}

// look inspects the queue pair and the memory of an end.
func (e *rdmaEnd) look() error {
	out, in := e.qp.ReadsInFlight()
	sends, recvs := e.qp.Outstanding()
	text := fmt.Sprint(e.qp.State(), brief(e.iw.Stats()), e.mr, out, in, sends, recvs)
	if p := e.iw.Params(); p != nil {
		text += fmt.Sprint(p.RTR, p.PeerIRD)
	}
	for _, t := range e.terminates() {
		text += t
	}
	switch {
	case out > 16 || in > 2*16 || e.mr.Len() != len(e.mem) || e.mr.Owner() != nil:
		return fmt.Errorf("a queue pair and its region are %s", text)
	case e.share.srq != nil && (e.share.srq.Len() < 0 || e.share.srq.Room() < 0):
		return fmt.Errorf("%d receives wait in the shared queue, which has room for %d more",
			e.share.srq.Len(), e.share.srq.Room())
	}
	return nil
}

// terminates returns the Terminates that e sent and received, as text.
func (e *rdmaEnd) terminates() (list []string) {
	if t, ok := e.qp.OwnTerminate(); ok {
		list = append(list, fmt.Sprint(t.Cause, t.Read))
	}
	if t, ok := e.qp.PeerTerminate(); ok {
		list = append(list, fmt.Sprint(t.Cause, t.Read))
	}
	return list
}

// retune changes settings that a consumer may change on an existing connection, and the MTU of a host.
func (w *wide) retune() {
	w.draws("retuning")
	if w.one(4) && !w.off("retuning") {
		for range 1 + w.rnd.IntN(4) {
			kind, d := w.rnd.IntN(4), pick(w.rnd, 0, ms, 40*ms, 20*tick.Second)
			w.world.After(w.sometime(), func() { w.retuneAll(kind, d) })
		}
	}
	w.draws("other MTU")
	if w.mtu > 1280 && w.one(8) && !w.off("other MTU") {
		w.cuts, w.judge.cuts = true, true
		h, mtu, at := w.hosts[w.rnd.IntN(len(w.hosts))], 1280+w.rnd.IntN(w.mtu-1280), w.sometime()
		w.say("the MTU of %s is %d at %v for %v", h.Name(), mtu, at, 300*ms)
		w.world.After(at, func() { h.Stack().SetMTU(mtu, w.world.Now()); h.Wake() })
		w.world.After(at+300*ms, func() { h.Stack().SetMTU(w.mtu, w.world.Now()); h.Wake() })
	}
}

// retuneAll sets an option of every connection.
func (w *wide) retuneAll(kind int, d tick.Duration) {
	for _, h := range w.hosts {
		h.Stack().Endpoints(func(e *stack.Endpoint) {
			switch c := e.Conn(); kind {
			case 0:
				c.SetKeepalive(max(d, 300*ms), tick.Second, 5)
			case 1:
				c.SetUserTimeout(max(d, 30*tick.Second))
			case 2:
				c.SetLinger(max(d, 20*tick.Second))
			default:
				c.SetDelayedAck(d)
			}
			e.Schedule()
		})
		h.Kick(func() { h.Kick(func() {}) }) // a second step, for work that the first finds overdue
	}
}

// locals sets the local prefixes of the stack of h.
func (w *wide) locals(h *Host) {
	h.Stack().SetLocal([]stack.Prefix{{Addr: h.Addr(0), Bits: 24}, {Addr: h.Addr(1), Bits: 64},
		{Addr: ip.AddrFrom4([4]byte{10, 7, 0, 0}), Bits: 16, All: true}})
}
