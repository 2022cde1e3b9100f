package client

import (
	"errors"
	"fmt"
	"net"
	"os/user"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/control"
)

// dial connects to the control socket of cfg, or to the operator socket beside it, whose path it stores in cfg.
func dial(cfg *Config) (*net.UnixConn, error) {
	if cfg.Operator {
		path := control.OperatorPath(cfg.Path)
		if c, err := dialSocket(path); err == nil {
			cfg.Path = path
			return c, nil
		}
	}
	return dialSocket(cfg.Path)
}

// dialSocket connects to a socket of the daemon. Another user can fill the queue of connections to accept; it then
// tries again for five seconds.
func dialSocket(path string) (c *net.UnixConn, err error) {
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		c, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if !errors.Is(err, unix.EAGAIN) || time.Now().After(end) {
			return c, err
		}
	}
}

// hint returns the next step after an error of connecting to path.
func hint(path string, err error) string {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
		return " (is it running? systemctl start xwarpd)"
	case errors.Is(err, unix.EACCES):
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil || st.Gid == 0 {
			return " (only root may use it; daemon.socket_group admits a group)"
		}
		name := strconv.FormatUint(uint64(st.Gid), 10)
		if g, err := user.LookupGroupId(name); err == nil {
			name = g.Name
		}
		who := "USER"
		if u, err := user.Current(); err == nil {
			who = u.Username
		}
		return fmt.Sprintf(" (join its group: sudo usermod -aG %s %s, then log in again)", name,
			who)
	}
	return ""
}
