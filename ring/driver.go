package ring

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Driver is what a device's driver says of its XDP.
type Driver struct {
	Native     bool // it runs XDP programs
	ZeroCopy   bool // it has a zero-copy mode for AF_XDP
	RxSegments bool // it shows programs frames of several buffers
	// Segments is how many buffers a frame may have in zero-copy mode. With 1 it refuses sockets of XDP_USE_SG. 0 without
	// zero-copy mode, and from kernels before 6.6, which do not say.
	Segments int
}

// ErrNotTold is wrapped by AskDriver's errors when the kernel is too old to be asked (before 6.3).
var ErrNotTold = errors.New("this kernel does not tell what drivers can")

// The part of linux/netdev.h that AskDriver uses: enum netdev_xdp_act and the command dev-get.
const (
	netdevBasic    = 1 << 0
	netdevZeroCopy = 1 << 3
	netdevRxSG     = 1 << 5

	netdevDevGet      = 1
	netdevIfindex     = 1
	netdevXDPFeatures = 3
	netdevMaxSegments = 4
)

// AskDriver asks the netdev family of generic netlink about a device of the calling thread's network namespace.
func AskDriver(ifindex int) (Driver, error) {
	family, err := netlink.GenlFamilyGet("netdev")
	if errors.Is(err, unix.ENOENT) {
		return Driver{}, fmt.Errorf("ring: netdev family: %w", ErrNotTold)
	}
	if err != nil {
		return Driver{}, fmt.Errorf("ring: netdev family: %w", err)
	}
	req := nl.NewNetlinkRequest(int(family.ID), 0)
	req.AddData(genlHeader{netdevDevGet, 1})
	req.AddData(nl.NewRtAttr(netdevIfindex, nl.Uint32Attr(uint32(ifindex))))
	replies, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err == nil && len(replies) != 1 {
		err = fmt.Errorf("%d replies", len(replies))
	}
	if err != nil {
		return Driver{}, fmt.Errorf("ring: what the driver of device %d can: %w", ifindex, err)
	}
	return parseDriver(replies[0])
}

// parseDriver reads the reply to dev-get.
func parseDriver(reply []byte) (d Driver, err error) {
	if len(reply) < nl.SizeofGenlmsg {
		return d, fmt.Errorf("ring: netdev family: a reply of %d octets", len(reply))
	}
	attrs, err := nl.ParseRouteAttr(reply[nl.SizeofGenlmsg:])
	if err != nil {
		return d, fmt.Errorf("ring: netdev family: %w", err)
	}
	for _, a := range attrs {
		switch {
		case a.Attr.Type == netdevXDPFeatures && len(a.Value) == 8:
			f := binary.NativeEndian.Uint64(a.Value)
			d.Native, d.ZeroCopy, d.RxSegments = f&netdevBasic != 0, f&netdevZeroCopy != 0, f&netdevRxSG != 0
		case a.Attr.Type == netdevMaxSegments && len(a.Value) == 4:
			d.Segments = int(binary.NativeEndian.Uint32(a.Value))
		}
	}
	return d, nil
}

// genlHeader is struct genlmsghdr: command, version, and 16 bits that must be zero. nl.Genlmsg sends what happens to lie
// behind it instead of those.
type genlHeader [2]byte

// Len and Serialize implement nl.NetlinkRequestData.
func (h genlHeader) Len() int          { return nl.SizeofGenlmsg }
func (h genlHeader) Serialize() []byte { return []byte{h[0], h[1], 0, 0} }
