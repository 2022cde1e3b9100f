package topo

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// makeVeth makes a veth pair with one end in each namespace and switches both ends on.
func makeVeth(o *Options, a *Namespace, nameA string, b *Namespace, nameB string) (la, lb Link,
	err error) {
	if err := addVeth(o, a, nameA, b, nameB); err != nil {
		return la, lb, err
	}
	if la, err = a.up(nameA); err != nil {
		return la, lb, err
	}
	lb, err = b.up(nameB)
	return la, lb, err
}

// addVeth makes a veth pair with one end in each namespace. Both ends are down.
func addVeth(o *Options, a *Namespace, nameA string, b *Namespace, nameB string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = nameA
	attrs.MTU = o.MTU
	attrs.NumRxQueues, attrs.NumTxQueues = o.Queues, o.Queues
	veth := netlink.NewVeth(attrs)
	veth.PeerName = nameB
	veth.PeerNamespace = netlink.NsFd(b.Fd())
	veth.PeerMTU = uint32(o.MTU)
	if err := a.nl.LinkAdd(veth); err != nil {
		return fmt.Errorf("topo: creating the veth pair %s - %s: %w", nameA, nameB, err)
	}
	return nil
}

// AddVeth adds a veth pair with both ends, name and peer, to the namespace, and gives name the address addr.
func (n *Namespace) AddVeth(name, peer string, addr netip.Addr) error {
	if _, _, err := makeVeth(&Options{MTU: 1500, Queues: 1}, n, name, n, peer); err != nil {
		return err
	}
	l, err := n.nl.LinkByName(name)
	if err == nil {
		err = n.nl.AddrAdd(l, &netlink.Addr{IPNet: netlink.NewIPNet(addr.AsSlice())})
	}
	if err != nil {
		return fmt.Errorf("topo: address %v of %s: %w", addr, name, err)
	}
	return nil
}

// up applies quietIPv6 to the link and then switches the link on.
func (n *Namespace) up(name string) (Link, error) {
	err := n.Do(func() error { return quietIPv6(name) })
	if err != nil {
		return Link{}, fmt.Errorf("topo: IPv6 settings of %s: %w", name, err)
	}
	l, err := n.nl.LinkByName(name)
	if err == nil {
		err = n.nl.LinkSetUp(l)
	}
	if err != nil {
		return Link{}, fmt.Errorf("topo: switching link %s on: %w", name, err)
	}
	at := l.Attrs()
	return Link{Name: name, Index: at.Index, MAC: at.HardwareAddr, MTU: at.MTU}, nil
}

// quietIPv6 switches off duplicate address detection and router discovery on the link. Duplicate address detection
// would make addresses unusable for a second.
func quietIPv6(link string) error {
	settings := "ipv6/conf/" + link + "/"
	return errors.Join(
		writeSysctl(settings+"accept_dad", "0"),
		writeSysctl(settings+"dad_transmits", "0"),
		writeSysctl(settings+"router_solicitations", "0"),
		writeSysctl(settings+"accept_ra", "0"))
}

// silence keeps the kernel from answering or forwarding packets in the calling thread's namespace, that of a relay.
func silence() error {
	return errors.Join(
		writeSysctl("ipv6/conf/all/disable_ipv6", "1"),
		writeSysctl("ipv6/conf/default/disable_ipv6", "1"),
		writeSysctl("ipv4/ip_forward", "0"),
		writeSysctl("ipv4/conf/all/arp_ignore", "8")) // answer no ARP request at all
}

// configure sets a host's addresses and offloads.
func (h *Host) configure(o Offloads) error {
	link, err := h.nl.LinkByName(h.Link.Name)
	if err != nil {
		return fmt.Errorf("topo: %w", err)
	}
	for _, p := range []netip.Prefix{h.Addr4, h.Addr6} {
		if !p.IsValid() {
			continue
		}
		a := &netlink.Addr{IPNet: &net.IPNet{
			IP:   p.Addr().AsSlice(),
			Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen()),
		}}
		if p.Addr().Is6() {
			a.Flags = unix.IFA_F_NODAD
		}
		if err := h.nl.AddrAdd(link, a); err != nil {
			return fmt.Errorf("topo: adding %s to %s: %w", p, h.Link.Name, err)
		}
	}
	return h.SetOffloads(h.Link.Name, o)
}
