package topo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// ErrPrivileges is wrapped by the errors of New and NewNamespace if the caller may not make network namespaces.
var ErrPrivileges = errors.New("creating network namespaces needs CAP_SYS_ADMIN and " +
	"CAP_NET_ADMIN: run as root or through sudo")

// Namespace is a network namespace that this process keeps alive. Its methods may be called by several goroutines.
type Namespace struct {
	ns netns.NsHandle
	nl *netlink.Handle
}

// NewNamespace makes a network namespace whose loopback interface is up. The namespace has no name: the kernel removes
// it when its last user ends. The caller closes it.
func NewNamespace() (*Namespace, error) {
	n := &Namespace{ns: netns.None()}
	err := onOwnThread(func() (err error) {
		n.ns, err = netns.New()
		return err
	})
	if err == nil {
		n.nl, err = netlink.NewHandleAt(n.ns)
	}
	if err == nil {
		err = n.nl.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "lo"}})
	}
	if err != nil {
		n.Close()
		if errors.Is(err, unix.EPERM) {
			return nil, fmt.Errorf("topo: %w (%v)", ErrPrivileges, err)
		}
		return nil, fmt.Errorf("topo: creating a network namespace: %w", err)
	}
	return n, nil
}

// Fd returns the namespace's file descriptor, valid until the namespace or its topology is closed.
func (n *Namespace) Fd() int { return int(n.ns) }

// Netlink returns a route-netlink handle of the namespace, valid until the namespace or its topology is closed.
func (n *Namespace) Netlink() *netlink.Handle { return n.nl }

// Dial connects a kernel TCP socket in the namespace to remote. It ignores the local address, a parameter that it has
// because sockets.Config.Dial is of this type.
func (n *Namespace) Dial(ctx context.Context, _, remote netip.AddrPort) (c net.Conn, err error) {
	err = n.Do(func() error {
		c, err = new(net.Dialer).DialContext(ctx, "tcp", remote.String())
		return err
	})
	return c, err
}

// Listen opens a kernel TCP listener in the namespace.
func (n *Namespace) Listen(at netip.AddrPort) (l net.Listener, err error) {
	err = n.Do(func() error {
		var c net.ListenConfig
		c.SetMultipathTCP(false) // an MPTCP socket lacks socket options
		l, err = c.Listen(context.Background(), "tcp", at.String())
		return err
	})
	return l, err
}

// Do runs f in the namespace, on a locked OS thread, and returns f's error. Sockets that f makes stay in the namespace
// wherever they are used later. Goroutines that f starts do not run in the namespace. If the thread cannot return to
// its own namespace afterwards, it ends instead of returning to the runtime's pool.
func (n *Namespace) Do(f func() error) error {
	return onOwnThread(func() error {
		if err := netns.Set(n.ns); err != nil {
			return fmt.Errorf("topo: entering the namespace: %w", err)
		}
		return f()
	})
}

// onOwnThread runs f on a locked thread, and afterwards sets the thread's network namespace back to what it was before.
func onOwnThread(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := errors.New(
			"topo: the function ended its goroutine (runtime.Goexit, as t.Fatal does)")
		home, homeErr := netns.Get()
		defer func() {
			if homeErr == nil {
				homeErr = netns.Set(home)
				home.Close()
			}
			if homeErr == nil {
				runtime.UnlockOSThread()
			}
			result <- err
		}()
		err = f()
	}()
	return <-result
}

// writeSysctl writes value to a file below /proc/sys/net, for the namespace of the calling thread.
func writeSysctl(path, value string) error {
	err := os.WriteFile("/proc/sys/net/"+path, []byte(value), 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // an older kernel, or one without IPv6: there is nothing to switch
	}
	if errors.Is(err, unix.EROFS) {
		return fmt.Errorf("%w: /proc/sys is read-only here (a container?); it must be writable",
			err)
	}
	return err
}

// Close closes the handles. The kernel removes the namespace when its last user ends.
func (n *Namespace) Close() error {
	if n.nl != nil {
		n.nl.Close()
		n.nl = nil
	}
	if !n.ns.IsOpen() {
		return nil
	}
	return n.ns.Close()
}
