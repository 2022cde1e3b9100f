package xdp

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/bpf"
	"xwarp/engine/host/ethtool"
	"xwarp/engine/host/holder"
	"xwarp/ring"
)

// openQueues opens the queues of the configuration, or without any in it all queues that are free.
func (t *trunk) openQueues() error {
	link := t.att.Ifindex
	wanted, all := t.cfg.Queues, len(t.cfg.Queues) == 0
	if all {
		wanted = t.allQueues(link)
		t.found = len(wanted)
	}
	var served []int
	var missing error
	wait := ring.DefaultBindTimeout
	for _, q := range wanted {
		err := t.openQueue(q, wait)
		if err == nil {
			served = append(served, q)
			continue
		}
		err = fmt.Errorf("queue %d: %w", q, queueBusy(err, link, q))
		if !all || !errors.Is(err, unix.EBUSY) {
			return err
		}
		missing, wait = err, time.Millisecond // meanwhile the next queues had time to become free
		t.log.Warn("cannot open receive queue: connections hashed to it will stall",
			"error", err, "next", "stop that process, or steer "+
				"connections off the queue with ethtool -X "+t.name)
	}
	if t.cfg.Queues = served; len(served) == 0 {
		return missing
	}
	return nil
}

// attachBusy and queueBusy add to err the process that uses the interface or the queue, if it is known.
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

// HasDispatcher reports whether an interface has libxdp's dispatcher. An error says why a device cannot join the
// dispatcher.
func HasDispatcher(nic netlink.Link) (bool, error) {
	d, err := bpf.Dispatched(nic)
	return d != nil, err
}

// queuesCommand returns the command that sets the number of receive queues.
func (t *trunk) queuesCommand(n int) (command string) {
	name := t.linkName()
	t.ns.Do(func() error {
		command = ethtool.QueuesCommand(name, n)
		return nil
	})
	return command
}

// allQueues returns the numbers of the interface's receive queues, or for a bond those of the member with the most
// queues. It returns at most ring.MaxQueues.
func (t *trunk) allQueues(link int) (all []int) {
	n := 0
	if t.bond != nil {
		for _, m := range t.bond.members {
			n = max(n, m.queues)
		}
	} else {
		n = ethtool.ReceiveQueues(link, t.name, bpf.DefaultMaxQueues)
	}
	if n > ring.MaxQueues {
		t.log.Warn("too many receive queues: connections hashed to unserved queues will stall",
			"queues", n, "served", ring.MaxQueues, "next", ethtool.QueuesCommand(t.name,
				ring.MaxQueues))
	}
	for q := range min(n, ring.MaxQueues) {
		all = append(all, q)
	}
	return all
}
