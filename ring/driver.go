package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Driver describes the XDP features of a device's driver.
type Driver struct {
	Name       string // as shown by ethtool -i; empty if unknown
	Native     bool   // runs XDP programs
	ZeroCopy   bool   // has a zero-copy mode for AF_XDP
	RxSegments bool   // passes frames of several buffers to programs
	// Segments is the maximum number of buffers of a frame in zero-copy mode. With 1 the driver refuses sockets with
	// XDP_USE_SG. It is 0 without zero-copy mode, and before Linux 6.6, which does not report it.
	Segments int
}

// zeroCopyFaults are drivers whose zero-copy mode can corrupt data, with the cause.
var zeroCopyFaults = map[string]string{
	// igb_clean_rx_irq_zc stops at a descriptor of length 0. igb_alloc_rx_buffers_zc clears the length of the
	// descriptor after those that it fills, except if it runs out of free chunks at the end of the ring. Then
	// igb_clean_rx_irq_zc takes old descriptors for new ones.
	"igb": "igb delivers chunks again that are free or being read, once free chunks ran " +
		"out, and frames overwrite each other",
}

// ZeroCopyFault returns why ModeAuto copies although the driver has a zero-copy mode, or nil if there is no known
// fault.
func (d Driver) ZeroCopyFault() error {
	if why := zeroCopyFaults[d.Name]; d.ZeroCopy && why != "" {
		return fmt.Errorf("the driver's zero-copy is not safe: %s", why)
	}
	return nil
}

// ErrNotReported is wrapped by the errors of QueryDriver if the kernel is older than 6.3, and by those of QueueNAPI and
// ReceiveQueues if it is older than 6.8.
var ErrNotReported = errors.New("this kernel does not report the XDP features of drivers")

// The part of linux/netdev.h that QueryDriver uses: enum netdev_xdp_act and the commands dev-get and queue-get.
const (
	netdevBasic    = 1 << 0
	netdevZeroCopy = 1 << 3
	netdevRxSG     = 1 << 5

	netdevDevGet      = 1
	netdevIfindex     = 1
	netdevXDPFeatures = 3
	netdevMaxSegments = 4

	netdevQueueGet     = 10
	netdevQueueID      = 1
	netdevQueueIfindex = 2
	netdevQueueType    = 3
	netdevQueueRx      = 0
)

// QueryDriver returns the XDP features of the driver of a device in the calling thread's network namespace. It asks the
// netdev family of generic netlink.
func QueryDriver(ifindex int) (Driver, error) {
	attrs, err := queryNetdev(netdevDevGet, attr{netdevIfindex, uint32(ifindex)})
	if err != nil {
		return Driver{}, fmt.Errorf("ring: XDP features of the driver of device %d: %w", ifindex,
			err)
	}
	d := parseDriver(attrs)
	d.Name = driverName(ifindex)
	return d, nil
}

// driverName returns the driver name as shown by ethtool -i, or "" if it is unknown.
func driverName(ifindex int) string {
	nic, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return ""
	}
	info, err := DriverInfo(nic.Attrs().Name)
	if err != nil {
		return ""
	}
	return unix.ByteSliceToString(info.Driver[:])
}

// DriverInfo returns the data of ethtool -i about an interface of the calling thread's network namespace.
func DriverInfo(name string) (*unix.EthtoolDrvinfo, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return unix.IoctlGetEthtoolDrvinfo(fd, name)
}

// ReceiveQueues returns the current number of receive queues, up to most, of a device in the calling thread's network
// namespace. The device must be up. Before Linux 6.8 the error wraps ErrNotReported.
func ReceiveQueues(ifindex, most int) (n int, err error) {
	for ; n < most; n++ {
		_, err := queryQueue(ifindex, uint32(n))
		if errors.Is(err, unix.EINVAL) && n > 0 { // no such queue
			break
		}
		if err != nil {
			return 0, fmt.Errorf("ring: the queues of device %d: %w", ifindex, err)
		}
	}
	return n, nil
}

