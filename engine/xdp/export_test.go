package xdp

import (
	"github.com/vishvananda/netlink"

	"xwarp/bpf"
	"xwarp/engine/host/bond"
	"xwarp/ring"
)

// SteeringOf returns the steering program of a device.
func SteeringOf(d *Device) *bpf.Steering { return d.x.steer }

// PortOf returns the port of a thread, which is below p, the port of a worker that Config.Wrap gets.
func PortOf(p ring.Port) ring.Port { return p.(*lane).Port }

// SetTrunkOf replaces vlan.Trunk, until the returned function is called.
func SetTrunkOf(f func(netlink.Link) (netlink.Link, uint16, error)) (undo func()) {
	was := trunkOf
	trunkOf = f
	return func() { trunkOf = was }
}

// SetBond makes devices treat the interface with the given name as a bond, until the returned function is called. read
// returns the state of the bond.
func SetBond(name string, read bond.Reader) (undo func()) {
	wasIs, wasRead := isBond, readBond
	isBond = func(nic netlink.Link) bool { return nic.Attrs().Name == name }
	readBond = read
	return func() { isBond, readBond = wasIs, wasRead }
}

// LookAtBond makes a device read the state of its bond again. If the state cannot be read, it does nothing.
func LookAtBond(d *Device) {
	if s, err := readBond(nil, d.x.att.Ifindex); err == nil {
		d.x.onBond(s)
	}
}
