package doctor

import (
	"errors"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestTags: the finding names the interface that removes VLAN tags and the command that stops it. xwarpd stops it
// itself for a VLAN that uses the sockets of its card. A VLAN that cannot use them is slow, and the finding says why.
func TestTags(t *testing.T) {
	attrs := netlink.LinkAttrs{Name: "eth0"}
	nic, veth := &netlink.Device{LinkAttrs: attrs}, &netlink.Veth{LinkAttrs: attrs}
	vlan := &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "eth0.5"}, VlanId: 5}
	for _, c := range []struct {
		what   string
		env    env
		strips bool
		vlans  int
		want   Status
		text   string
		remedy string
	}{
		{"card that keeps tags", env{nic: nic, top: nic}, false, 2, OK,
			"VLAN tags stay in the frames", ""},
		{"card that removes tags", env{nic: nic, top: nic}, true, 2, Warn,
			"rx-vlan-hw-parse is on, and 2 VLAN interfaces use eth0", "ethtool -K eth0 rxvlan off"},
		{"card without VLANs", env{nic: nic, top: nic}, true, 0, OK,
			"no VLAN interface uses eth0", ""},
		{"veth", env{nic: veth, top: veth}, true, 1, OK,
			"eth0 is a veth: its VLANs use generic XDP", ""},
		{"VLAN, card that keeps tags", env{nic: nic, top: vlan}, false, 1, OK,
			"VLAN tags stay in the frames", ""},
		{"VLAN, card that removes tags", env{nic: nic, top: vlan}, true, 1, OK,
			"eth0.5 uses the sockets of eth0; xwarpd turns rx-vlan-hw-parse off meanwhile", ""},
		{"VLAN without its parent's sockets", env{nic: vlan, top: vlan,
			whyNotShared: errors.New("VLAN 5: eth0 removes the tags")}, false, 0, Warn,
			"eth0.5 uses generic XDP: VLAN 5: eth0 removes the tags", ""},
	} {
		got := tags(&c.env, c.strips, c.vlans)
		if got.status != c.want || !strings.Contains(got.what, c.text) || got.remedy != c.remedy {
			t.Errorf("%s: %+v", c.what, got)
		}
	}
}
