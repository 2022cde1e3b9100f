package xdp

import (
	"sync"

	"xwarp/engine/internal/core"
	"xwarp/engine/overtcp"
	"xwarp/engine/stack"
	"xwarp/engine/verbs"
	"xwarp/tcp"
)

// owners maps connections to the workers that own them, for frames that arrive on another worker's queue.
type owners struct {
	mu sync.RWMutex
	m  map[tcp.Tuple]*worker
}

func (o *owners) set(t *tcp.Tuple, w *worker) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.m == nil {
		o.m = map[tcp.Tuple]*worker{}
	}
	if w == nil {
		delete(o.m, *t)
	} else {
		o.m[*t] = w
	}
}

func (o *owners) get(t *tcp.Tuple) *worker {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.m[*t]
}

// flows implements stack.Steering for one worker.
type flows struct {
	x *driver
	w *worker
}

// AddFlow implements stack.Steering.
func (f flows) AddFlow(t *tcp.Tuple) error {
	if err := f.x.claims.AddFlow(core.TupleAddrs(t)); err != nil {
		return err
	}
	f.x.owners.set(t, f.w)
	return nil
}

// RemoveFlow implements stack.Steering.
func (f flows) RemoveFlow(t *tcp.Tuple) {
	f.x.owners.set(t, nil)
	local, remote := core.TupleAddrs(t)
	if err := f.x.claims.RemoveFlow(local, remote); err != nil && !f.x.detached.Load() {
		f.x.base.Log().Warn("cannot remove an ended connection from the XDP program: its frames go to xwarp until the device closes",
			"local", local, "remote", remote, "error", err)
	}
}

// strayHandler returns the function by which w passes frames to the workers of their connections, or nil if there is
// only one queue. The answer to a SYN shows on which queue the interface receives a connection. The connection, which
// this host opened, then moves to the worker of that queue.
func (x *driver) strayHandler(w *worker) func(*stack.Stray) bool {
	if len(x.threads) == 1 {
		return nil
	}
	return func(s *stack.Stray) bool {
		owner := x.strayOwner(s)
		if owner == nil || owner == w {
			return false
		}
		kept := s.Keep()
		return owner.Post(func() {
			if !kept.SYNACK() || !x.moveConn(owner, w, kept) {
				owner.stk.Inject(kept, core.Now())
			}
		})
	}
}

// moveConn moves the connection of s, if it is in SYN-SENT, from one worker to another. It runs on from's thread. It
// returns false if the connection stays.
func (x *driver) moveConn(from, to *worker, s *stack.Stray) bool {
	e := from.stk.Find(&s.Tuple)
	if e == nil || e.Conn().State() != tcp.SynSent {
		return false
	}
	o, ok := e.Upper().(*overtcp.Conn)
	if !ok {
		return false
	}
	c, ok := o.Handler().(*core.Conn)
	if !ok || !c.IsActive() {
		return false
	}
	mtu := e.Conn().Info(core.Now()).PathMTU
	iss := from.stk.Withdraw(e, core.Now())
	c.Unbind(from.Shard)
	if !to.Post(func() { x.resumeConn(to, c, iss, mtu, s) }) {
		c.Report(verbs.ErrClosed)
		return true
	}
	c.Owner.Store(to.Shard) // later posts for c run after resumeConn
	return true
}
