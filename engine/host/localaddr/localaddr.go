// Package localaddr follows the IP addresses of this host and the MAC address of an interface.
package localaddr

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"xwarp/engine/host/netwatch"
)

// State is a snapshot of the addresses.
type State struct {
	MAC  [6]byte // of the interface
	Link Link
	// Addrs are the addresses that the host answers to, on any interface: the local routes of the interface's VRF, or
	// of the kernel's table local. Loopback addresses never come from a wire and are left out.
	Addrs []netip.Prefix
	// Networks are the interface addresses among Addrs, each with the prefix length of its network.
	Networks []netip.Prefix
}

// InZone returns a in the form that the kernel expects: a link-local IPv6 address gets ifname as its zone.
func InZone(a netip.AddrPort, ifname string) netip.AddrPort {
	if ip := a.Addr(); ip.Is6() && ip.IsLinkLocalUnicast() {
		return netip.AddrPortFrom(ip.WithZone(ifname), a.Port())
	}
	return a
}

// Zone returns the interface of an IPv6 zone: its name, an alternative name, or its number (RFC 4007, 11.2).
func Zone(zone string) (netlink.Link, error) {
	l, err := netlink.LinkByName(zone)
	if n, bad := strconv.ParseUint(zone, 10, 31); err != nil && bad == nil && n > 0 {
		l, err = netlink.LinkByIndex(int(n))
	}
	return l, err
}

// Link is the state of the interface.
type Link struct {
	Name    string
	MTU     int
	Up      bool // ip link set up
	Carrier bool // has a link partner
}

// Follower follows the addresses until it is closed.
type Follower struct {
	link   int
	handle *netlink.Handle
	routes *nl.SocketHandle // its dumps are filtered
	watch  *netwatch.Watch
	notify func(*State) error
	gone   func(error) // see Follow; nil after its call
	found  bool        // an earlier read found the interface
}

// settle is how long changes are collected before the tables are read, so that a thousand new addresses cost a few
// reads.
const settle = 20 * time.Millisecond

// interrupted is how many times a table is read, without a pause, if it changes during each read.
const interrupted = 8

// Follow starts to follow the interface with index link, in the network namespace of the calling thread. notify is
// called before Follow returns and after changes, by one goroutine at a time. An error of the first call is returned;
// later ones are logged and retried. gone is called when the interface has disappeared, and is the last call. log may
// be nil.
func Follow(link int, log *slog.Logger, notify func(*State) error,
	gone func(error)) (*Follower, error) {
	runtime.LockOSThread() // create all sockets on this thread
	defer runtime.UnlockOSThread()
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("local addresses: netlink socket: %w", err)
	}
	f := &Follower{link: link, handle: h, notify: notify, gone: gone}
	if f.routes, err = filteredSocket(); err == nil {
		f.watch, err = netwatch.Follow(netwatch.Options{
			Name: "local addresses", Groups: []int{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR,
				unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE},
			Relist: f.concerns, Settle: settle, List: f.list, Log: log,
		})
	}
	if err != nil {
		f.closeSockets()
		return nil, fmt.Errorf("local addresses: %w", err)
	}
	return f, nil
}

// Watch returns the watch of the kernel's tables, for health and counters.
func (f *Follower) Watch() *netwatch.Watch { return f.watch }

// Close stops following. No call of notify begins after it returns.
func (f *Follower) Close() {
	f.watch.Close()
	f.closeSockets()
}

func (f *Follower) closeSockets() {
	f.handle.Close()
	if f.routes != nil {
		f.routes.Close()
	}
}

// concerns reports whether the tables must be read again after a change. There may be a million routes for which they
// must not.
func (f *Follower) concerns(kind uint16, body []byte) bool {
	switch kind {
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return len(body) >= unix.SizeofRtMsg && nl.DeserializeRtMsg(body).Type == unix.RTN_LOCAL
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return len(body) >= unix.SizeofIfInfomsg &&
			int(nl.DeserializeIfInfomsg(body).Index) == f.link
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return true
	}
	return false
}

// list reads the tables and passes them to notify. If the interface was there and has disappeared, it calls gone
// instead.
func (f *Follower) list() error {
	if f.gone == nil {
		return nil
	}
	err := f.read()
	if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone && f.found {
		f.gone(err)
		f.gone = nil
		return nil
	}
	f.found = f.found || err == nil
	return err
}

