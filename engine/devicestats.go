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
