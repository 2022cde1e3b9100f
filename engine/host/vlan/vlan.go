// Package vlan finds the interfaces whose AF_XDP sockets serve VLANs.
package vlan

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"xwarp/engine/host/bond"
	"xwarp/engine/host/ethtool"
)

// Trunk returns the interface whose sockets a device for nic uses, in the calling thread's network namespace. For a
// VLAN of a network card or bond that is the card or bond, and id is the VLAN identifier. Otherwise it is nic itself,
// and id is 0. If nic is a VLAN that cannot use its parent's sockets, why is the reason.
func Trunk(nic netlink.Link) (trunk netlink.Link, id uint16, why error) {
	v, ok := nic.(*netlink.Vlan)
	if !ok {
		return nic, 0, nil
	}
	parent, err := checkParent(v, netlink.LinkByIndex, ethtool.Features)
	if err != nil {
		return nic, 0, fmt.Errorf("VLAN %d: %w", v.VlanId, err)
	}
	return parent, uint16(v.VlanId), nil
}

// checkParent returns the parent of an 802.1Q VLAN, if it is in the same namespace, and is a bond in a supported mode,
// or a network card that can leave tags in frames.
func checkParent(v *netlink.Vlan, byIndex func(int) (netlink.Link, error),
	features func(string) (map[string]ethtool.Feature, error)) (netlink.Link, error) {
	switch {
	case v.VlanProtocol != netlink.VLAN_PROTOCOL_8021Q:
		return nil, fmt.Errorf("xwarp writes tags of 802.1Q only, not of %v (recreate it with: proto 802.1Q)",
			v.VlanProtocol)
	case v.NetNsID >= 0:
		return nil, errors.New("its parent is in another network namespace (run xwarpd there, or move the parent)")
	}
	parent, err := byIndex(v.ParentIndex)
	if err != nil {
		return nil, fmt.Errorf("its parent: %w", err)
	}
	name := parent.Attrs().Name
	switch kind := parent.Type(); kind {
	case "device": // a network card
	case "bond":
		if b, ok := parent.(*netlink.Bond); ok {
			if err := bond.CheckMode(b.Mode); err != nil {
				return nil, fmt.Errorf("its parent %s: %w", name, err)
			}
		}
		return parent, nil // its members have the offload
	case "vlan":
		return nil, fmt.Errorf("its parent %s is a VLAN, and xwarp writes one tag only (make the VLAN on a network card)", name)
	default:
		return nil, fmt.Errorf("its parent %s is a %s, and xwarp writes tags on network cards and bonds only (make the VLAN on one)",
			name, kind)
	}
	if f, err := features(name); err == nil && f[ethtool.VLANStripping].On &&
		f[ethtool.VLANStripping].Fixed {
		return nil, fmt.Errorf("%s removes the tags of received frames and cannot stop (use another network card)", name)
	}
	return parent, nil
}
