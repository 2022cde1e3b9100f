package xdp

import (
	"errors"
	"fmt"
	"time"

	"xwarp/engine/host/ethtool"
	"xwarp/ring"
)

// Settings of a NAPI instance that a worker polls. A worker that goes to sleep enables the interrupt itself, see
// ring.Socket.BusyPoll. The settings matter if a worker neither polls nor sleeps, for example because it lost its CPU:
// after flushTimeout the kernel polls instead, and after deferrals empty polls it enables the interrupt.
const (
	deferrals    = 2
	flushTimeout = 200 * time.Microsecond
)

// busyPolling is the state of Config.PollNIC.
type busyPolling struct {
	queues int   // number of polled queues
	why    error // why a queue is not polled, or nil
}

var errNotPolled = errors.New("not configured (poll_nic)")

// pollQueue makes the worker of a queue poll the queue's NAPI instance if Config.PollNIC requests it. Otherwise, or if
// that is not possible, the queue uses interrupts, and t.polling records why. The caller's thread is in the namespace
// of the interface.
func (t *trunk) pollQueue(sock *ring.Socket) {
	err := errNotPolled
	if t.cfg.PollNIC {
		err = t.startPolling(sock)
	}
	if err == nil {
		t.polling.queues++
	} else if t.polling.why == nil {
		t.polling.why = err
	}
}

func (t *trunk) startPolling(sock *ring.Socket) error {
	id := sock.NAPI()
	if id == 0 {
		return errors.New("the AF_XDP socket has no NAPI ID: " +
			"the driver does not report one, or Linux is older than 6.14")
	}
	before, err := ring.QueryNAPI(id)
	if err != nil {
		return err
	}
	n := before
	n.DeferHardIRQs, n.GROFlushTimeout = deferrals, uint64(flushTimeout)
	if err := t.restorer.Change(t.att.Ifindex, before, n); err != nil {
		return err
	}
	if err := sock.BusyPoll(deferrals); err != nil {
		return errors.Join(err, ring.SetNAPI(before))
	}
	return nil
}

// enableGRO turns GRO on, which gives the queues of a veth NAPI instances in generic mode. Without them, small segments
// from the peer pass through the backlog of the processor that sends them. They are not merged, and they are reordered
// if the sender changes processors.
func (t *trunk) enableGRO() error {
	return t.restorer.SetFeature(t.att.Ifindex, ethtool.GRO, true)
}

// String returns "on", or says why some or all queues are not polled.
func (p *busyPolling) String() string {
	switch {
	case p.why == nil:
		return "on"
	case p.queues == 0:
		return "off: " + p.why.Error()
	default:
		return fmt.Sprintf("on, but not for all queues (%d): %v", p.queues, p.why)
	}
}
