package xdp

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/bpf"
	"xwarp/engine/host/netspace"
	"xwarp/engine/host/netwatch"
	"xwarp/engine/verbs"
	"xwarp/ring"
	"xwarp/ring/gso"
)

// Privileges is what only a process with privileges can make of an interface: the loaded steering program, and
// sockets that are bound to nothing yet. With it a process that has given its privileges up opens the
// interface again, after that was removed and came back, and serves queues that come later. The first
// Open with a Kit fills it; one device at a time has it.
type Privileges struct {
	maxReopens int // how often the interface shall be opened again

	mu      sync.Mutex
	closed  bool
	steer   *bpf.Steering
	home    *netspace.Space // where the interface is
	filled  bool
	sockets []int // AF_XDP
	packets []int // AF_PACKET
}

// NewPrivileges returns an empty kit, to open an interface again so many times.
func NewPrivileges(maxReopens int) *Privileges { return &Privileges{maxReopens: maxReopens} }

// Close gives back what is left. The device that has the kit is closed before. A nil Kit has nothing.
func (k *Privileges) Close() error {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil
	}
	k.closed = true
	for _, fd := range append(k.sockets, k.packets...) {
		unix.Close(fd)
	}
	k.sockets, k.packets = nil, nil
	if k.home != nil {
		k.home.Close()
	}
	if k.steer != nil {
		return k.steer.Close()
	}
	return nil
}

// namespace returns where a device shall live: what the kit's first device found, else that of the calling thread.
// The kit closes its own, for whoever gave up CAP_SYS_ADMIN enters it by that thread alone.
func (k *Privileges) namespace() (*netspace.Space, error) {
	if k == nil {
		return netspace.Current()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, verbs.ErrClosed
	}
	if k.home != nil {
		return k.home, nil
	}
	home, err := netspace.Current()
	k.home = home
	return home, err
}

// space returns the namespace of the kit's first device; nil: there was none.
func (k *Privileges) space() *netspace.Space {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.home
}

// steering returns a program without claims: the kit's, or one that o describes.
func (k *Privileges) steering(o func() bpf.Options) (*bpf.Steering, error) {
	if k == nil {
		return bpf.Load(o())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, verbs.ErrClosed
	}
	if k.steer != nil {
		return k.steer, k.steer.RemoveClaims()
	}
	s, err := bpf.Load(o())
	k.steer = s
	return s, err
}

// fill makes the sockets for a device of so many queues, as far as there are none and the process may.
func (k *Privileges) fill(queues int, packets bool) error {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.filled {
		return nil
	}
	_ = ring.RaiseMemlock() // whether it was needed shows later, and is said then
	k.filled = true
	for range queues*k.maxReopens + ring.MaxQueues {
		fd, err := ring.NewSocket()
		if err != nil {
			return err
		}
		k.sockets = append(k.sockets, fd)
	}
	for range queues * k.maxReopens {
		if !packets {
			break
		}
		fd, err := gso.NewSocket()
		if err != nil {
			return err
		}
		k.packets = append(k.packets, fd)
	}
	return nil
}

// ErrSpent is wrapped by the error of Open when a Kit has no socket any more and the process may not make one.
var ErrSpent = errors.New("the sockets that were made in advance are used up, and only a restart makes new ones")

// takeXDPSocket takes an AF_XDP socket.
func (k *Privileges) takeXDPSocket() (int, error) {
	return k.takeSocket(&k.sockets, ring.NewSocket)
}

// takePacketSocket takes an AF_PACKET socket.
func (k *Privileges) takePacketSocket() (int, error) {
	return k.takeSocket(&k.packets, gso.NewSocket)
}

func (k *Privileges) takeSocket(from *[]int, make func() (int, error)) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := len(*from); n > 0 && !k.closed {
		fd := (*from)[n-1]
		*from = (*from)[:n-1]
		return fd, nil
	}
	fd, err := make()
	if err != nil && k.filled {
		err = fmt.Errorf("%w: %w", ErrSpent, err)
	}
	return fd, err
}

// Await returns when an interface of that name exists and is up where the kit's devices are, and with the context's
// error when ctx is done. Without a device so far, and with a nil Kit, it does not wait.
func (k *Privileges) Await(ctx context.Context, name string) error {
	home := k.space()
	if home == nil {
		return ctx.Err()
	}
	change := make(chan struct{}, 1)
	look := func() {
		select {
		case change <- struct{}{}:
		default:
		}
	}
	var nl *netlink.Handle
	var watch *netwatch.Watch
	err := home.Do(func() (err error) {
		if nl, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return err
		}
		watch, err = netwatch.Follow(netwatch.Options{
			Name: "links", Groups: []int{unix.RTNLGRP_LINK},
			Change: func(uint16, []byte) { look() }, List: func() error { look(); return nil },
		})
		return err
	})
	if nl != nil {
		defer nl.Close()
	}
	if err != nil {
		return err
	}
	defer watch.Close()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-change:
		}
		l, err := nl.LinkByName(name)
		if err == nil && l.Attrs().RawFlags&unix.IFF_UP != 0 {
			return nil
		}
	}
}
