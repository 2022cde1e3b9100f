package doctor

import (
	"errors"
	"fmt"
	"maps"
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
	save: func(e *env) (settings, error) {
		s, err := saveFile(e.deferral()...)
		if err != nil {
			return nil, err
		}
		for _, n := range e.forgotten() {
			s[fmt.Sprint(napiSetting, n.ID)] = fmt.Sprint(n.DeferHardIRQs, " ", n.GROFlushTimeout)
		}
		return s, nil
	},
	fix: func(e *env) error {
		for _, f := range e.deferral() {
			if err := writeSetting(f, "0"); err != nil {
				return err
			}
		}
		for _, n := range e.forgotten() {
			n.DeferHardIRQs, n.GROFlushTimeout = 0, 0
			if err := ring.SetNAPI(n); err != nil {
				return err
			}
		}
		return nil
	},
	undo: func(e *env, s settings) error {
		files := maps.Clone(s)
		var errs []error
		for key, value := range s {
			if id, ok := strings.CutPrefix(key, napiSetting); ok {
				delete(files, key)
				errs = append(errs, restoreNAPI(id, value))
			}
		}
		return errors.Join(append(errs, restoreFiles((*env).deferral)(e, files))...)
	},
}

// napiSetting prefixes the keys of settings for NAPI instances. The ID follows.
const napiSetting = "napi "

func lookForDeferral(e *env) finding {
	for _, f := range e.deferral() {
		if n, err := readNumber(f); err == nil && n != 0 {
			return finding{Warn, fmt.Sprintf("%s is %d", f, n), "echo 0 > " + f}
		}
	}
	for _, n := range e.forgotten() {
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

// forgotten returns the NAPI instances that defer interrupts although no process has an AF_XDP socket on their queue.
func (e *env) forgotten() (list []ring.NAPI) {
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

// restoreNAPI restores the saved settings of the NAPI instance with an ID.
func restoreNAPI(id, value string) error {
	number, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return err
	}
	n, err := ring.QueryNAPI(uint32(number))
	if err != nil {
		return err
	}
	if _, err := fmt.Sscan(value, &n.DeferHardIRQs, &n.GROFlushTimeout); err != nil {
		return err
	}
	return ring.SetNAPI(n)
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
