package device

import "net/netip"

// sharedAddress is an IP address that the interfaces of two devices on AF_XDP have.
type sharedAddress struct {
	at            netip.Addr
	device, other string
}

// warnShared warns of each address that two devices have, unless before has it. It returns all that it found. Each
// device receives the frames of its own interface only, so a connection through the other interface gets no answer.
func warnShared(list []*Device, before map[sharedAddress]bool) map[sharedAddress]bool {
	found, first := map[sharedAddress]bool{}, map[netip.Addr]string{}
	for _, v := range list {
		if v.xdp == nil {
			continue
		}
		addrs, _ := v.GIDs() // a removed interface has none
		for _, a := range addrs {
			other, shared := first[a]
			if !shared {
				first[a] = v.Name
				continue
			}
			s := sharedAddress{a, v.Name, other}
			found[s] = true
			if before[s] {
				continue
			}
			v.log.Warn("two interfaces have one address: connections may get no answer",
				"address", a, "other", other, "next", "remove it from one of them; "+
					"xwarp doctor --interface "+v.ifname()+" names the command")
		}
	}
	return found
}
