// Package netspace runs functions in a network namespace, from any thread.
package netspace

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"

	"github.com/vishvananda/netns"
)

// Space runs functions on a thread that stays in the network namespace in which a device was opened, where later
// sockets must be created, such as those that reserve ports.
type Space struct {
	home netns.NsHandle
	name string // of home, see Name
	jobs chan func()
	over chan struct{} // closed by Close, which ends the thread
	once sync.Once
}

// Current returns the namespace of the calling thread.
func Current() (*Space, error) {
	h, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("network namespace of this thread: %w", err)
	}
	n := &Space{home: h, name: Name(), jobs: make(chan func()), over: make(chan struct{})}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := Enter(h)
		ready <- err
		if err != nil {
			return
		}
		for {
			select {
			case f := <-n.jobs:
				f()
			case <-n.over:
				return
			}
		}
	}()
	if err := <-ready; err != nil {
		h.Close()
		return nil, fmt.Errorf("enter network namespace: %w (CAP_SYS_ADMIN is needed to enter a "+
			"namespace other than the process's)", err)
	}
	return n, nil
}

// Enter moves the calling thread to a namespace. It does not call setns if the thread is already there: a hardened
// systemd unit forbids the call, and all threads of its daemon are already there.
func Enter(h netns.NsHandle) error {
	here, err := netns.Get()
	if err != nil {
		return err
	}
	defer here.Close()
	if here.Equal(h) {
		return nil
	}
	return netns.Set(h)
}

// Do runs f in the namespace and waits for it. A calling thread that is already there runs f itself, because switching
// threads would cost more than f. After Close it fails with net.ErrClosed if the calling thread is not in the
// namespace.
func (n *Space) Do(f func() error) error {
	if n.here() {
		defer runtime.UnlockOSThread()
		return f()
	}
	done := make(chan error)
	select {
	case n.jobs <- func() { done <- f() }:
		return <-done
	case <-n.over:
		return net.ErrClosed
	}
}

// here reports whether the calling thread is in the namespace, and if so locks the goroutine to the thread.
func (n *Space) here() bool {
	runtime.LockOSThread()
	if n.name != "" && Name() == n.name {
		return true
	}
	runtime.UnlockOSThread()
	return false
}

// Name returns the kernel's name of the calling thread's namespace, in one system call, or "" without /proc.
func Name() string {
	s, _ := os.Readlink("/proc/thread-self/ns/net")
	return s
}

func (n *Space) Close() {
	n.once.Do(func() {
		close(n.over)
		n.home.Close()
	})
}
