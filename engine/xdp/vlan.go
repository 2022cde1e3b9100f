package xdp

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"xwarp/engine/host/ethtool"
	"xwarp/engine/host/vlan"
)

// trunkOf is vlan.Trunk, unless a test replaces it.
var trunkOf = vlan.Trunk

// keepTags makes the driver of nic leave the tags in received frames: the steering program cannot see removed ones. The
// kernel's VLAN devices work both ways.
func (t *trunk) keepTags(nic netlink.Link) error {
	name := nic.Attrs().Name
	f, err := ethtool.Features(name)
	if err == nil && f[ethtool.VLANStripping].On {
		if err = t.startRestorer(); err == nil {
			err = t.restorer.KeepVLANTags(t.att.Ifindex)
		}
	}
	if err != nil {
		return fmt.Errorf("cannot make %s keep the VLAN tags of received frames: %w (ethtool -K %s rxvlan off)",
			name, err, name)
	}
	return nil
}
