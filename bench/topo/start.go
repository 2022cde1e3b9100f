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

// Start starts cmd in the namespace. The kernel kills cmd when this process ends. The caller calls cmd.Wait.
func (n *Namespace) Start(cmd *exec.Cmd) error { return startBound(n.Do, cmd, cmd.Start) }

// StartOn is like Start, but pins cmd to one processor: a child process inherits the processor mask of the thread that
// forks, and the child's threads inherit the child's mask.
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

// Path returns a path by which other processes can enter the namespace while this process lives: nsenter --net=PATH
// command.
func (n *Namespace) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.Fd()) }

// Run runs a program in the namespace. It returns its output, standard error included, and its exit code. err is not
// nil only if the program could not be run or did not end within timeout.
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

// StartHere is like Namespace.Start, but in this process's own namespace.
func StartHere(cmd *exec.Cmd) error { return startBound(onOwnThread, cmd, cmd.Start) }

// startBound starts cmd by calling start on a thread that do provides, and keeps that thread until cmd has ended. cmd
// is started with PR_SET_PDEATHSIG, and the kernel sends that signal already when the thread that forked ends. A thread
// of Go's pool ends with any goroutine that locks it and does not unlock it, as the workers of an engine do.
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

// untilEnded blocks until the child pid has ended. The child stays a zombie until cmd.Wait.
func untilEnded(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}
