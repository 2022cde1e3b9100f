package doctor

import "fmt"

var busyPollCheck = check{
	name: "busy-poll", nic: true,
	why: "deferred interrupts save work with zero-copy and busy polling, and only add latency without",
	look: func(e *env) finding {
		for _, f := range e.deferral() {
			if n, err := readNumber(f); err == nil && n != 0 {
				return finding{Warn, fmt.Sprintf("%s is %d", f, n), "echo 0 > " + f}
			}
		}
		return fine("interrupts are not deferred")
	},
	save: func(e *env) (settings, error) { return saveFile(e.deferral()...) },
	fix: func(e *env) error {
		for _, f := range e.deferral() {
			if err := writeSetting(f, "0"); err != nil {
				return err
			}
		}
		return nil
	},
	undo: restoreFiles((*env).deferral),
}

func (e *env) deferral() []string {
	dir := e.sysfs()
	if dir == "" {
		return nil
	}
	return []string{dir + "napi_defer_hard_irqs", dir + "gro_flush_timeout"}
}

// sysfs is the interface's directory there; empty where /sys shows another namespace.
func (e *env) sysfs() string {
	dir := "/sys/class/net/" + e.name() + "/"
	if n, err := readNumber(dir + "ifindex"); err != nil || n != e.nic.Attrs().Index {
		return ""
	}
	return dir
}
