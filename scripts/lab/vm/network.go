package vm

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
)

// Names and addresses inside a Network. They need not be unique on the host, because they are not visible outside.
const (
	PeerLink = "xw0"  // the link of the peer namespace, one end of a veth pair
	hubLink  = "hub0" // the other end, a port of the bridge

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
	Peer *topo.Namespace // for the program under test, with PeerLink, PeerAddr4 and PeerAddr6
	MTU  int

	hub    *topo.Namespace
	bridge *netlink.Bridge
	vms    atomic.Int32 // number of machines that were ever attached: a number is never used twice
}

// NewNetwork makes a network without machines: both namespaces, the bridge and the veth pair. mtu 0 means DefaultMTU.
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
	if n.Peer, err = topo.NewNamespace(); err != nil {
		return err
	}
	if n.hub, err = topo.NewNamespace(); err != nil {
		return err
	}
	if err := n.hub.Do(func() error {
		// The hub only forwards frames and must not send any itself.
		return os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
	}); err != nil {
		return err
	}
	// Without snooping, neighbour solicitations reach every port at once.
	snooping := false
	n.bridge = &netlink.Bridge{LinkAttrs: n.attrs("br0"), MulticastSnooping: &snooping}
	hub := n.hub.Netlink()
	if err := hub.LinkAdd(n.bridge); err != nil {
		return fmt.Errorf("add the bridge: %w", err)
	}
	if err := hub.LinkSetUp(n.bridge); err != nil {
		return fmt.Errorf("set the bridge up: %w", err)
	}
	if err := hub.LinkAdd(&netlink.Veth{LinkAttrs: n.attrs(hubLink), PeerName: PeerLink,
		PeerMTU: uint32(n.MTU), PeerNamespace: netlink.NsFd(n.Peer.Fd())}); err != nil {
		return fmt.Errorf("add the veth pair: %w", err)
	}
	if err := n.plug(hubLink); err != nil {
		return err
	}
	// So no frame is larger than the MTU, or without a whole checksum.
	if err := n.hub.SetOffloads(hubLink, topo.NoOffloads); err != nil {
		return err
	}
	if err := n.Peer.SetOffloads(PeerLink, topo.NoOffloads); err != nil {
		return err
	}
	return n.configurePeer()
}

// configurePeer sets the peer's link up and gives it its addresses.
func (n *Network) configurePeer() error {
	peer := n.Peer.Netlink()
	link, err := peer.LinkByName(PeerLink)
	if err == nil {
		err = peer.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("set %s up: %w", PeerLink, err)
	}
	for _, p := range []netip.Prefix{netip.PrefixFrom(PeerAddr4, prefix4),
		netip.PrefixFrom(PeerAddr6, prefix6)} {
		addr, err := netlink.ParseAddr(p.String())
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD // usable immediately, not after a second of duplicate address detection
		if err := peer.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("add %v to %s: %w", p, PeerLink, err)
		}
	}
	return nil
}

func (n *Network) attrs(name string) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name, a.MTU = name, n.MTU
	return a
}

// plug makes a link of the hub namespace a port of the bridge, sets its MTU and switches it on.
func (n *Network) plug(name string) error {
	hub := n.hub.Netlink()
	link, err := hub.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	if err := hub.LinkSetMTU(link, n.MTU); err != nil {
		return fmt.Errorf("set MTU %d on %s: %w", n.MTU, name, err)
	}
	if err := hub.LinkSetMaster(link, n.bridge); err != nil {
		return fmt.Errorf("put %s under the bridge: %w", name, err)
	}
	if err := hub.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}

// tap makes a tap device with one queue on the bridge. The device disappears when all duplicates of its file are
// closed.
func (n *Network) tap(name string) (files []*os.File, err error) {
	err = n.hub.Do(func() (err error) {
		files, err = OpenTap(name, 1)
		return err
	})
	if err == nil {
		err = n.plug(name)
	}
	if err != nil {
		closeAll(files)
	}
	return files, err
}

// Close removes the network. The caller closes its machines before.
func (n *Network) Close() error {
	var errs []error
	for _, ns := range []*topo.Namespace{n.Peer, n.hub} {
		if ns != nil {
			errs = append(errs, ns.Close())
		}
	}
	return errors.Join(errs...)
}
