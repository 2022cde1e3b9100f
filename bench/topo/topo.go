// Package topo makes and removes test topologies: two hosts, each a network namespace, joined by a veth pair
// or by a third namespace in which a relay can stand.
//
//	direct:     A eth0 ────────────────────────────── eth0 B
//	with relay: A eth0 ───── toA  [relay]  toB ────── eth0 B
//
// It uses netlink and ioctl itself and starts no program. Namespaces are anonymous: they exist as long as this process
// holds their file descriptors, so that a killed process leaves nothing behind.
//
// The links keep veth's noqueue discipline on purpose: with a queueing discipline, a full ring that is detached blocks
// the veth pair for good.
package topo

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Limits and defaults of Options.
const (
	DefaultMTU = 1500
	MinMTU     = 1280  // RFC 8200, 5: below it IPv6 does not run on a link
	MaxMTU     = 65535 // veth's own limit
	MaxQueues  = 64    // more than any test needs; a mistyped number must not create thousands of queues
)

// Options are the settings of New. The zero value is two directly connected hosts at MTU 1500, one queue, IPv4 and
// IPv6.
type Options struct {
	// Relay puts a third namespace between the hosts. No frame passes it until a relay runs there.
	Relay bool
	// MTU is that of every interface, in bytes. 0 means DefaultMTU.
	MTU int
	// Queues is the number of receive queues, and of transmit queues, of every interface. 0 means one.
	Queues int
	// IPv4Only gives the hosts no IPv6 addresses, IPv6Only no IPv4 addresses.
	IPv4Only, IPv6Only bool
	// OffloadsA and OffloadsB are applied to the hosts' interfaces.
	OffloadsA, OffloadsB Offloads
}

// Link is one end of a veth pair, up and running.
type Link struct {
	Name  string // unique in its namespace only
	Index int    // unique in its namespace only
	MAC   net.HardwareAddr
	MTU   int
}

// Host is one of the two hosts of a topology: a namespace with one link.
type Host struct {
	*Namespace
	Link Link
	// Addr4 and Addr6 are the addresses of Link with their prefix lengths. That of a family without addresses is the
	// zero Prefix.
	Addr4, Addr6 netip.Prefix
}

// Middle is the namespace between the hosts. Its links have no addresses, and its kernel answers no packet.
type Middle struct {
	*Namespace
	ToA, ToB Link
}

// Net is a topology. The caller of New closes it.
type Net struct {
	A, B  *Host
	Relay *Middle // nil without Options.Relay

	options Options
	spaces  []*Namespace
	closed  bool
}

// The hosts' addresses are from the documentation prefixes of RFC 5737 and RFC 3849.
var (
	addr4A = netip.MustParsePrefix("192.0.2.1/24")
	addr4B = netip.MustParsePrefix("192.0.2.2/24")
	addr6A = netip.MustParsePrefix("2001:db8:77::1/64")
	addr6B = netip.MustParsePrefix("2001:db8:77::2/64")

	// RelayAddr4 and RelayAddr6 are free addresses on the hosts' network, for packets that a relay sends itself.
	RelayAddr4 = netip.MustParseAddr("192.0.2.254")
	RelayAddr6 = netip.MustParseAddr("2001:db8:77::fe")
)

// New makes a topology; on failure it leaves nothing behind.
func New(o Options) (*Net, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	t := &Net{options: o}
	if err := t.build(&o); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (o *Options) complete() error {
	if o.MTU == 0 {
		o.MTU = DefaultMTU
	}
	if o.Queues == 0 {
		o.Queues = 1
	}
	switch {
	case o.MTU < MinMTU || o.MTU > MaxMTU:
		return fmt.Errorf("topo: MTU %d is not in %d to %d", o.MTU, MinMTU, MaxMTU)
	case o.Queues < 1 || o.Queues > MaxQueues:
		return fmt.Errorf("topo: %d queues are not in 1 to %d", o.Queues, MaxQueues)
	case o.IPv4Only && o.IPv6Only:
		return errors.New("topo: IPv4Only and IPv6Only leave no address family")
	}
	return nil
}

func (t *Net) build(o *Options) error {
	a, err := t.namespace()
	if err != nil {
		return err
	}
	b, err := t.namespace()
	if err != nil {
		return err
	}
	t.A, t.B = &Host{Namespace: a}, &Host{Namespace: b}
	if !o.IPv6Only {
		t.A.Addr4, t.B.Addr4 = addr4A, addr4B
	}
	if !o.IPv4Only {
		t.A.Addr6, t.B.Addr6 = addr6A, addr6B
	}
	if err := t.linkHosts(o); err != nil {
		return err
	}
	if err := t.A.configure(o.OffloadsA); err != nil {
		return err
	}
	return t.B.configure(o.OffloadsB)
}

// Reconnect recreates the deleted veth pair of two hosts that are joined directly. Each end has its addresses before it
// comes up, because programs may wait for it to come up.
func (t *Net) Reconnect() error {
	if err := addVeth(&t.options, t.A.Namespace, "eth0", t.B.Namespace, "eth0"); err != nil {
		return err
	}
	for _, end := range []struct {
		h *Host
		o Offloads
	}{{t.A, t.options.OffloadsA}, {t.B, t.options.OffloadsB}} {
		end.h.Link.Name = "eth0"
		err := end.h.configure(end.o)
		if err == nil {
			end.h.Link, err = end.h.up("eth0")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *Net) namespace() (*Namespace, error) {
	n, err := NewNamespace()
	if err == nil {
		t.spaces = append(t.spaces, n)
	}
	return n, err
}

// linkHosts joins the hosts by a veth pair, or each by a pair to the relay's namespace.
func (t *Net) linkHosts(o *Options) (err error) {
	if !o.Relay {
		t.A.Link, t.B.Link, err = makeVeth(o, t.A.Namespace, "eth0", t.B.Namespace, "eth0")
		return err
	}
	r, err := t.namespace()
	if err != nil {
		return err
	}
	t.Relay = &Middle{Namespace: r}
	if err := r.Do(silence); err != nil {
		return fmt.Errorf("topo: quieting the relay's namespace: %w", err)
	}
	t.A.Link, t.Relay.ToA, err = makeVeth(o, t.A.Namespace, "eth0", r, "toA")
	if err != nil {
		return err
	}
	t.B.Link, t.Relay.ToB, err = makeVeth(o, t.B.Namespace, "eth0", r, "toB")
	return err
}

// Close removes the links and namespaces. A namespace with open sockets stays, without links, until they are closed.
func (t *Net) Close() error {
	if t.closed {
		return nil
	}
	t.closed = true
	var errs []error
	for _, n := range t.spaces {
		errs = append(errs, n.removeLinks())
	}
	for _, n := range t.spaces {
		errs = append(errs, n.Close())
	}
	return errors.Join(errs...)
}

// removeLinks deletes every veth of the namespace, which deletes the other ends too.
func (n *Namespace) removeLinks() error {
	links, err := n.nl.LinkList()
	if err != nil {
		return fmt.Errorf("topo: listing links: %w", err)
	}
	var errs []error
	for _, l := range links {
		if l.Type() != "veth" {
			continue
		}
		err := n.nl.LinkDel(l)
		if gone := (netlink.LinkNotFoundError{}); err != nil && !errors.As(err, &gone) {
			errs = append(errs, fmt.Errorf("topo: removing link %s: %w", l.Attrs().Name, err))
		}
	}
	return errors.Join(errs...)
}
