package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/cmd/xwarp/rping"
	"xwarp/engine"
	"xwarp/engine/verbs"
	"xwarp/ring"
	"xwarp/tcp"
	"xwarp/tcp/tick"
)

// defaultPort is where serve listens: iWARP's usual port, and rping's.
const defaultPort = rping.DefaultPort

// transports are the values of --transport.
var transports = []string{"xdp", "kernel"}

// deviceFlags choose a device.
type deviceFlags struct {
	transport string
	iface     string
	ring      ring.Mode
	mpa       verbs.MPAConfig
}

func (d *deviceFlags) register(f *pflag.FlagSet) {
	f.StringVar(&d.transport, "transport", "xdp", "\"xdp\" (AF_XDP and our own TCP, needs root) "+
		"or \"kernel\" (the kernel's TCP)")
	f.StringVar(&d.iface, "interface", "", "network interface for xdp (default: the one that the "+
		"address belongs to)")
	f.TextVar(&d.ring, "ring-mode", ring.ModeAuto, "how frames reach memory with xdp: zero-copy, "+
		"copy, or auto: zero-copy where the driver has it")
}

// registerMPA adds what is asked of MPA, of every peer; without it that is the usual.
func (d *deviceFlags) registerMPA(f *pflag.FlagSet) {
	not := func(v *bool, name, what string) {
		f.BoolFunc(name, what+" (default true)", func(text string) error {
			on, err := strconv.ParseBool(text)
			*v = !on
			return err
		})
	}
	not(&d.mpa.NoMarkers, "markers", "ask the peer for MPA markers")
	not(&d.mpa.NoCRC, "crc", "CRC32C in every FPDU; false: do without if the peer does too, as "+
		"one must that neither makes nor checks it")
}

func (d *deviceFlags) check() error {
	switch {
	case !slices.Contains(transports, d.transport):
		return usagef("--transport is %q, but it is xdp or kernel", d.transport)
	case d.transport == "kernel" && d.ring != ring.ModeAuto:
		return usagef("--ring-mode is for --transport=xdp")
	case d.transport == "kernel" && d.iface != "":
		return usagef("--interface is for --transport=xdp: the kernel finds its interface itself")
	}
	return nil
}

// open makes the device. find names the interface when the user did not.
func (d *deviceFlags) open(log *slog.Logger, find func() (string, error)) (*engine.Device, error) {
	if d.transport == "kernel" {
		return engine.OpenKernel(engine.KernelConfig{Options: engine.Options{Log: log, MPA: d.mpa}})
	}
	iface := d.iface
	if iface == "" {
		var err error
		if iface, err = find(); err != nil {
			return nil, err
		}
	}
	dev, err := engine.OpenXDP(engine.XDPConfig{
		Options: engine.Options{Log: log, MPA: d.mpa}, Interface: iface, RingMode: d.ring,
		// A peer that is gone without a word is noticed by Beats once there is a connection; this is for the rest.
		TCP: tcp.Config{KeepaliveIdle: tick.Duration(time.Minute)},
	})
	if err != nil && os.Geteuid() != 0 && (errors.Is(err, unix.EPERM) ||
		errors.Is(err, unix.EACCES)) {
		return nil, fmt.Errorf("%s: %w: AF_XDP needs root (sudo), --transport=kernel does not",
			iface, errNotPermitted)
	}
	return dev, err
}

// errNotPermitted says no more than that: what the kernel's libraries add is about limits that are not in the way.
var errNotPermitted = errors.New("operation not permitted")

// interfaceTo returns the interface on the way to a remote address.
func interfaceTo(remote netip.Addr) (string, error) {
	if zone := remote.Zone(); zone != "" { // of a link-local address
		link, err := netlink.LinkByName(zone)
		if err != nil {
			return "", fmt.Errorf("%v: there is no interface %s: %w (see: ip -br link)", remote,
				zone, err)
		}
		return link.Attrs().Name, nil
	}
	if remote.Is6() && remote.IsLinkLocalUnicast() {
		return "", usagef("%v is on every link: say which, as in %v%%eth0", remote, remote)
	}
	routes, err := netlink.RouteGet(net.IP(remote.AsSlice()))
	if err != nil || len(routes) == 0 {
		return "", fmt.Errorf("no route to %v: %w (see: ip route get %v)", remote, err, remote)
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return "", fmt.Errorf("interface %d on the way to %v: %w", routes[0].LinkIndex, remote, err)
	}
	if link.Attrs().Flags&net.FlagLoopback != 0 {
		return "", fmt.Errorf("%v is an address of this host, and AF_XDP does not see what stays "+
			"inside: use --transport=kernel", remote)
	}
	return link.Attrs().Name, nil
}

// errWhich is an address that belongs to no interface in particular.
var errWhich = errors.New("which interface?")

// which names the flags that say it.
func which(err error, address string) error {
	if errors.Is(err, errWhich) {
		return usagef("%w Name it with --interface, or an address of it with %s (see: ip -br addr)",
			err, address)
	}
	return err
}

// interfaceOf returns the interface that has a local address.
func interfaceOf(local netip.Addr) (string, error) {
	if local.IsUnspecified() {
		return "", errWhich
	}
	if local.Is6() && local.IsLinkLocalUnicast() {
		return interfaceTo(local)
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

// resolve parses --to and --from, and looks a name up.
func resolve(ctx context.Context, s string) (netip.AddrPort, error) {
	host, port, err := splitPort(s)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if host == "" || port == 0 {
		return netip.AddrPort{},
			usagef("%q does not say where: write host, host:port or [IPv6]:port", s)
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return netip.AddrPortFrom(a, port), nil
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(addrs[0].Unmap(), port), nil
}
