package doctor

import (
	"fmt"
	"strconv"
	"strings"

	"xwarp/engine/host/holder"
	"xwarp/ring"
)

var busyPollCheck = check{
	name: "busy-poll", nic: true,
	why: "a worker with poll_nic polls the NAPI instance of its queue and defers interrupts; " +
		"without such a worker, deferred interrupts only add latency",
	look: lookForDeferral,
	want: func(e *env) (settings, error) {
		s := settings{}
		for _, f := range e.deferral() {
			s[f] = "0"
		}
		for _, n := range e.abandonedNAPIs() {
			s[fmt.Sprint(napiSetting, n.ID)] = "0 0"
		}
		return s, nil
	},
	get: func(e *env, key string) (string, error) {
		id, ok := strings.CutPrefix(key, napiSetting)
		if !ok {
			return readSetting(e, key)
		}
		n, err := queryNAPI(id)
		return fmt.Sprint(n.DeferHardIRQs, " ", n.GROFlushTimeout), err
	},
	put: func(e *env, key, value string) error {
		id, ok := strings.CutPrefix(key, napiSetting)
		if !ok {
			return putIn(e.deferral()...)(e, key, value)
		}
		n, err := queryNAPI(id)
		if err == nil {
			_, err = fmt.Sscan(value, &n.DeferHardIRQs, &n.GROFlushTimeout)
		}
		if err != nil {
			return err
		}
		return ring.SetNAPI(n)
	},
}

// napiSetting begins the keys of settings of NAPI instances. The ID of the instance follows.
const napiSetting = "napi "

func lookForDeferral(e *env) finding {
	for _, f := range e.deferral() {
		if n, err := readNumber(f); err == nil && n != 0 {
			return finding{Warn, fmt.Sprintf("%s is %d", f, n), "echo 0 > " + f}
		}
	}
	for _, n := range e.abandonedNAPIs() {
		return warn("NAPI %d defers its interrupt for %d ns, but no process has an AF_XDP socket on "+
			"its queue: the polling process was killed before it could restore the setting", n.ID,
			n.GROFlushTimeout).advise("xwarp doctor --fix --interface %s", e.name())
	}
	q := e.opt.Queues[0]
	n, err := e.napi(q)
	switch {
	case err != nil:
		return fine("interrupts are not deferred; poll_nic has no effect: %v", err)
	case n.ID == 0:
		return fine("interrupts are not deferred; poll_nic has no effect: the driver reports no NAPI "+
			"instance for queue %d", q)
	case n.DeferHardIRQs != 0:
		return fine("queue %d is polled: NAPI %d defers its interrupt for %d polls and %d ns", q,
			n.ID, n.DeferHardIRQs, n.GROFlushTimeout)
	}
	return fine("interrupts are not deferred; queue %d has NAPI %d (polled if poll_nic = true)", q,
		n.ID)
}

// napi returns the NAPI instance of a queue. Its ID is 0 if the driver reports none.
func (e *env) napi(queue int) (n ring.NAPI, err error) {
	id, err := ring.QueueNAPI(e.nic.Attrs().Index, uint32(queue))
	if err != nil || id == 0 {
		return n, err
	}
	return ring.QueryNAPI(id)
}

// abandonedNAPIs returns the NAPI instances that defer interrupts although no process has an AF_XDP socket on their
// queue.
func (e *env) abandonedNAPIs() (list []ring.NAPI) {
	for _, q := range e.opt.Queues {
		n, err := e.napi(q)
		if err != nil || n.DeferHardIRQs == 0 {
			continue
		}
		if who, _ := holder.OfQueue(e.nic.Attrs().Index, q); len(who) == 0 {
			list = append(list, n)
		}
	}
	return list
}

// queryNAPI queries the NAPI instance with an ID.
func queryNAPI(id string) (n ring.NAPI, err error) {
	number, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return n, err
	}
	return ring.QueryNAPI(uint32(number))
}

func (e *env) deferral() []string {
	dir := e.sysfs()
	if dir == "" {
		return nil
	}
	return []string{dir + "napi_defer_hard_irqs", dir + "gro_flush_timeout"}
}

// sysfs returns the interface's directory in /sys, or "" if /sys belongs to another network namespace.
func (e *env) sysfs() string {
	dir := "/sys/class/net/" + e.name() + "/"
	if n, err := readNumber(dir + "ifindex"); err != nil || n != e.nic.Attrs().Index {
		return ""
	}
	return dir
}
