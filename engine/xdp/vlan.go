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
	if err := t.restorer.SetFeature(t.att.Ifindex, ethtool.VLANStripping, false); err != nil {
		name := nic.Attrs().Name
		return fmt.Errorf("cannot make %s keep the VLAN tags of received frames: %w (ethtool -K %s rxvlan off)",
			name, err, name)
	}
	return nil
}
