package xdp

import (
	"xwarp/bpf"
	"xwarp/engine/host/netwatch"
	"xwarp/engine/stack"
	"xwarp/ring"
	"xwarp/tcp"
)

// Stats are the counters of a device on AF_XDP. An interface and its VLANs share the steering program and the sockets.
// Of the open devices only the one that was opened first reports the counters of these.
type Stats struct {
	Queues   []QueueStats // of the workers
	Steering bpf.Counts   // frames on all queues, by outcome of the steering program
	Watches  []WatchStats // of the watches of the kernel's configuration
}

// PartialSums returns the number of segments that the workers dropped because their TCP checksum was that of the
// pseudo-header only.
func (s *Stats) PartialSums() (n uint64) {
	for i := range s.Queues {
		n += s.Queues[i].Stack.DropPartialSum
	}
	return n
}

// WatchStats are the counters of one watch of the kernel's configuration.
type WatchStats struct {
	Name string
	netwatch.Counters
}

// QueueStats are the counters of one worker.
type QueueStats struct {
	Queue  int // receive queue of the device
	Stack  stack.Stats
	Listen tcp.ListenCounters
	Ring   ring.Stats
}

func (w *worker) stats() QueueStats {
	s := QueueStats{Queue: w.Queue, Stack: w.stk.Stats(), Listen: w.stk.Listened()}
	if all := *w.thread.workers.Load(); len(all) == 0 || all[0] == w {
		s.Ring = w.port.Stats()
	}
	return s
}

// collectStats returns the counters of all workers, or the final ones after Close.
func (x *driver) collectStats() (list []QueueStats, err error) {
	for _, w := range x.all() {
		if err := w.Call(func() { list = append(list, w.stats()) }); err != nil {
			if x.base.IsFinal() { // written after last
				return x.last, nil
			}
			return list, err
		}
	}
	return list, nil
}

// Stats returns the counters. It reads those of different workers at slightly different times. After Close it returns
// the final counters. It fails with ErrDefect if the tables of a worker are inconsistent.
func (d *Device) Stats() (s Stats, err error) {
	x := d.x
	if s.Queues, err = x.collectStats(); err != nil {
		return s, err
	}
	for _, w := range x.watches {
		s.Watches = append(s.Watches, WatchStats{w.Name(), w.Counters()})
	}
	if x.base.IsFinal() { // written after lastSteering
		s.Steering = x.lastSteering
		return s, nil
	}
	if x.isFirst(x) {
		s.Steering, err = x.steer.Counters()
	}
	return s, err
}

// Health returns nil while the device follows the kernel's configuration: neighbours, links, addresses. Otherwise
// connections continue with the last known state, and the error is a *netwatch.Stale, which says since when.
func (d *Device) Health() error {
	for _, w := range d.x.watches {
		if err := w.Health(); err != nil {
			return err
		}
	}
	return nil
}

// Unowned returns, by receive queue, the number of frames of the engine's listeners and connections that were dropped
// because the queue had no worker. It omits queues without such frames.
func (d *Device) Unowned() (map[int]uint64, error) {
	found := map[int]uint64{}
	for q := range bpf.DefaultMaxQueues {
		n, err := d.x.steer.NoSocketDrops(q)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			found[q] = n
		}
	}
	return found, nil
}
