package bond

import (
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/ring"
)

// TestSenders: a bond sends on members that are up and active. In the mode 802.3ad they must belong to the active
// aggregator. Interfaces with another master are not members. The test also checks which modes CheckMode accepts, and
// that ring's hash policies have the numbers and names of netlink's.
func TestSenders(t *testing.T) {
	slave := func(index, master int, edit func(*netlink.Device, *netlink.BondSlave)) netlink.Link {
		p := &netlink.BondSlave{AggregatorId: 1}
		d := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index, MasterIndex: master,
			MTU: 1500, RawFlags: unix.IFF_UP, Slave: p}}
		if edit != nil {
			edit(d, p)
		}
		return d
	}
	links := []netlink.Link{
		slave(9, 3, nil),
		slave(4, 3, nil),
		slave(5, 3, func(d *netlink.Device, _ *netlink.BondSlave) { d.RawFlags = 0 }),
		slave(6, 3, func(_ *netlink.Device, p *netlink.BondSlave) {
			p.State = netlink.BondStateBackup
		}),
		slave(7, 3, func(_ *netlink.Device, p *netlink.BondSlave) {
			p.MiiStatus = netlink.BondLinkFail
		}),
		slave(8, 3, func(_ *netlink.Device, p *netlink.BondSlave) { p.AggregatorId = 2 }),
		slave(10, 2, nil),
		slave(11, 0, nil),
		slave(12, 3, func(d *netlink.Device, _ *netlink.BondSlave) { d.Slave = nil }),
	}
	for _, c := range []struct {
		mode    netlink.BondMode
		ad      *netlink.BondAdInfo
		senders []int
	}{
		{netlink.BOND_MODE_BALANCE_XOR, nil, []int{4, 8, 9}},
		{netlink.BOND_MODE_802_3AD, &netlink.BondAdInfo{AggregatorId: 1}, []int{4, 9}},
		{netlink.BOND_MODE_802_3AD, &netlink.BondAdInfo{AggregatorId: 2}, []int{8}},
	} {
		b := &netlink.Bond{LinkAttrs: netlink.LinkAttrs{Name: "bond0", Index: 3, MTU: 9000},
			Mode: c.mode, AdInfo: c.ad, XmitHashPolicy: netlink.BOND_XMIT_HASH_POLICY_LAYER2_3}
		s := stateOf(b, links)
		if got := s.Senders(); !slices.Equal(got, c.senders) || len(s.Members) != 7 {
			t.Errorf("%v: senders %v, want %v, of %v", c.mode, got, c.senders, s.Members)
		}
		if s.Policy != ring.PolicyLayer23 || s.MTU != 9000 || CheckMode(s.Mode) != nil {
			t.Errorf("%+v", s)
		}
	}
	for m := netlink.BOND_MODE_BALANCE_RR; m < netlink.BOND_MODE_UNKNOWN; m++ {
		want := m == netlink.BOND_MODE_ACTIVE_BACKUP || m == netlink.BOND_MODE_BALANCE_XOR ||
			m == netlink.BOND_MODE_802_3AD
		if got := CheckMode(m) == nil; got != want {
			t.Errorf("%v is supported: %t", m, got)
		}
	}
	for p, want := range map[netlink.BondXmitHashPolicy]ring.Policy{
		netlink.BOND_XMIT_HASH_POLICY_LAYER2:      ring.PolicyLayer2,
		netlink.BOND_XMIT_HASH_POLICY_LAYER3_4:    ring.PolicyLayer34,
		netlink.BOND_XMIT_HASH_POLICY_LAYER2_3:    ring.PolicyLayer23,
		netlink.BOND_XMIT_HASH_POLICY_ENCAP2_3:    ring.PolicyEncap23,
		netlink.BOND_XMIT_HASH_POLICY_ENCAP3_4:    ring.PolicyEncap34,
		netlink.BOND_XMIT_HASH_POLICY_VLAN_SRCMAC: ring.PolicyVLANSrcMAC,
	} {
		if ring.Policy(p) != want || want.String() != p.String() {
			t.Errorf("netlink's %v is %v here", p, ring.Policy(p))
		}
	}
}
