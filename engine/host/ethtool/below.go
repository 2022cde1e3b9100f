package ethtool

import "github.com/vishvananda/netlink"

// Merge is an offload of a device that merges received segments.
type Merge struct{ Device, Feature string }

// maxBelow bounds the devices that Merging looks at: VLANs on bonds on ports, many times over.
const maxBelow = 256

// Merging returns what merges received segments on the devices below nic, in the calling thread's network
// namespace: those that a VLAN, a bond, a bridge and so on receives from. Generic XDP on nic comes after them;
// on a device of its own it does without them.
func Merging(nic netlink.Link) (list []Merge, err error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	below := []netlink.Link{nic}
	for i := 0; i < len(below) && i < maxBelow; i++ {
		for _, l := range links {
			if isBelow(l, below[i]) {
				below = append(below, l)
			}
		}
	}
	for _, l := range below[1:] {
		f, err := Features(l.Attrs().Name)
		if err != nil {
			continue // it is gone, or has no offloads
		}
		for _, feature := range []string{"rx-gro", "rx-lro"} {
			if f[feature].On && !f[feature].Fixed {
				list = append(list, Merge{l.Attrs().Name, feature})
			}
		}
	}
	return list, nil
}

func isBelow(l, upper netlink.Link) bool {
	if l.Attrs().MasterIndex == upper.Attrs().Index {
		return true
	}
	switch upper.Type() {
	case "vlan", "macvlan", "ipvlan", "macsec": // of others, as veth, the parent is no device below
		return l.Attrs().Index == upper.Attrs().ParentIndex
	}
	return false
}
