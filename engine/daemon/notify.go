package daemon

import (
	"net"
	"os"
	"strconv"
	"time"
)

// notify sends the state of the service to systemd (sd_notify(3)). Without systemd it does nothing.
func notify(state string) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return
	}
	defer c.Close()
	c.Write([]byte(state))
}

// notifyReload tells systemd that a reload begins. The returned function tells systemd that it ended.
func notifyReload(monotonic time.Duration) (done func()) {
	notify("RELOADING=1\nMONOTONIC_USEC=" + strconv.FormatInt(monotonic.Microseconds(), 10))
	return func() { notify("READY=1") }
}

// watchdogInterval returns the unit's watchdog timeout, or 0 for none (sd_watchdog_enabled(3)).
func watchdogInterval() time.Duration {
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	n, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || n <= 0 {
		return 0
	}
	return time.Duration(n) * time.Microsecond
}
