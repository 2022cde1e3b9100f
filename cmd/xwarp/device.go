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

	"xwarp/cmd/xwarp/rping"
	"xwarp/cmd/xwarp/transport"
	"xwarp/engine/daemon/control"
	"xwarp/engine/verbs"
)

// defaultPort is where serve listens: iWARP's usual port, and rping's.
const defaultPort = rping.DefaultPort

// openDevice opens the device that the flags choose. find finds the interface of an address, which the flag called
// address says.
func (g *global) openDevice(cmd *cobra.Command, flags *transport.Flags,
	find func(netip.Addr) (string, error), at netip.AddrPort, address string) (verbs.Device,
	error) {
	d, err := flags.Open(g.logger(cmd), func() (string, error) { return find(at.Addr()) })
	if errors.Is(err, transport.ErrWhich) {
		err = usagef("%w Name it with --interface, or an address of it with %s (see: ip -br addr)",
			err, address)
	}
	return d, err
}

// registerMPA adds the flags of MPA's settings, which hold for every peer. Their defaults are the usual ones.
func registerMPA(f *pflag.FlagSet, m *verbs.MPAConfig) {
	transport.Switch(f, &m.Markers, verbs.MarkersMirrored, verbs.MarkersOff, "markers",
		"ask the peer for MPA markers (default true)")
	transport.Switch(f, &m.CRC, verbs.CRCRequired, verbs.CRCOptional, "crc",
		"CRC32C in every FPDU; with false, there is no CRC if the peer agrees (default true)")
}

// splitPort separates "host", "host:port", ":port", "v6" and "[v6]:port".
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
		return "", 0, usagef("%q is no address: write host, host:port or [IPv6]:port", s)
	}
	if !ok {
		return host, defaultPort, nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, usagef("port %q in %q is not in 0 to 65535", text, s)
	}
	return host, uint16(n), nil
}

// listenAddrs parses --listen. A port alone is all of IPv4 and all of IPv6.
func listenAddrs(s string) ([]netip.AddrPort, error) {
	host, port, err := splitPort(s)
	if err != nil {
		return nil, err
	}
	if host == "" {
		return []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), port),
			netip.AddrPortFrom(netip.IPv6Unspecified(), port)}, nil
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return nil, usagef("%q is no IP address: --listen takes one of this host's, :port for "+
			"all of them, or 0.0.0.0:port or [::]:port for those of IPv4 or IPv6", host)
	}
	return []netip.AddrPort{netip.AddrPortFrom(a, port)}, nil
}

// ownAddrs returns the addresses of a daemon's interface of the families of at, where at is all addresses of this host.
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

// denied reports whether xwarpd refused a request for want of permission.
func denied(err error) bool {
	var refusal *control.Error
	return errors.As(err, &refusal) && refusal.Code == control.CodePermission
}

// resolve parses --to and --from.
func resolve(ctx context.Context, s string) (netip.AddrPort, error) {
	host, port, err := splitPort(s)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if host == "" || port == 0 {
		return netip.AddrPort{},
			usagef("%q does not say where: write host, host:port or [IPv6]:port", s)
	}
	return lookUp(ctx, host, port)
}

// lookUp returns where a host is, which is an address or a name.
func lookUp(ctx context.Context, host string, port uint16) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return netip.AddrPortFrom(a, port), nil
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(addrs[0].Unmap(), port), nil
}
