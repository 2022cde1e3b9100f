package xdp

import (
	"errors"
	"sync/atomic"

	"xwarp/engine/internal/core"
	"xwarp/engine/stack"
	"xwarp/ring"
)

// relayQueues handles a change of the number of receive queues from had to has, as by ethtool -L. It serves new queues
// with relays, and leaves the workers of removed queues idle. Relays are workers without connections: they pass each
// frame to the worker of its connection, or to the first worker if there is none. So connections survive, at some cost
// per frame.
func (t *trunk) relayQueues(had, has int) {
	t.mu.Lock()
	for _, x := range t.devices {
		x.link.mu.Lock()
		x.link.now.Queues++
		x.link.mu.Unlock()
	}
	t.mu.Unlock()
	log := t.log.With("queues", has)
	if has < had {
		log.Warn("interface has fewer receive queues: connections go on, the removed queues' workers idle",
			"had", had)
		return
	}
	relayed := 0
	for q := had; q < has; q++ {
		err := t.ns.Do(func() error { return t.openRelay(q) })
		if err != nil {
			log.Error("cannot serve new receive queue: connections hashed to it will stall",
				"queue", q, "error", err, "next",
				t.queuesCommand(had)+", or restart")
			break
		}
		relayed++
	}
	log.Warn("interface has new receive queues: relaying their frames to the existing workers", "relayed",
		relayed, "next", "restart to give each queue its own worker, which is faster")
}

// openRelay starts the thread of a new queue, with a relay for each device.
func (t *trunk) openRelay(queue int) error {
	th, err := t.openThread(queue, 0, func(s *ring.Socket) (ring.Port, error) { return s, nil })
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range t.devices {
		if !x.closing.Load() {
			err = errors.Join(err, x.addRelay(th))
		}
	}
	th.start(-1, t.cfg.BusyPoll)
	return err
}

// addRelay adds a relay of x to the thread of a queue.
func (x *driver) addRelay(t *thread) error {
	x.link.mu.Lock()
	defer x.link.mu.Unlock()
	w, err := x.newWorker(t, x.relayHandler)
	if err != nil {
		return err
	}
	x.relays = append(x.relays, w)
	x.base.AddRelay(w.Shard)
	w.stk.SetMAC(x.link.mac)
	t.addWorker(w)
	return nil
}

// relayHandler returns the function by which the relay w passes on every frame. It drops frames beyond maxRelayed.
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

// maxRelayed is the maximum number of frames of a queue that wait for other workers. It limits the memory that a flood
// can occupy.
const maxRelayed = 4096
