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

// listenControl opens the control socket with its owner and rights. A socket that a killed daemon left is replaced.
func listenControl(c *config.Daemon) (*net.UnixListener, error) {
	if err := os.MkdirAll(filepath.Dir(c.Socket), 0o755); err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	if other, err := net.Dial("unix", c.Socket); err == nil {
		other.Close()
		return nil, fmt.Errorf("control socket %s: another xwarpd serves it (see: xwarp status; systemctl stop xwarpd)", c.Socket)
	}
	if st, err := os.Lstat(c.Socket); err == nil && st.Mode()&fs.ModeSocket == 0 {
		return nil, fmt.Errorf("control socket %s: there is a file of that name which is no socket", c.Socket)
	}
	if err := os.Remove(c.Socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	old := unix.Umask(0o177) // nobody else may connect before the owner and the mode are set
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: c.Socket, Net: "unix"})
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	if c.SocketGroup != "" {
		gid, err := config.GroupID(c.SocketGroup)
		if err == nil {
			err = os.Chown(c.Socket, -1, gid)
		}
		if err != nil {
			ln.Close()
			return nil, fmt.Errorf("control socket: group %s: %w", c.SocketGroup, err)
		}
	}
	if err := os.Chmod(c.Socket, fs.FileMode(c.SocketMode)); err != nil {
		ln.Close()
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return ln, nil
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
			body := control.Marshal(control.Reply{Error: control.AsError(err)})
			go func() { // a socket that takes nothing must not hold the others up
				asControl(c).Send(control.KindReply, body)
				c.Close()
			}()
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
	if err := a.take(&limits, quotaSessions, 1); err != nil {
		return err
	}
	d.last++
	s := newSession(d, d.last, asControl(c), cred.Uid, cred.Pid, a)
	d.sessions[s.id] = s
	d.live.Go(s.serve)
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
