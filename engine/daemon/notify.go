package daemon

import (
	"net"
	"os"
	"strconv"
	"time"
)

// notify tells systemd how the service is (sd_notify(3)); without systemd it does nothing.
func notify(state string) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	if name[0] == '@' {
		name = "\x00" + name[1:]
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return
	}
	defer c.Close()
	c.Write([]byte(state))
}

// notifyReload tells systemd that a reload begins; the function that it returns tells that it is done.
func notifyReload(monotonic time.Duration) (done func()) {
	notify("RELOADING=1\nMONOTONIC_USEC=" + strconv.FormatInt(monotonic.Microseconds(), 10))
	return func() { notify("READY=1") }
}

// watchdogInterval is how often systemd wants to hear, 0 for never (sd_watchdog_enabled(3)).
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
