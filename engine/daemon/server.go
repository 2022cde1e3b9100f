package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/control"
	"xwarp/engine/daemon/config"
)

// listenControl opens the control socket with its owner and rights.
func listenControl(c *config.Daemon) (*net.UnixListener, error) {
	if other, err := net.Dial("unix", c.Socket); err == nil {
		other.Close()
		return nil, fmt.Errorf("control socket %s: another xwarpd serves it (see: xwarp status; systemctl stop xwarpd)", c.Socket)
	}
	ln, err := listenUnix(c.Socket, c)
	if err != nil {
		return nil, fmt.Errorf("control socket %s: %w", c.Socket, err)
	}
	passRights(ln, false) // until they are admitted
	return ln, nil
}

// listenUnix opens a socket with the group and the rights of the control socket. One that a killed daemon left is replaced.
func listenUnix(path string, c *config.Daemon) (*net.UnixListener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if st, err := os.Lstat(path); err == nil && st.Mode()&fs.ModeSocket == 0 {
		return nil, errors.New("there is a file of that name which is no socket")
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	old := unix.Umask(0o177) // nobody else may connect before the owner and the mode are set
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	unix.Umask(old)
	if err != nil {
		return nil, err
	}
	if err := handOver(path, c); err != nil {
		ln.Close()
		return nil, err
	}
	return ln, nil
}

// handOver gives the socket the group and the rights of the configuration. It holds what it changes: whoever may write to the
// directory could put a link to another file in the socket's place meanwhile.
func handOver(path string, c *config.Daemon) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return errors.New("somebody else puts files there: use a directory that only xwarpd's user may write to (daemon.socket)")
	}
	if c.SocketGroup != "" {
		gid, err := config.GroupID(c.SocketGroup)
		if err == nil {
			err = unix.Fchownat(fd, "", -1, gid, unix.AT_EMPTY_PATH)
		}
		if err != nil {
			return fmt.Errorf("group %s: %w", c.SocketGroup, err)
		}
	}
	return os.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), fs.FileMode(c.SocketMode))
}

// acceptPause keeps a failing accept from spinning.
const acceptPause = 20 * time.Millisecond

func (d *Daemon) acceptPrograms(ln *net.UnixListener) {
	for {
		c, err := ln.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			d.log.Warn("control socket", "error", err)
			time.Sleep(acceptPause)
			continue
		}
		if err := d.admit(c); err != nil {
			d.ended.refused.Add(1)
			d.log.Warn("program refused", "error", err)
			d.refused.end(c, control.AsError(err))
		}
	}
}

// admit begins a session, unless there are too many.
func (d *Daemon) admit(c *net.UnixConn) error {
	cred, err := credentials(c)
	if err != nil {
		return err
	}
	cfg := d.cfg.Load()
	limits := limitsFor(&cfg.Config, cred.Uid)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopping {
		return &control.Error{Code: control.CodeClosed, Text: errShutdown.Error()}
	}
	if len(d.sessions) >= cfg.Daemon.Clients {
		return &control.Error{Code: control.CodeQuota, Text: fmt.Sprintf("%d programs use the daemon already (daemon.clients)", len(d.sessions))}
	}
	a := d.accounts.of(cred.Uid)
	if err := a.take(&limits, sessionCost); err != nil {
		return err
	}
	d.last++
	s := newSession(d, d.last, c, cred.Uid, cred.Pid, a)
	s.gid = cred.Gid
	d.sessions[s.id] = s
	d.live.Add(1)
	go s.serve(d.live.Done)
	return nil
}

// credentials asks the kernel who is at the other end.
func credentials(c *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	e := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(e, err); err != nil {
		return nil, fmt.Errorf("SO_PEERCRED: %w", err)
	}
	return cred, nil
}
