package neigh

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// neighbour requests only the entry of hop from the kernel, because the cost of a dump grows with the number of hosts.
// Without an entry it returns nil.
func (r *Resolver) neighbour(hop netip.Addr) (*netlink.Neigh, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, 0)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: r.one}
	req.AddData(&netlink.Ndmsg{Family: uint8(family(hop)), Index: uint32(r.link)})
	req.AddData(nl.NewRtAttr(netlink.NDA_DST, hop.AsSlice()))
	got, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("neighbour %v: %w", hop, err)
	case len(got) == 0:
		return nil, nil
	}
	return decode(got[0]), nil
}

// decode returns the entry in the body of a message, or nil if the body has none.
func decode(body []byte) *netlink.Neigh {
	if len(body) < (&netlink.Ndmsg{}).Len() {
		return nil
	}
	n, err := netlink.NeighDeserialize(body)
	if err != nil {
		return nil
	}
	return n
}

// fixed are states of entries that the kernel neither confirms nor expires.
const fixed = netlink.NUD_PERMANENT | netlink.NUD_NOARP

func usable(n *netlink.Neigh) bool {
	const good = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE |
		fixed
	return n.State&good != 0 && len(n.HardwareAddr) == 6
}
