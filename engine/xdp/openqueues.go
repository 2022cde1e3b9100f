package xdp

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/bpf"
	"xwarp/engine/host/ethtool"
	"xwarp/engine/host/holder"
	"xwarp/ring"
)

// openQueues opens the queues of the configuration, by default all that are free.
func (x *driver) openQueues(link int) error {
	wanted, all := x.cfg.Queues, len(x.cfg.Queues) == 0
	if all {
		wanted = x.allQueues(link)
		x.found = len(wanted)
	}
	var served []int
	var missing error
	wait := ring.DefaultBindTimeout
	for _, q := range wanted {
		err := x.openQueue(link, q, wait)
		if err == nil {
			served = append(served, q)
			continue
		}
		err = fmt.Errorf("queue %d: %w", q, queueBusy(err, link, q))
		if !all || !errors.Is(err, unix.EBUSY) {
			return err
		}
		missing, wait = err, time.Millisecond // the others had as much time to become free
		x.base.Log().Warn("cannot open receive queue: connections hashed to it will stall",
			"interface", x.cfg.Interface, "error", err, "next", "stop that process, or steer "+
				"connections off the queue with ethtool -X "+x.cfg.Interface)
	}
	if x.cfg.Queues = served; len(served) == 0 {
		return missing
	}
	return nil
}

// attachBusy and queueBusy add to err which process uses the interface or the queue.
func attachBusy(err error) error {
	f, ok := errors.AsType[*bpf.ForeignProgramError](err)
	if !ok {
		return err
	}
	if who := holder.Text(holder.OfProgram(f.ID)); who != "" {
		return fmt.Errorf("%w; held by %s", err, who)
	}
	return err
}

func queueBusy(err error, link, queue int) error {
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	list, sure := holder.OfQueue(link, queue)
	switch who := holder.Text(list); {
	case who == "":
		return err
	case sure:
		return fmt.Errorf("%w; held by %s", err, who)
	default:
		return fmt.Errorf("%w; held by AF_XDP sockets of: %s", err, who)
	}
}

// queuesCommand returns the command that sets the number of receive queues.
func (x *driver) queuesCommand(n int) (command string) {
	x.ns.Do(func() error {
		command = ethtool.QueuesCommand(x.ifname(), n)
		return nil
	})
	return command
}

// allQueues returns the receive queues of the interface.
func (x *driver) allQueues(link int) (all []int) {
	n := ethtool.ReceiveQueues(link, x.cfg.Interface, bpf.DefaultMaxQueues)
	if n > ring.MaxQueues {
		x.base.Log().Warn("too many receive queues: connections hashed to unserved queues will stall", "interface", x.cfg.Interface,
			"queues", n, "served", ring.MaxQueues, "next", ethtool.QueuesCommand(x.cfg.Interface,
				ring.MaxQueues))
	}
	for q := range min(n, ring.MaxQueues) {
		all = append(all, q)
	}
	return all
}
