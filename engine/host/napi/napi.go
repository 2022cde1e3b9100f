// Package napi changes settings of NAPI instances for the lifetime of a process. A second process restores them,
// because the kernel keeps them when the first one is killed.
package napi

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"xwarp/engine/host/capability"
	"xwarp/ring"
)

// Restorer is the process that restores settings when this process ends or calls Close. It is this program again,
// started with an argument that init handles, so it is available to any program that uses the engine.
type Restorer struct {
	process *exec.Cmd
	pipe    io.WriteCloser // to the process, which restores at end of file
	before  []ring.NAPI    // settings passed to the process
}

// processName is the first argument of the restoring process.
const processName = "xwarp-napi-restorer"

// ready is printed by the process once no signal can end it before it has restored.
const ready = "ready\n"

func init() {
	if len(os.Args) == 1 && os.Args[0] == processName {
		os.Exit(restoreAtEnd(os.Stdin, os.Stdout))
	}
}

// Start starts the process, in the network namespace of the calling thread. It needs CAP_NET_ADMIN.
func Start() (*Restorer, error) {
	c := &exec.Cmd{Path: "/proc/self/exe", Args: []string{processName}, Dir: "/",
		Env: []string{"GOMAXPROCS=1"}, Stderr: os.Stderr}
	c.SysProcAttr = &syscall.SysProcAttr{ // its own session, so that signals to the process group do not reach it
		Setsid: true, AmbientCaps: []uintptr{unix.CAP_NET_ADMIN}}
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("starting the NAPI restore process: %w", err)
	}
	r := &Restorer{process: c, pipe: in}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != ready {
		return nil, errors.Join(fmt.Errorf("the NAPI restore process printed %q: %w",
			line, err), r.Close())
	}
	return r, nil
}

// Change changes the settings of a NAPI instance from before, which is restored at the end, to n.
func (r *Restorer) Change(before, n ring.NAPI) error {
	if before == n { // left by processes that were killed together
		before = ring.NAPI{ID: n.ID}
	}
	if err := json.NewEncoder(r.pipe).Encode(before); err != nil {
		return fmt.Errorf("the NAPI restore process has exited: %w", err)
	}
	r.before = append(r.before, before)
	return ring.SetNAPI(n)
}

// Close restores the settings and waits for the process to exit. A nil Restorer has nothing to restore. The calling
// thread must be in the namespace of Start.
func (r *Restorer) Close() error {
	if r == nil {
		return nil
	}
	r.pipe.Close()
	if r.process.Wait() == nil {
		return nil
	}
	return restore(r.before) // the process was killed
}

// restoreAtEnd is the body of the process. It reads settings until in ends, applies them, and returns the exit status.
func restoreAtEnd(in io.Reader, out io.Writer) int {
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE)
	capability.Keep(1 << unix.CAP_NET_ADMIN) // fails in a program with cgo
	io.WriteString(out, ready)
	var list []ring.NAPI
	for d := json.NewDecoder(in); ; {
		var n ring.NAPI
		if d.Decode(&n) != nil {
			break
		}
		list = append(list, n)
	}
	if err := restore(list); err != nil {
		fmt.Fprintln(os.Stderr, "xwarp: interrupts of the device stay deferred:", err,
			"(xwarp doctor --fix)")
		return 1
	}
	return 0
}

// restore applies settings, oldest last. It skips instances that are gone.
func restore(list []ring.NAPI) error {
	var errs []error
	for i := len(list) - 1; i >= 0; i-- {
		if err := ring.SetNAPI(list[i]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
