package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"xwarp/engine/daemon"
	"xwarp/engine/daemon/config"
	"xwarp/engine/version"
)

// localDaemon is the hidden command that runs the private daemon of one program (run --local).
const localDaemon = "run-local-daemon"

// File descriptors that the private daemon inherits.
const (
	programFd = 3 + iota // pidfd of the program
	answerFd             // pipe for the path of the control socket, or an error
)

// localConfig is the configuration of a private daemon. Its limits are high because it serves a single user.
const localConfig = `[daemon]
socket = %q
log_level = "warn"
grace = "0s"
[limits]
memory = "1TiB"
daemon_memory = "1TiB"
connect_rate = 0
[[interface]]
name = "lo"
transport = "kernel"
`

// controlSocket is the name of the control socket in the daemon's directory.
const controlSocket = "control.sock"

// longestDirectory is the maximum length of the parent of the daemon's directory, before its symbolic links are
// resolved. It leaves room for the names of the directory and the control socket: sun_path holds 107 characters.
const longestDirectory = 60

// startLocal starts a private daemon for the program that replaces this process, and returns its control socket. The
// daemon exits when the program exits for any reason. It is not a child of the program, which may wait for all its
// children.
func startLocal() (socket string, err error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	pidfd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return "", fmt.Errorf("pidfd_open: %w (needs Linux 5.3)", err)
	}
	self := os.NewFile(uintptr(pidfd), "pidfd")
	defer self.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer r.Close()
	c := exec.Command("/bin/sh", "-c", `"$@" &`, "sh", exe, localDaemon)
	c.Stderr = os.Stderr
	c.ExtraFiles = []*os.File{self, w}
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // the terminal's signals go to the program only
	err = c.Run()
	w.Close()
	if err != nil {
		return "", fmt.Errorf("start private daemon: %w", err)
	}
	answer, err := io.ReadAll(r)
	switch {
	case err != nil:
		return "", err
	case len(answer) == 0:
		return "", errors.New("private daemon exited immediately; see its message above")
	case !filepath.IsAbs(string(answer)):
		return "", fmt.Errorf("private daemon: %s", answer)
	}
	return string(answer), nil
}

func newLocalDaemon(*global) *cobra.Command {
	return &cobra.Command{
		Use: localDaemon, Hidden: true, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var st unix.Stat_t
			if unix.Fstat(answerFd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
				return usagef("internal command of xwarp run --local")
			}
			return serveLocal(cmd.Context())
		},
	}
}

// serveLocal runs the private daemon until its program exits.
func serveLocal(ctx context.Context) error {
	unix.CloseOnExec(programFd)
	answer := os.NewFile(answerFd, "answer")
	defer answer.Close()
	dir, err := localDirectory()
	if err == nil {
		defer os.RemoveAll(dir)
	}
	var d *daemon.Daemon
	if err == nil {
		d, err = openLocal(dir)
	}
	if err != nil {
		fmt.Fprint(answer, err)
		return nil // startLocal, in the program's process, reports it
	}
	fmt.Fprint(answer, filepath.Join(dir, controlSocket))
	answer.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		awaitEnd(programFd)
		cancel()
	}()
	return d.Run(ctx)
}

// openLocal creates the daemon with its control socket in dir.
func openLocal(dir string) (*daemon.Daemon, error) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return nil, fmt.Errorf("lo: %w", err)
	}
	if lo.Flags&net.FlagUp == 0 {
		return nil, errors.New("loopback interface is down: ip link set lo up")
	}
	path := filepath.Join(dir, "xwarp.toml")
	text := fmt.Sprintf(localConfig, filepath.Join(dir, controlSocket))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return nil, err
	}
	cfg, err := config.Load(config.Source{Path: path})
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC"} {
		os.Unsetenv(name) // meant for the unit that started the program, not for this daemon
	}
	daemon.LimitGarbage()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	d, err := daemon.New(cfg, daemon.Options{Log: log, Version: version.Get().Version,
		Private: true})
	if err != nil {
		return nil, err
	}
	d.ReserveProcessors()
	return d, nil
}

// localDirectory creates a directory that only this user can enter and no other user can replace.
func localDirectory() (dir string, err error) {
	for _, parent := range []string{os.Getenv("XDG_RUNTIME_DIR"), os.TempDir(), "/tmp"} {
		if !filepath.IsAbs(parent) || len(parent) > longestDirectory {
			continue
		}
		if parent, err = trusted(parent); err != nil {
			continue
		}
		if dir, err = os.MkdirTemp(parent, "xwarp-local-"); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no directory for the control socket: %w (TMPDIR sets another)", err)
}

// trusted resolves the symbolic links of a directory. It fails if the directory lets another user replace entries: su
// without "-" keeps XDG_RUNTIME_DIR of the first user. The owner of / counts as root, since a user namespace may show
// it as nobody.
func trusted(dir string) (string, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	var root, st unix.Stat_t
	if err := errors.Join(unix.Stat("/", &root), unix.Stat(dir, &st)); err != nil {
		return "", err
	}
	switch {
	case st.Uid != root.Uid && int(st.Uid) != os.Geteuid():
		return "", fmt.Errorf("%s is owned by user %d, who could replace entries", dir, st.Uid)
	case st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0:
		return "", fmt.Errorf("%s is writable by others (mode %04o)", dir, st.Mode&0o7777)
	}
	return dir, nil
}

// awaitEnd waits until the process of a pidfd exits.
func awaitEnd(pidfd int32) {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: pidfd, Events: unix.POLLIN}}, -1)
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
