package xdp

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// Privileges holds what only a privileged process can create: the loaded steering program, and unbound sockets. With
// it, a process that has dropped its privileges can reopen a removed interface when it is back, and serve queues that
// the interface gets later. The first Open with a Privileges fills it. Devices that use it at the same time share the
// interface: one is the interface itself, the others are its VLANs.
type Privileges struct {
	maxReopens int // number of times that the interface may be reopened

	joining sync.Mutex // held while a device joins or leaves the trunk
	trunk   *trunk     // nil: no device is open; guarded by joining
	users   int        // number of calls of Close that are still expected: 1, plus 1 for each Share; guarded by mu

	mu      sync.Mutex
	closed  bool
	steer   *bpf.Steering
	twins   []*bpf.Steering // unused programs for members of a bond
	home    *netspace.Space // namespace of the interface
	filled  bool            // fill was called
	sockets []int           // spare AF_XDP sockets
	packets []int           // spare AF_PACKET sockets
}

// NewPrivileges returns an empty Privileges. maxReopens is the number of times that the interface may be reopened.
func NewPrivileges(maxReopens int) *Privileges {
	return &Privileges{maxReopens: maxReopens, users: 1}
}

// Share returns k for another device of the same network card. For each call of Share, Close must be called once more.
func (k *Privileges) Share() *Privileges {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.users++
	return k
}

// Trunk returns the index of the interface whose sockets a device would use. The device is on the interface with the
// given index, or else with the given name. If that is a VLAN, its parent has the sockets. Trunk returns 0 if there is
// no such interface.
func (k *Privileges) Trunk(index int, name string) (trunk int) {
	find := func() error {
		nic, err := findLink(&Config{Ifindex: index, Interface: name})
		if err == nil {
			nic, _, _ = trunkOf(nic)
			trunk = nic.Attrs().Index
		}
		return err
	}
	if home := k.space(); home != nil {
		home.Do(find)
	} else {
		find()
	}
	return trunk
}

// InUse returns the index of the interface whose sockets the open devices of k share. It returns 0 if no device is
// open.
func (k *Privileges) InUse() int {
	if k == nil {
		return 0
	}
	k.joining.Lock()
	defer k.joining.Unlock()
	if k.trunk == nil {
		return 0
	}
	return k.trunk.att.Ifindex
}

// Close closes the program and the spare sockets when it is called for the last user of k. The devices must be closed
// before. Close does nothing for a nil Privileges.
func (k *Privileges) Close() error {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.users--; k.users > 0 || k.closed {
		return nil
	}
	k.closed = true
	closeSockets(append(k.sockets, k.packets...))
	k.sockets, k.packets = nil, nil
	if k.home != nil {
		k.home.Close()
	}
	var errs []error
	for _, t := range k.twins {
		errs = append(errs, t.Close())
	}
	if k.twins = nil; k.steer != nil {
		errs = append(errs, k.steer.Close())
	}
	return errors.Join(errs...)
}

// spareMembers is the number of programs that are loaded for future members of a bond.
const spareMembers = 1

// takeTwin returns a program for a member of a bond: an unused one, or else a new Twin of the program of.
func (k *Privileges) takeTwin(of *bpf.Steering) (*bpf.Steering, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := len(k.twins); n > 0 {
		t := k.twins[n-1]
		k.twins = k.twins[:n-1]
		return t, nil
	}
	t, err := of.Twin()
	if err != nil && k.filled {
		err = fmt.Errorf("%w: %w", ErrSpent, err)
	}
	return t, err
}

// returnTwin detaches the program of a member and keeps it for another.
func (k *Privileges) returnTwin(t *bpf.Steering) error {
	err := t.Detach()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return errors.Join(err, t.Close())
	}
	k.twins = append(k.twins, t)
	return err
}

// fillTwins loads spareMembers programs for future members of a bond, unless fill was called before. Loading takes a
// quarter of a second. If it began only when a member is added, the kernel would meanwhile reset connections whose
// frames arrive at the new member.
func (k *Privileges) fillTwins(of *bpf.Steering) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for !k.filled && len(k.twins) < spareMembers {
		t, err := of.Twin()
		if err != nil {
			return err
		}
		k.twins = append(k.twins, t)
	}
	return nil
}

// closeSockets closes sockets on several threads at once: closing an AF_PACKET socket takes some 15 ms, because the
// kernel waits for RCU.
func closeSockets(fds []int) {
	const threads = 32
	var group sync.WaitGroup
	for part := range slices.Chunk(fds, len(fds)/threads+1) {
		group.Go(func() {
			for _, fd := range part {
				unix.Close(fd)
			}
		})
	}
	group.Wait()
}

// namespace returns the namespace for a device: that of the first device, or else that of the calling thread. k keeps
// the namespace open until Close, because a process without CAP_SYS_ADMIN can enter it only through a thread that is
// already in it.
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

// space returns the namespace of the first device, or nil if there was no device yet.
func (k *Privileges) space() *netspace.Space {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.home
}

// steering returns a program without claims: the one held by k, or a new one.
func (k *Privileges) steering() (*bpf.Steering, error) {
	if k == nil {
		return bpf.Load(bpf.Options{})
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, verbs.ErrClosed
	}
	if k.steer != nil {
		return k.steer, k.steer.VLAN.Close()
	}
	s, err := bpf.Load(bpf.Options{})
	k.steer = s
	return s, err
}

// fill creates the spare sockets for a device with the given numbers of AF_XDP sockets and queues: AF_XDP sockets for
// each reopening and for queues added later, and if packets is true AF_PACKET sockets for each reopening. Only its
// first call does so.
func (k *Privileges) fill(sockets, queues int, packets bool) error {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.filled {
		return nil
	}
	_ = ring.RaiseMemlock() // if the limit stays too low, ring.Open fails later and says so
	k.filled = true
	for range sockets*k.maxReopens + ring.MaxQueues {
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

// ErrSpent is wrapped by errors if a Privileges has no spare socket or program left and the process may not create one.
var ErrSpent = errors.New("no spare sockets left: restart to create new ones")

// takeXDPSocket returns a spare AF_XDP socket, or a new one if there is none.
func (k *Privileges) takeXDPSocket() (int, error) {
	return k.takeSocket(&k.sockets, ring.NewSocket)
}

// takePacketSocket returns a spare AF_PACKET socket, or a new one if there is none.
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

// Await waits until the interface with the given index, or else with the given name, exists and is up in the namespace
// of the first device. It fails with the context's cause. Before the first device, and with a nil Privileges, it does
// not wait.
func (k *Privileges) Await(ctx context.Context, index int, name string) error {
	home := k.space()
	if home == nil {
		return ctx.Err()
	}
	var nl *netlink.Handle
	isUp, setUp := context.WithCancel(context.Background())
	look := func() error {
		l, err := nl.LinkByIndex(index)
		if err != nil {
			l, err = nl.LinkByName(name)
		}
		if err == nil && l.Attrs().RawFlags&unix.IFF_UP != 0 {
			setUp()
		}
		return nil
	}
	var watch *netwatch.Watch
	err := home.Do(func() (err error) {
		if nl, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return err
		}
		watch, err = netwatch.Follow(netwatch.Options{
			Name: "links", Groups: []int{unix.RTNLGRP_LINK},
			Relist: func(uint16, []byte) bool { return true }, List: look,
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
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-isUp.Done():
		return nil
	}
}
