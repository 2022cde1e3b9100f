package engine

import (
	"xwarp/bpf"
	"xwarp/engine/stack"
	"xwarp/ring"
)

// Stats are the counters of a device on AF_XDP; those of a device on the kernel's sockets are empty.
type Stats struct {
	Queues   []QueueStats // in the order of XDPConfig.Queues
	Steering bpf.Counts   // frames on all queues by what the steering program did
}

// QueueStats are the counters of one worker.
type QueueStats struct {
	Stack stack.Stats
	Ring  ring.Stats
}

// Stats returns the counters, each worker's at one moment of its own.
func (d *Device) Stats() (s Stats, err error) {
	x, ok := d.drv.(*xdpDriver)
	if !ok {
		return s, nil
	}
	for _, w := range x.workers {
		if err := w.call(func() {
			s.Queues = append(s.Queues, QueueStats{Stack: w.stk.Stats(), Ring: w.port.Stats()})
		}); err != nil {
			return s, err
		}
	}
	s.Steering, err = x.steer.Counters()
	return s, err
}

// Unowned returns the frames of the engine's listeners and connections that arrived on queues which the device does not serve, and
// so went to the kernel: by queue, without those that have none.
func (d *Device) Unowned() (map[int]uint64, error) {
	x, ok := d.drv.(*xdpDriver)
	if !ok {
		return nil, nil
	}
	found := map[int]uint64{}
	for q := range bpf.DefaultMaxQueues {
		n, err := x.steer.Unowned(q)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			found[q] = n
		}
	}
	return found, nil
}