// read reads the tables and passes them to notify.
func (f *Follower) read() error {
	nic, err := f.handle.LinkByIndex(f.link)
	if err != nil {
		return fmt.Errorf("interface %d: %w", f.link, err)
	}
	a := nic.Attrs()
	s := &State{Link: Link{Name: a.Name, MTU: a.MTU, Up: a.RawFlags&unix.IFF_UP != 0,
		Carrier: a.RawFlags&unix.IFF_LOWER_UP != 0}}
	if mac := a.HardwareAddr; len(mac) == len(s.MAC) {
		s.MAC = [6]byte(mac)
	}
	table, err := f.table(nic)
	if err != nil {
		return err
	}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		if s.Addrs, err = f.local(s.Addrs, family, table); err != nil {
			return fmt.Errorf("routes of table %d: %w", table, err)
		}
	}
	if err := f.networks(s); err != nil {
		return fmt.Errorf("addresses: %w", err)
	}
	return f.notify(s)
}

// table returns the routing table with the local routes of nic.
func (f *Follower) table(nic netlink.Link) (uint32, error) {
	if master := nic.Attrs().MasterIndex; master != 0 {
		m, err := f.handle.LinkByIndex(master)
		if err != nil {
			return 0, fmt.Errorf("interface %d: %w", master, err)
		}
		if vrf, ok := m.(*netlink.Vrf); ok {
			return vrf.Table, nil
		}
	}
	return unix.RT_TABLE_LOCAL, nil
}

// filteredSocket creates a socket on which the kernel dumps only the requested entries.
func filteredSocket() (*nl.SocketHandle, error) {
	s, err := netwatch.Socket(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	if err := unix.SetsockoptInt(s.Socket.GetFd(), unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK,
		1); err != nil {
		s.Close()
		return nil, fmt.Errorf("netlink socket: filtered dumps: %w", err)
	}
	return s, nil
}

// whole repeats a dump of a table that changed in the meantime.
func whole(dump func() error) (err error) {
	for range interrupted {
		if err = dump(); !errors.Is(err, nl.ErrDumpInterrupted) {
			break
		}
	}
	return err
}

// local adds the local routes of one family in a table to addrs, without loopback.
func (f *Follower) local(addrs []netip.Prefix, family uint8, table uint32) ([]netip.Prefix, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: f.routes}
	req.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: family, Type: unix.RTN_LOCAL}})
	req.AddData(nl.NewRtAttr(unix.RTA_TABLE, nl.Uint32Attr(table)))
	var replies [][]byte
	err := whole(func() (err error) {
		replies, err = req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE)
		return err
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) { // no such table, or no IPv6
		return addrs, nil
	}
	if err != nil {
		return nil, err
	}
	for _, r := range replies {
		p, err := parseRoute(r)
		if err != nil {
			return nil, err
		}
		if p.IsValid() && !p.Addr().IsLoopback() {
			addrs = append(addrs, p)
		}
	}
	return addrs, nil
}

// networks adds the networks of the addresses in s.
func (f *Follower) networks(s *State) error {
	ours := make(map[netip.Addr]bool, len(s.Addrs))
	for _, p := range s.Addrs {
		if p.IsSingleIP() {
			ours[p.Addr()] = true
		}
	}
	var list []netlink.Addr
	err := whole(func() (err error) {
		list, err = f.handle.AddrList(nil, netlink.FAMILY_ALL)
		return err
	})
	for _, a := range list {
		addr, _ := netip.AddrFromSlice(a.IP)
		if bits, _ := a.Mask.Size(); ours[addr.Unmap()] {
			s.Networks = append(s.Networks, netip.PrefixFrom(addr.Unmap(), bits))
		}
	}
	return err
}

// parseRoute returns the destination of a local route, or the zero Prefix for other routes.
func parseRoute(body []byte) (netip.Prefix, error) {
	if len(body) < unix.SizeofRtMsg {
		return netip.Prefix{}, fmt.Errorf("a route of %d bytes", len(body))
	}
	m := nl.DeserializeRtMsg(body)
	if m.Type != unix.RTN_LOCAL {
		return netip.Prefix{}, nil
	}
	attrs, err := nl.ParseRouteAttr(body[unix.SizeofRtMsg:])
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("a route: %w", err)
	}
	dst := netip.IPv6Unspecified()
	if m.Family == unix.AF_INET {
		dst = netip.IPv4Unspecified()
	}
	for _, a := range attrs {
		if a.Attr.Type != unix.RTA_DST {
			continue
		}
		if got, ok := netip.AddrFromSlice(a.Value); ok {
			dst = got
		}
	}
	return netip.PrefixFrom(dst, int(m.Dst_len)), nil
}
