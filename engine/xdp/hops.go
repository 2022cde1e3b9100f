package xdp

import (
	"sync"

	"xwarp/engine/host/neigh"
	"xwarp/engine/internal/core"
	"xwarp/tcp/ip"
)

// hopUsers counts, for each destination, the workers that need its next hop.
type hopUsers struct {
	r  *neigh.Resolver
	mu sync.Mutex
	n  map[ip.Addr]int
}

// workerHops is the stack.Resolver of one worker.
type workerHops struct {
	all  *hopUsers
	mine map[ip.Addr]bool // destinations whose next hop this worker needs
}

func (u *hopUsers) forWorker() workerHops { return workerHops{u, map[ip.Addr]bool{}} }

// Request implements stack.Resolver.
func (h workerHops) Request(dst ip.Addr) {
	u := h.all
	u.mu.Lock()
	defer u.mu.Unlock()
	if !h.mine[dst] {
		h.mine[dst] = true
		if u.n == nil {
			u.n = map[ip.Addr]int{}
		}
		u.n[dst]++
	}
	u.r.Request(core.ToNetip(dst))
}

// Forget implements stack.Resolver.
func (h workerHops) Forget(dst ip.Addr) {
	u := h.all
	u.mu.Lock()
	defer u.mu.Unlock()
	if !h.mine[dst] {
		return
	}
	delete(h.mine, dst)
	if u.n[dst]--; u.n[dst] == 0 {
		delete(u.n, dst)
		u.r.Forget(core.ToNetip(dst))
	}
}

// onNextHop sends an answer of the resolver, a next hop or an error, to every worker that has connections. The resolver
// calls it on its own goroutine.
func (x *driver) onNextHop(h neigh.Hop) {
	if h.Err != nil { // only Info: connections to h.Dst fail with the error too
		x.base.Log().Info("cannot resolve next hop", "remote", h.Dst, "error", h.Err)
	}
	x.waiters.post(h)
	for _, w := range x.workers {
		w.Post(func() { w.stk.SetHop(core.FromNetip(h.Dst), h.MAC, h.Err) })
	}
}
