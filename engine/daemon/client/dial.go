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

// dial connects to the control socket of cfg. With cfg.Operator it first tries the operator socket that belongs to
// cfg.Path, and sets cfg.Path to that socket if it succeeds.
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

// dialSocket connects to a socket of the daemon. While the queue of connections that the daemon has not accepted yet is
// full, which any user can achieve, it tries again, for five seconds.
func dialSocket(path string) (c *net.UnixConn, err error) {
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		c, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if !errors.Is(err, unix.EAGAIN) || time.Now().After(end) {
			return c, err
		}
	}
}

// hint returns what the user can do about err, the error of connecting to path, or "".
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
