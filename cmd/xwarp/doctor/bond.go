package doctor

import (
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/engine/host/bond"
	"xwarp/ring"
)

var bondCheck = check{
	name: "bond", nic: true,
	why: "xwarp sends and receives on the members of a bond; it is as fast as their drivers",
	look: func(e *env) finding {
		if !bond.Is(e.nic) {
			return fine("%s is not a bond", e.name())
		}
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return warn("unknown: %v", err)
		}
		defer h.Close()
		s, err := bond.Read(h, e.nic.Attrs().Index)
		if err != nil {
			return warn("unknown: %v", err)
		}
		return members(e.name(), s, ring.QueryDriver)
	},
}

// members checks the members of a bond. query is ring.QueryDriver, except in tests.
func members(name string, s *bond.State, query func(ifindex int) (ring.Driver, error)) finding {
	if why := bond.CheckMode(s.Mode); why != nil {
		return warn("%s uses generic XDP: %v", name, why).
			advise("%s", bond.ModeSteps(name))
	}
	if len(s.Members) == 0 {
		return fail("%s has no members", name).
			advise("ip link set NAME down; ip link set NAME master %s", name)
	}
	var list []string
	slow := ""
	for _, m := range s.Members {
		if m.MTU < s.MTU {
			return warn("the MTU of member %s is %d, that of %s is %d: longer frames are lost",
				m.Name, m.MTU, name, s.MTU).advise("ip link set %s mtu %d", m.Name, s.MTU)
		}
		text := m.Name
		if m.Sends {
			text += " (sends)"
		}
		if d, err := query(m.Ifindex); err == nil && !d.Native {
			slow, text = m.Name, text+" (generic XDP)"
		}
		list = append(list, text)
	}
	text := fmt.Sprintf("%s, %v: %s", name, s.Mode, strings.Join(list, ", "))
	switch {
	case len(s.Senders()) == 0:
		return warn("no member sends: %s", text).advise("ip -br link")
	case slow != "":
		return warn("%s", text).advise("none; a member whose driver has native XDP would be faster")
	}
	return fine("%s", text)
}
