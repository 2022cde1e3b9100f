package topo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Start starts cmd in the namespace. The kernel kills cmd when this process ends, and not before. The caller waits
// for cmd.
func (n *Namespace) Start(cmd *exec.Cmd) error { return startBound(n.Do, cmd, cmd.Start) }

// StartOn is Start on one processor: a child inherits the mask of the thread that forks, and its threads inherit
// its own.
func (n *Namespace) StartOn(cpu int, cmd *exec.Cmd) error {
	return startBound(n.Do, cmd, func() error {
		var old, one unix.CPUSet
		if err := unix.SchedGetaffinity(0, &old); err != nil {
			return err
		}
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return fmt.Errorf("processor %d: %w", cpu, err)
		}
		err := cmd.Start()
		return errors.Join(err, unix.SchedSetaffinity(0, &old))
	})
}

// Path names the namespace for other processes while this one lives: nsenter --net=PATH command.
func (n *Namespace) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.Fd()) }

// Run runs a program in the namespace and returns what it printed, standard error included, and its exit code.
// err is set only if it could not be run or did not end in time.
func (n *Namespace) Run(timeout time.Duration, name string, arg ...string) (out string, code int,
	err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, arg...)
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	cmd.WaitDelay = time.Second
	if err := n.Start(cmd); err != nil {
		return "", -1, fmt.Errorf("%s: %w", name, err)
	}
	err = cmd.Wait()
	out = b.String()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return out, -1, fmt.Errorf("%s did not end within %v", name, timeout)
	case errors.As(err, &exit):
		return out, exit.ExitCode(), nil
	case err != nil:
		return out, -1, err
	}
	return out, 0, nil
}

// StartHere is Start in this process's own namespace.
func StartHere(cmd *exec.Cmd) error { return startBound(onOwnThread, cmd, cmd.Start) }

// startBound starts cmd by start on a thread that do provides, and keeps that thread until cmd has ended. The kernel
// sends the signal of PR_SET_PDEATHSIG when the thread that forked ends, and a thread of Go's pool ends with the next
// goroutine that locks it and does not unlock it, as the workers of an engine do.
func startBound(do func(func() error) error, cmd *exec.Cmd, start func() error) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error, 2)
	go func() {
		started <- do(func() error {
			err := start()
			started <- err
			if err == nil {
				untilEnded(cmd.Process.Pid)
			}
			return nil
		})
	}()
	return <-started
}

// untilEnded blocks the thread until the child pid has ended. The child stays a zombie until the caller waits for it.
func untilEnded(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}
