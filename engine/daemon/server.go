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

	"xwarp/engine/budget"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/session"
)

// listenControl opens a control socket with its group and mode.
func listenControl(path string, o socketAccess) (*unixListener, error) {
	ln, err := listenUnix(path, o)
	if err != nil {
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	control.PassRights(ln.UnixListener, false) // a program may send descriptors once its session has started
	return ln, nil
}

// checkUnserved returns errServed if a process accepts connections to the socket with this path, and nil otherwise.
func checkUnserved(path string) error {
	other, err := net.Dial("unix", path)
	if err != nil {
		return nil
	}
	other.Close()
	return errServed
}

var errServed = errors.New("another xwarpd serves it (see: xwarp status; systemctl stop xwarpd)")

// lockSocket locks the name of a socket among daemons that start at the same time. The lock is a file that only this
// user can open, so that no other user can hold it.
func lockSocket(path string) (unlock func(), err error) {
	name := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".lock")
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			f.Close()
			return nil, fmt.Errorf("locking %s: %w", name, err)
		}
		mine, err := f.Stat()
		there, gone := os.Lstat(name)
		if err == nil && gone == nil && os.SameFile(mine, there) {
			return func() { os.Remove(name); f.Close() }, nil
		}
		f.Close() // its previous holder removed it
	}
}

// socketAccess is the group and the mode of a socket. Root and the daemon's own user can always connect.
type socketAccess struct {
	group string // name or number; empty: that of the daemon
	mode  config.FileMode
}

// programsAccess returns the access to the control socket for programs.
func programsAccess(c *config.Daemon) socketAccess {
	return socketAccess{c.SocketGroup, c.SocketMode}
}

// operatorAccess lets only root and the user of the daemon connect to the operator socket. Root may connect whatever
// the mode, so the socket can belong to the user of the daemon.
var operatorAccess = socketAccess{mode: 0o600}

// unixListener is a listener that removes its socket from the file system when it is closed.
type unixListener struct {
	*net.UnixListener
	path string
}

// Addr returns the path of the socket, which was bound under another name.
func (l *unixListener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// Close removes the socket and closes the listener.
func (l *unixListener) Close() error {
	os.Remove(l.path)
	return l.UnixListener.Close()
}

// listenUnix opens a Unix socket with its group and mode. It replaces a socket left by a killed daemon, but not one
// that a process serves, even if many daemons start at once. The socket is created under another name and then renamed.
// So it appears under path with its final group and mode, and no permitted client gets EACCES. Under the other name
// nobody can connect before the mode is set, whatever the umask, because the socket does not listen yet.
func listenUnix(path string, o socketAccess) (*unixListener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if st, err := os.Lstat(path); err == nil && st.Mode()&fs.ModeSocket == 0 {
		return nil, errors.New("a file of that name exists and is not a socket")
	}
	unlock, err := lockSocket(path)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := checkUnserved(path); err != nil {
		return nil, err
	}
	at, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	name := "." + filepath.Base(path) + ".new"
	private := filepath.Join(dir, name)
	if err := os.Remove(private); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(private) > maxSocketPath {
		private = fmt.Sprintf("/proc/self/fd/%d/%s", at.Fd(), name)
	}
	ln, err := bindUnix(private, o)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(private, path); err != nil {
		os.Remove(private)
		ln.Close()
		return nil, err
	}
	return &unixListener{ln, path}, nil
}

// maxSocketPath is the length of the longest path of a Unix socket (unix(7)).
const maxSocketPath = 107

// bindUnix creates a socket with its group and mode, and then listens on it.
func bindUnix(path string, o socketAccess) (*net.UnixListener, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close() // the listener has a duplicate
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	var ln net.Listener
	if err = setAccess(path, o); err == nil {
		err = os.NewSyscallError("listen", unix.Listen(fd, controlBacklog))
	}
	if err == nil {
		ln, err = net.FileListener(f)
	}
	if err != nil {
		os.Remove(path)
		return nil, err
	}
	return ln.(*net.UnixListener), nil
}

// setAccess sets the group and mode of a socket through a descriptor, because a user who may write to the directory
// could replace the socket by a link to another file.
func setAccess(path string, o socketAccess) error {
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
		return errors.New("another user can create files there: use a directory that only xwarpd's " +
			"user may write to (daemon.socket)")
	}
	if o.group != "" {
		gid, err := config.GroupID(o.group)
		if err == nil {
			err = unix.Fchownat(fd, "", -1, gid, unix.AT_EMPTY_PATH)
		}
		if err != nil {
			return fmt.Errorf("group %s: %w", o.group, err)
		}
	}
	return os.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), fs.FileMode(o.mode))
}

// acceptPause is the time between attempts while accept fails.
const acceptPause = 20 * time.Millisecond

// entrance is the socket to which a program connected: the operator socket, a tenant's, or the common one (zero value).
type entrance struct {
	operator bool
	tenant   string
}

// acceptPrograms starts the sessions of a socket until it is closed.
func (d *Daemon) acceptPrograms(ln *unixListener, through entrance) {
	for {
		c, err := ln.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			d.log.Warn("cannot accept a program on the control socket: retrying", "error", err)
			time.Sleep(acceptPause)
			continue
		}
		if err := d.startSession(c, through); err != nil {
			d.count.SessionsRefused.Add(1)
			refusal := control.AsError(err)
			if refusal.Code != control.CodeClosed { // CodeClosed: the daemon is stopping
				d.log.Warn("refused a program", "error", err)
			}
			d.refuser.refuse(c, refusal)
		}
	}
}

// startSession starts the session of a program. It fails if the program may not use the socket, at a limit, or if the
// daemon is stopping.
func (d *Daemon) startSession(c *net.UnixConn, through entrance) error {
	cred, err := credentials(c)
	if err != nil {
		return err
	}
	cfg := d.cfg.Load()
	who := budget.Holder{Tenant: through.tenant, Operator: through.operator}
	if who.Operator && cred.Uid != 0 && cred.Uid != uint32(os.Geteuid()) {
		return control.Errorf(control.CodePermission,
			"user %d may not use the operator socket (daemon.admin_socket)", cred.Uid)
	}
	if !who.Operator && budget.IsKept(c, budget.KeptForOperator) {
		return control.Errorf(control.CodeQuota, "xwarpd is out of file descriptors for programs: "+
			"%s", budget.Descriptors.Remedy())
	}
	if who == (budget.Holder{}) {
		who.UID = d.uidOwners.ownerOf(cred.Uid)
	}
	limits := new(cfg.HolderLimits(who))
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopping {
		return session.ErrShutdown
	}
	if n := d.users.OperatorSessions(); who.Operator && n >= budget.OperatorSessions {
		return control.Errorf(control.CodeQuota,
			"the operator already has %d of at most %d sessions", n,
			budget.OperatorSessions)
	}
	a, err := d.users.Enter(who, limits, session.Cost)
	if err != nil {
		return control.QuotaError(err)
	}
	d.lastSession++
	s := session.New(daemonAPI{d}, session.Config{ID: d.lastSession, Conn: c, Cred: cred,
		Account: a, Mapper: d.mapper, Count: &d.count.Counters, Rendezvous: d.rendezvous,
		Log: d.logFor(a), Events: d.events})
	d.sessions[d.lastSession] = s
	d.running.Add(1)
	go s.Run(d.running.Done)
	return nil
}

// credentials returns the credentials of the peer process.
func credentials(c *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	e := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(e, err); err != nil {
		return nil, fmt.Errorf("SO_PEERCRED: %w", err)
	}
	return cred, nil
}
