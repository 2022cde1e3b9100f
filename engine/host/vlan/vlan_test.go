package vlan

import (
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"xwarp/engine/host/ethtool"
)

// TestTrunk: an 802.1Q VLAN uses the sockets of its parent only if that is in the same namespace, and is a network card
// whose driver can leave tags in frames, or a bond in a supported mode. For all others the reason names the next step.
func TestTrunk(t *testing.T) {
	at := func(index int) netlink.LinkAttrs {
		return netlink.LinkAttrs{Name: "eth0", Index: index, NetNsID: -1}
	}
	of := func(parent int, edit func(*netlink.Vlan)) *netlink.Vlan {
		v := &netlink.Vlan{VlanId: 100, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q,
			LinkAttrs: netlink.LinkAttrs{Name: "eth0.100", Index: 9, ParentIndex: parent,
				NetNsID: -1}}
		if edit != nil {
			edit(v)
		}
		return v
	}
	links := []netlink.Link{&netlink.Device{LinkAttrs: at(0)}, &netlink.Bond{LinkAttrs: at(1)},
		&netlink.Bridge{LinkAttrs: at(2)}, &netlink.Veth{LinkAttrs: at(3)}, of(0, nil), nil,
		&netlink.Bond{LinkAttrs: at(6), Mode: netlink.BOND_MODE_ACTIVE_BACKUP}}
	byIndex := func(i int) (netlink.Link, error) {
		if links[i] == nil {
			return nil, netlink.LinkNotFoundError{}
		}
		return links[i], nil
	}
	strips := func(f ethtool.Feature) func(string) (map[string]ethtool.Feature, error) {
		return func(string) (map[string]ethtool.Feature, error) {
			return map[string]ethtool.Feature{ethtool.VLANStripping: f}, nil
		}
	}
	for _, c := range []struct {
		vlan   *netlink.Vlan
		strips ethtool.Feature
		says   string
	}{
		{of(0, nil), ethtool.Feature{}, ""},
		{of(0, nil), ethtool.Feature{On: true}, ""},
		{of(0, nil), ethtool.Feature{Fixed: true}, ""},
		{of(0, nil), ethtool.Feature{On: true, Fixed: true},
			"cannot stop (use another network card)"},
		{of(1, nil), ethtool.Feature{}, "its parent eth0: xwarp sends on the members of " +
			"bonds in the modes active-backup, balance-xor and 802.3ad, not balance-rr"},
		{of(6, nil), ethtool.Feature{}, ""},
		{of(2, nil), ethtool.Feature{}, "eth0 is a bridge, and xwarp writes tags on network " +
			"cards and bonds only (make the VLAN on one)"},
		{of(3, nil), ethtool.Feature{}, "is a veth"},
		{of(4, nil), ethtool.Feature{}, "eth0.100 is a VLAN, and xwarp writes one tag only"},
		{of(5, nil), ethtool.Feature{}, "its parent: "},
		{of(0, func(v *netlink.Vlan) { v.NetNsID = 3 }), ethtool.Feature{},
			"another network namespace (run xwarpd there"},
		{of(0, func(v *netlink.Vlan) { v.VlanProtocol = netlink.VLAN_PROTOCOL_8021AD }),
			ethtool.Feature{}, "802.1Q only, not of 802.1ad (recreate it with: proto 802.1Q)"},
	} {
		got, err := checkParent(c.vlan, byIndex, strips(c.strips))
		switch {
		case c.says == "" && (err != nil || got != links[c.vlan.ParentIndex]):
			t.Errorf("%+v: %v, %v", c.vlan, got, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("parent %d: %v, want %q", c.vlan.ParentIndex, err, c.says)
		}
	}
	if got, id, why := Trunk(links[1]); got != links[1] || id != 0 || why != nil {
		t.Errorf("a bond: %v, %d, %v", got, id, why)
	}
}
