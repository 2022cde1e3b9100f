package xdp

import (
	"github.com/vishvananda/netlink"

	"xwarp/bpf"
	"xwarp/engine/host/bond"
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

// SetBond makes an interface with a name count as a bond whose state read returns, until the returned function is
// called.
func SetBond(name string, read bond.Reader) (undo func()) {
	wasIs, wasRead := isBond, readBond
	isBond = func(nic netlink.Link) bool { return nic.Attrs().Name == name }
	readBond = read
	return func() { isBond, readBond = wasIs, wasRead }
}

// LookAtBond makes a device read the state of its bond again.
func LookAtBond(d *Device) {
	if s, err := readBond(nil, d.x.att.Ifindex); err == nil {
		d.x.onBond(s)
	}
}
