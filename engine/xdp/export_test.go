package xdp

import (
	"github.com/vishvananda/netlink"

	"xwarp/bpf"
	"xwarp/ring"
)

// SteeringOf returns the steering of an AF_XDP device.
func SteeringOf(d *Device) *bpf.Steering { return d.x.steer }

// PortOf returns the port below that of a worker, which Config.Wrap has.
func PortOf(p ring.Port) ring.Port { return p.(*lane).Port }

// SetTrunkOf replaces vlan.Trunk, until the returned function is called.
func SetTrunkOf(f func(netlink.Link) (netlink.Link, uint16, error)) (undo func()) {
	was := trunkOf
	trunkOf = f
	return func() { trunkOf = was }
}
