package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Netns is a network namespace that lives as long as its handle is open.
type Netns struct {
	f *os.File
}

// NewNetns makes an empty namespace, in which only lo exists, and is up.
func NewNetns() (*Netns, error) {
	var f *os.File
	err := onThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace (needs root): %w", err)
		}
		f, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		return nil, err
	}
	return &Netns{f: f}, nil
}

// Fd is the open file of the namespace, for netlink and setns. It stays the property of n.
func (n *Netns) Fd() int { return int(n.f.Fd()) }

// Path names the namespace for other processes while this one lives: nsenter --net=PATH command.
func (n *Netns) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.Fd()) }

// Close lets go of the namespace. The kernel removes it when nothing in it runs any more.
func (n *Netns) Close() error { return n.f.Close() }

// Do calls fn on a thread that is inside n. fn must not start goroutines that count on being there as well.
func (n *Netns) Do(fn func() error) error {
	return onThread(func() error {
		if err := unix.Setns(n.Fd(), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return fn()
	})
}

// onThread calls fn on a thread of its own and brings that thread back to the namespace it came from.
func onThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			runtime.UnlockOSThread()
			done <- err
			return
		}
		defer home.Close()
		err = fn()
		// A thread that cannot go back stays locked, and so ends with this goroutine.
		if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back == nil {
			runtime.UnlockOSThread()
		} else {
			err = errors.Join(err, fmt.Errorf("leave network namespace: %w", back))
		}
		done <- err
	}()
	return <-done
}

// Start starts cmd inside n, to be killed when this process ends. The caller waits for it.
func (n *Netns) Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	return n.Do(cmd.Start)
}

// Run runs a program inside n and returns what it printed, standard error included, and its exit code.
// err is set only when it could not be run or did not end in time.
func (n *Netns) Run(timeout time.Duration, name string, arg ...string) (out string, code int,
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
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return b.String(), -1, fmt.Errorf("%s did not end within %v", name, timeout)
	case errors.As(err, &exit):
		return b.String(), exit.ExitCode(), nil
	case err != nil:
		return b.String(), -1, err
	}
	return b.String(), 0, nil
}

// Dial connects with the kernel's TCP (or UDP) from inside n. address must be literal.
func (n *Netns) Dial(network, address string, timeout time.Duration) (c net.Conn, err error) {
	err = n.Do(func() (err error) {
		c, err = net.DialTimeout(network, address, timeout)
		return err
	})
	return c, err
}

// Listen listens with the kernel's TCP inside n. address must be literal.
func (n *Netns) Listen(network, address string) (l net.Listener, err error) {
	err = n.Do(func() (err error) {
		l, err = net.Listen(network, address)
		return err
	})
	return l, err
}