// queryQueue returns the attributes of a receive queue. Before Linux 6.8 the error is ErrNotReported.
func queryQueue(ifindex int, queue uint32) ([]syscall.NetlinkRouteAttr, error) {
	attrs, err := queryNetdev(netdevQueueGet, attr{netdevQueueIfindex, uint32(ifindex)},
		attr{netdevQueueType, netdevQueueRx}, attr{netdevQueueID, queue})
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = ErrNotReported
	}
	return attrs, err
}

// attr is a netlink attribute with a value of 32 bits.
type attr struct {
	kind  int
	value uint32
}

// queryNetdev sends a command to the netdev family and returns the attributes of the reply.
func queryNetdev(command uint8, about ...attr) ([]syscall.NetlinkRouteAttr, error) {
	family, err := netdevFamily()
	if errors.Is(err, unix.ENOENT) {
		err = ErrNotReported
	}
	if err != nil {
		return nil, fmt.Errorf("netdev family: %w", err)
	}
	req := nl.NewNetlinkRequest(family, 0)
	req.AddData(genlHeader{command, 1})
	for _, a := range about {
		req.AddData(nl.NewRtAttr(a.kind, nl.Uint32Attr(a.value)))
	}
	return queryGeneric(req)
}

// netdevNumber caches the number of the netdev family, which is constant while the kernel runs. It is 0 before the
// first query.
var netdevNumber atomic.Uint32

// netdevFamily returns the number of the netdev family.
func netdevFamily() (int, error) {
	if n := netdevNumber.Load(); n != 0 {
		return int(n), nil
	}
	req := nl.NewNetlinkRequest(nl.GENL_ID_CTRL, 0)
	req.AddData(genlHeader{nl.GENL_CTRL_CMD_GETFAMILY, nl.GENL_CTRL_VERSION})
	req.AddData(nl.NewRtAttr(nl.GENL_CTRL_ATTR_FAMILY_NAME, nl.ZeroTerminated("netdev")))
	attrs, err := queryGeneric(req)
	if err != nil {
		return 0, err
	}
	for _, a := range attrs {
		if a.Attr.Type == nl.GENL_CTRL_ATTR_FAMILY_ID && len(a.Value) == 2 {
			n := binary.NativeEndian.Uint16(a.Value)
			netdevNumber.Store(uint32(n))
			return int(n), nil
		}
	}
	return 0, errors.New("the kernel reports no number")
}

// queryGeneric returns the attributes of the one reply to a request of generic netlink.
func queryGeneric(req *nl.NetlinkRequest) ([]syscall.NetlinkRouteAttr, error) {
	replies, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return nil, err
	}
	if len(replies) != 1 || len(replies[0]) < nl.SizeofGenlmsg {
		return nil, fmt.Errorf("generic netlink: %d replies, or a truncated one",
			len(replies))
	}
	return nl.ParseRouteAttr(replies[0][nl.SizeofGenlmsg:])
}

// parseDriver reads the reply to dev-get.
func parseDriver(attrs []syscall.NetlinkRouteAttr) (d Driver) {
	for _, a := range attrs {
		switch {
		case a.Attr.Type == netdevXDPFeatures && len(a.Value) == 8:
			f := binary.NativeEndian.Uint64(a.Value)
			d.Native, d.ZeroCopy, d.RxSegments = f&netdevBasic != 0,
				f&netdevZeroCopy != 0, f&netdevRxSG != 0
		case a.Attr.Type == netdevMaxSegments && len(a.Value) == 4:
			d.Segments = int(binary.NativeEndian.Uint32(a.Value))
		}
	}
	return d
}

// genlHeader is struct genlmsghdr: command, version, and 16 zero bits. It replaces nl.Genlmsg, which
// netlink.GenlFamilyGet uses: that reads the 16 bits from adjacent memory, which another thread may write at the same
// time.
type genlHeader [2]byte

// Len and Serialize implement nl.NetlinkRequestData.
func (h genlHeader) Len() int          { return nl.SizeofGenlmsg }
func (h genlHeader) Serialize() []byte { return []byte{h[0], h[1], 0, 0} }
