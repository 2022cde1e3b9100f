package ethtool

import "github.com/vishvananda/netlink"

// Merge names an offload that merges received segments, and the device that has it.
type Merge struct{ Device, Feature string }

// maxBelow is the maximum number of devices whose lower devices Merging looks for: far more than VLANs on bonds on
// ports need.
const maxBelow = 256

// Merging returns the offloads that merge received segments on the devices below nic, in the calling thread's network
// namespace: the devices that a VLAN, bond or bridge receives from. Offloads that cannot be switched off are left out.
// Generic XDP on nic gets the merged segments of these devices. On nic itself, generic XDP disables such offloads.
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
			continue // it has disappeared, or has no offloads
		}
		for _, feature := range []string{GRO, "rx-lro"} {
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
	case "vlan", "macvlan", "ipvlan", "macsec": // for others, such as veth, the parent is not a lower device
		return l.Attrs().Index == upper.Attrs().ParentIndex
	}
	return false
}
