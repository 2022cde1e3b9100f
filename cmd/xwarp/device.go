package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"xwarp/cmd/xwarp/transport"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/verbs"
)

// defaultPort is the port of serve: that of rdma-core's rping, which iWARP programs commonly use.
const defaultPort = 7174

// openDevice opens the device selected by the flags. find returns the interface of the address at; address is the name
// of the flag that sets at, for errors.
func (g *global) openDevice(cmd *cobra.Command, flags *transport.Flags,
	find func(netip.Addr) (string, error), at netip.AddrPort, address string) (verbs.Device,
	error) {
	d, err := flags.Open(g.logger(cmd), func() (string, error) { return find(at.Addr()) })
	if errors.Is(err, transport.ErrAmbiguousInterface) {
		err = usagef("%w: set --interface, or give one of its addresses to %s (see: ip -br addr)",
			err, address)
	}
	return d, err
}

// registerMPA adds the MPA flags, which apply to every peer.
func registerMPA(f *pflag.FlagSet, m *verbs.MPAConfig) {
	transport.Switch(f, &m.Markers, verbs.MarkersMirrored, verbs.MarkersOff, "markers",
		"request MPA markers from the peer (default true)")
	transport.Switch(f, &m.CRC, verbs.CRCRequired, verbs.CRCOptional, "crc",
		"require CRC32C in every FPDU; with false, omit it if the peer agrees (default true)")
}

// splitPort splits "host", "host:port", ":port", "v6" or "[v6]:port".
func splitPort(s string) (host string, port uint16, err error) {
	if _, err := netip.ParseAddr(s); err == nil {
		return s, defaultPort, nil
	}
	if h, ok := strings.CutPrefix(s, "["); ok && strings.HasSuffix(h, "]") {
		return strings.TrimSuffix(h, "]"), defaultPort, nil
	}
	host, text, ok := strings.Cut(s, ":")
	if strings.HasPrefix(s, "[") || strings.Count(s, ":") > 1 {
		host, text, err = net.SplitHostPort(s)
		ok = true
	}
	if err != nil {
		return "", 0, usagef("invalid address %q: need host, host:port or [IPv6]:port", s)
	}
	if !ok {
		return host, defaultPort, nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, usagef("port %q in %q: need 0 to 65535", text, s)
	}
	return host, uint16(n), nil
}

// listenAddrs parses --listen. A port alone means all IPv4 and all IPv6 addresses.
func listenAddrs(s string) ([]netip.AddrPort, error) {
	host, port, err := splitPort(s)
	if err != nil {
		return nil, err
	}
	if host == "" {
		return config.Address(netip.AddrPortFrom(netip.Addr{}, port)).All(), nil
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return nil, usagef("--listen %q: need a local IP address, :port for all addresses, "+
			"0.0.0.0:port for all of IPv4, or [::]:port for all of IPv6", host)
	}
	if a, err = transport.InZone(a); err != nil {
		return nil, err
	}
	return []netip.AddrPort{netip.AddrPortFrom(a, port)}, nil
}

// ownAddrs returns, for each wildcard address in at, the addresses of the device's interface in the same family, except
// link-local ones. It returns nil unless the device belongs to xwarpd.
func ownAddrs(d verbs.Device, at []netip.AddrPort) (list []netip.AddrPort) {
	t := d.Transport()
	link, err := net.InterfaceByName(t.Interface)
	if !t.Daemon || err != nil {
		return nil
	}
	addrs, err := link.Addrs()
	if err != nil {
		return nil
	}
	for _, a := range at {
		for _, own := range addrs {
			p, err := netip.ParsePrefix(own.String())
			if err == nil && a.Addr().IsUnspecified() && a.Addr().Is4() == p.Addr().Is4() &&
				!p.Addr().IsLinkLocalUnicast() {
				list = append(list, netip.AddrPortFrom(p.Addr(), a.Port()))
			}
		}
	}
	return list
}

// denied reports whether xwarpd refused a request because of missing permission.
func denied(err error) bool {
	var refusal *control.Error
	return errors.As(err, &refusal) && refusal.Code == control.CodePermission
}

// resolve parses s, the host and port of a server, and returns its addresses in the order in which to try them.
func resolve(ctx context.Context, s string) ([]netip.AddrPort, error) {
	host, port, err := splitPort(s)
	if err != nil {
		return nil, err
	}
	if host == "" || port == 0 {
		return nil, usagef("incomplete address %q: need host, host:port or [IPv6]:port", s)
	}
	return lookUp(ctx, host, port)
}

// lookUp resolves a host, which is an address or a name. The addresses of a name are in the order of RFC 6724.
func lookUp(ctx context.Context, host string, port uint16) (list []netip.AddrPort, err error) {
	if a, err := netip.ParseAddr(host); err == nil {
		a, err = transport.InZone(a)
		return []netip.AddrPort{netip.AddrPortFrom(a, port)}, err
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for _, a := range addrs {
		list = append(list, netip.AddrPortFrom(a.Unmap(), port))
	}
	return list, err
}
