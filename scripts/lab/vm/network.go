package vm

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
)

// Names and addresses inside a Network. They need not be unique on the host: nothing of them is visible outside.
const (
	PeerLink = "xw0"  // the device of the peer namespace
	hubLink  = "hub0" // its other end, a port of the bridge
	bridge   = "br0"

	DefaultMTU = 1500
	maxVMs     = 64
)

var (
	PeerAddr4 = netip.MustParseAddr("10.77.0.1")
	PeerAddr6 = netip.MustParseAddr("fd77::1")
)

const (
	prefix4 = 24
	prefix6 = 64
)

// Network is a bridge between one namespace for the program under test and any number of machines.
type Network struct {
	Peer *Netns // where the program under test runs, with PeerLink, PeerAddr4 and PeerAddr6
	MTU  int

	hub *Netns
	mu  sync.Mutex
	vms int // machines ever attached: numbers are not used twice
}

// NewNetwork makes both namespaces and what is in them. mtu 0 means DefaultMTU.
func NewNetwork(mtu int) (*Network, error) {
	if mtu == 0 {
		mtu = DefaultMTU
	}
	n := &Network{MTU: mtu}
	if err := n.build(); err != nil {
		n.Close()
		return nil, fmt.Errorf("lab network: %w", err)
	}
	return n, nil
}

func (n *Network) build() (err error) {
	if n.Peer, err = NewNetns(); err != nil {
		return err
	}
	if n.hub, err = NewNetns(); err != nil {
		return err
	}
	err = n.hub.Do(func() error {
		// The hub only forwards frames: it shall not speak itself.
		if err := sysctl("net/ipv6/conf/default/disable_ipv6", "1"); err != nil {
			return err
		}
		// Without snooping, neighbour solicitations reach every port at once.
		snooping := false
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: n.attrs(bridge),
			MulticastSnooping: &snooping}); err != nil {
			return fmt.Errorf("add the bridge: %w", err)
		}
		veth := &netlink.Veth{LinkAttrs: n.attrs(hubLink), PeerName: PeerLink,
			PeerMTU: uint32(n.MTU), PeerNamespace: netlink.NsFd(n.Peer.Fd())}
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("add the veth pair: %w", err)
		}
		if err := up(bridge); err != nil {
			return err
		}
		return n.plug(hubLink)
	})
	if err != nil {
		return err
	}
	// No frame larger than the MTU, or without its checksum, reaches the other end.
	if err := n.hub.SetOffloads(hubLink, topo.NoOffloads); err != nil {
		return err
	}
	if err := n.Peer.SetOffloads(PeerLink, topo.NoOffloads); err != nil {
		return err
	}
	return n.Peer.Do(func() error {
		if err := up(PeerLink); err != nil {
			return err
		}
		link, err := netlink.LinkByName(PeerLink)
		if err != nil {
			return err
		}
		for _, p := range []netip.Prefix{netip.PrefixFrom(PeerAddr4, prefix4),
			netip.PrefixFrom(PeerAddr6, prefix6)} {
			addr, err := netlink.ParseAddr(p.String())
			if err != nil {
				return err
			}
			addr.Flags = unix.IFA_F_NODAD // at once, not after a second
			if err := netlink.AddrAdd(link, addr); err != nil {
				return fmt.Errorf("add %v to %s: %w", p, PeerLink, err)
			}
		}
		return nil
	})
}

func (n *Network) attrs(name string) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name, a.MTU = name, n.MTU
	return a
}

// plug makes the link, which is in the namespace of this thread, a port of the bridge.
func (n *Network) plug(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	br, err := netlink.LinkByName(bridge)
	if err != nil {
		return fmt.Errorf("find the bridge: %w", err)
	}
	if err := netlink.LinkSetMTU(link, n.MTU); err != nil {
		return fmt.Errorf("set MTU %d on %s: %w", n.MTU, name, err)
	}
	if err := netlink.LinkSetMaster(link, br); err != nil {
		return fmt.Errorf("put %s under the bridge: %w", name, err)
	}
	return up(name)
}

// tap opens a new tap device on the bridge. It vanishes when the file, and every copy of it, is closed.
func (n *Network) tap(name string) (files []*os.File, err error) {
	err = n.hub.Do(func() error {
		if files, err = OpenTap(name, 1); err != nil {
			return err
		}
		return n.plug(name)
	})
	if err != nil {
		closeAll(files)
	}
	return files, err
}

// number gives the next machine its number.
func (n *Network) number() (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.vms >= maxVMs {
		return 0, fmt.Errorf("a lab network takes %d machines in its life, no more", maxVMs)
	}
	n.vms++
	return n.vms - 1, nil
}

// Close removes the network. Close its machines first.
func (n *Network) Close() error {
	var errs []error
	for _, ns := range []*Netns{n.Peer, n.hub} {
		if ns != nil {
			errs = append(errs, ns.Close())
		}
	}
	return errors.Join(errs...)
}

func up(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}

func sysctl(path, value string) error {
	if err := os.WriteFile("/proc/sys/"+path, []byte(value), 0); err != nil {
		return fmt.Errorf("sysctl: %w", err)
	}
	return nil
}
