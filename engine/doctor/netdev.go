package doctor

import (
	"encoding/binary"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// What a driver says of its XDP (enum netdev_xdp_act of linux/netdev.h), and how to ask.
const (
	xskZeroCopy = 1 << 3
	rxSG        = 1 << 5 // frames of several buffers

	netdevDevGet      = 1
	netdevIfindex     = 1
	netdevXDPFeatures = 3
)

// driverFeatures asks the "netdev" family of generic netlink; false when the kernel does not know it (before 6.3).
func driverFeatures(index int) (uint64, bool) {
	family, err := netlink.GenlFamilyGet("netdev")
	if err != nil {
		return 0, false
	}
	req := nl.NewNetlinkRequest(int(family.ID), 0)
	req.AddData(&nl.Genlmsg{Command: netdevDevGet, Version: 1})
	req.AddData(nl.NewRtAttr(netdevIfindex, nl.Uint32Attr(uint32(index))))
	replies, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil || len(replies) == 0 || len(replies[0]) < nl.SizeofGenlmsg {
		return 0, false
	}
	attrs, err := nl.ParseRouteAttr(replies[0][nl.SizeofGenlmsg:])
	if err != nil {
		return 0, false
	}
	for _, a := range attrs {
		if a.Attr.Type == netdevXDPFeatures && len(a.Value) >= 8 {
			return binary.NativeEndian.Uint64(a.Value), true
		}
	}
	return 0, false
}
