package xdp

import (
	"sync/atomic"

	"xwarp/engine/internal/core"
	"xwarp/engine/stack"
)

// relayQueues serves the queues that an interface got while the device was open, as after ethtool -L. Their workers
// have no connections. They pass each frame to the worker of its connection, or to the first worker if there is none.
// So connections survive, at some cost per frame.
func (x *driver) relayQueues(had, has int) {
	log := x.base.Log().With("interface", x.cfg.Interface, "queues", has)
	if has < had {
		log.Warn("interface has fewer receive queues: connections go on, the removed queues' workers idle",
			"had", had)
		return
	}
	relayed := 0
	for q := had; q < has; q++ {
		err := x.ns.Do(func() error { return x.openRelay(q) })
		if err != nil {
			log.Error("cannot serve new receive queue: connections hashed to it will stall",
				"queue", q, "error", err, "next",
				x.queuesCommand(had)+", or restart")
			break
		}
		relayed++
	}
	log.Warn("interface has new receive queues: relaying their frames to the existing workers", "relayed",
		relayed, "next", "restart to give each queue its own worker, which is faster")
}

// openRelay starts a relay for one queue.
func (x *driver) openRelay(queue int) error {
	sock, err := x.openSocket(queue, 0)
	if err != nil {
		return err
	}
	x.link.mu.Lock()
	defer x.link.mu.Unlock()
	w, err := x.newWorker(queue, sock, x.relayHandler)
	if err != nil {
		return err
	}
	x.relays = append(x.relays, w)
	x.base.AddRelay(w.Shard)
	w.stk.SetMAC(x.link.mac)
	go w.runThread(-1, x.cfg.BusyPoll)
	return x.steer.SetSocket(queue, sock.Fd())
}

// relayHandler returns the function by which the relay w passes on every frame.
func (x *driver) relayHandler(w *worker) func(*stack.Stray) bool {
	var waiting atomic.Int64
	return func(s *stack.Stray) bool {
		owner := x.strayOwner(s)
		if owner == nil {
			owner = x.workers[0]
		}
		if waiting.Add(1) > maxRelayed {
			waiting.Add(-1)
			w.stk.DropStray()
			return true
		}
		kept := s.Keep()
		owner.Post(func() {
			waiting.Add(-1)
			owner.stk.Inject(kept, core.Now())
		})
		return true
	}
}

// maxRelayed is the maximum number of frames of a queue that wait for other workers, which limits the memory of a
// flood.
const maxRelayed = 4096
