package transport

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"xwarp/engine/host/localaddr"
)

// UsageError is an error in the command line.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e UsageError) Unwrap() error { return e.Err }

// InZone returns a with the current name of the interface that its zone names or numbers. An address without a zone is
// unchanged.
func InZone(a netip.Addr) (netip.Addr, error) {
	if a.Zone() == "" {
		return a, nil
	}
	link, err := localaddr.Zone(a.Zone())
	if err != nil {
		return a, UsageError{fmt.Errorf("%v: no interface has the name or number %s: %w "+
			"(see: ip -br link)", a, a.Zone(), err)}
	}
	return a.WithZone(link.Attrs().Name), nil
}

// InterfaceToward returns the interface of the route to a remote address. It is lo for an address of this host, except
// a link-local IPv6 address: of these the zone determines the interface.
func InterfaceToward(remote netip.Addr) (string, error) {
	if zone := remote.Zone(); zone != "" { // of a link-local address
		a, err := InZone(remote)
		return a.Zone(), err
	}
	if remote.Is6() && remote.IsLinkLocalUnicast() {
		return "", UsageError{fmt.Errorf(
			"link-local address %v needs an interface, such as %v%%eth0", remote, remote)}
	}
	routes, err := netlink.RouteGet(net.IP(remote.AsSlice()))
	if err != nil || len(routes) == 0 {
		return "", fmt.Errorf("no route to %v: %w (see: ip route get %v)", remote, err, remote)
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return "", fmt.Errorf("interface %d of the route to %v: %w", routes[0].LinkIndex, remote,
			err)
	}
	return link.Attrs().Name, nil
}

// InterfaceOf returns the interface that has a local address. The error is ErrAmbiguousInterface for a wildcard
// address.
func InterfaceOf(local netip.Addr) (string, error) {
	if local.IsUnspecified() {
		return "", ErrAmbiguousInterface
	}
	if local.Is6() && local.IsLinkLocalUnicast() {
		return InterfaceToward(local)
	}
	links, err := net.Interfaces()
	if err != nil {
		return "", err
	}
	for _, l := range links {
		addrs, err := l.Addrs()
		if err != nil {
			return "", err
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil &&
				p.Addr().WithZone("") == local.WithZone("") {
				return l.Name, nil
			}
		}
	}
	return "", fmt.Errorf("no interface has the address %v (see: ip -br addr)", local)
}
