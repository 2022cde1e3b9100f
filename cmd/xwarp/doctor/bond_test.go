package doctor

import (
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"xwarp/engine/host/bond"
	"xwarp/ring"
)

// TestMembers: the finding names the members of a bond, which ones send, and what makes the bond slow or unusable.
func TestMembers(t *testing.T) {
	for _, c := range []struct {
		what   string
		edit   func(*bond.State)
		native bool
		want   Status
		text   string
		remedy string
	}{
		{what: "good", native: true, want: OK, text: "bond0, 802.3ad: eth0 (sends), eth1"},
		{what: "generic", want: Warn, text: "eth0 (sends) (generic XDP), eth1 (generic XDP)",
			remedy: "driver"},
		{what: "mode", native: true, want: Warn, text: "not balance-rr", remedy: "active-backup",
			edit: func(s *bond.State) { s.Mode = netlink.BOND_MODE_BALANCE_RR }},
		{what: "no member", native: true, want: Fail, text: "no members",
			remedy: "ip link set NAME master bond0",
			edit:   func(s *bond.State) { s.Members = nil }},
		{what: "MTU", native: true, want: Warn, text: "member eth1 is 1500",
			remedy: "ip link set eth1 mtu 9000", edit: func(s *bond.State) { s.MTU = 9000 }},
		{what: "no sender", native: true, want: Warn, text: "no member sends: bond0",
			remedy: "ip -br link", edit: func(s *bond.State) { s.Members = s.Members[1:] }},
	} {
		s := &bond.State{Mode: netlink.BOND_MODE_802_3AD, MTU: 1500, Members: []bond.Member{
			{Name: "eth0", Ifindex: 2, MTU: 9000, Sends: true},
			{Name: "eth1", Ifindex: 3, MTU: 1500}}}
		if c.edit != nil {
			c.edit(s)
		}
		got := members("bond0", s, func(int) (ring.Driver, error) {
			return ring.Driver{Native: c.native}, nil
		})
		if got.status != c.want || !strings.Contains(got.what, c.text) ||
			!strings.Contains(got.remedy, c.remedy) {
			t.Errorf("%s: %+v", c.what, got)
		}
	}
}
