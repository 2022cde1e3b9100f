package doctor

import (
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"

	"xwarp/engine/host/ethtool"
)

// switchedOff returns a check whose fix turns off an offload of the interface.
func switchedOff(name, why, feature string, look func(*env) finding) check {
	return check{
		name: name, why: why, nic: true, look: look,
		want: func(*env) (settings, error) { return settings{feature: "off"}, nil },
		get:  isOn, put: putFeature,
	}
}

// isOn implements check.get for offloads. The old value is always "on", because a fix only turns off offloads that are
// on.
func isOn(*env, string) (string, error) { return "on", nil }

// putFeature implements check.put. key is a feature of the interface, or another device and a feature, separated by a
// space.
func putFeature(e *env, key, value string) error {
	device, feature, other := strings.Cut(key, " ")
	if !other {
		device, feature = e.name(), key
	}
	return ethtool.SetFeature(device, feature, value == "on")
}

// mustBeOff returns a check for an offload of the interface that must be off.
func mustBeOff(name, why, feature string, bad Status) check {
	return switchedOff(name, why, feature, func(e *env) finding {
		f, err := ethtool.Features(e.name())
		switch {
		case err != nil:
			return fine("%s has no offloads", e.name())
		case f[feature].On && f[feature].Fixed:
			return finding{bad, feature + " is on and cannot be turned off", ""}
		case f[feature].On:
			return finding{bad, feature + " is on", fmt.Sprintf("ethtool -K %s %s off", e.name(),
				feature)}
		}
		return fine("%s is off", feature)
	})
}

var (
	lroCheck = mustBeOff("lro", "large receive offload merges segments before XDP sees them; "+
		"drivers reject native XDP with LRO", "rx-lro", Fail)
	groCheck = mustBeOff("gro-hw", "hardware GRO merges segments before XDP sees them; software "+
		"GRO runs after XDP and is harmless", "rx-gro-hw", Warn)
)

// mergeCheck checks whether the devices below the interface merge segments.
var mergeCheck = check{
	name: "merging", nic: true,
	why: "XDP on a VLAN, bond or bridge runs after GRO on the devices below; merged segments within " +
		"the MTU are dropped, so short messages are very slow",
	look: func(e *env) finding {
		list, err := ethtool.Merging(e.nic)
		if err != nil || len(list) == 0 {
			return fine("nothing below %s merges segments", e.name())
		}
		m := list[0]
		return warn("%s of %s is on", m.Feature, m.Device).
			advise("ethtool -K %s %s off", m.Device, m.Feature)
	},
	want: func(e *env) (settings, error) {
		list, err := ethtool.Merging(e.nic)
		off := settings{}
		for _, m := range list {
			off[m.Device+" "+m.Feature] = "off"
		}
		return off, err
	},
	get: isOn, put: putFeature,
}

var vlanCheck = switchedOff("vlan",
	"if the device strips VLAN tags, XDP cannot see the VLAN of a frame", ethtool.VLANStripping,
	lookForTags)

func lookForTags(e *env) finding {
	f, err := ethtool.Features(e.name())
	return tags(e, err == nil && f[ethtool.VLANStripping].On, vlans(e.nic))
}

// tags checks whether XDP sees the tags of VLANs. strips is true if the interface with the sockets removes tags, and n
// is the number of its VLAN interfaces.
func tags(e *env, strips bool, n int) finding {
	switch {
	case e.whyNotShared != nil:
		return warn("%s uses generic XDP: %v", e.top.Attrs().Name, e.whyNotShared)
	case e.top != e.nic && strips:
		return fine("%s uses the sockets of %s; xwarpd turns %s off meanwhile",
			e.top.Attrs().Name, e.name(), ethtool.VLANStripping)
	case !strips:
		return fine("VLAN tags stay in the frames")
	case n == 0:
		return fine("no VLAN interface uses %s", e.name())
	case e.nic.Type() == "veth":
		return fine("%s is a veth: its VLANs use generic XDP of their own", e.name())
	}
	return warn("%s is on, and %d VLAN interfaces use %s", ethtool.VLANStripping, n, e.name()).
		advise("ethtool -K %s rxvlan off", e.name())
}

// vlans counts the VLAN interfaces on nic.
func vlans(nic netlink.Link) (n int) {
	links, err := netlink.LinkList()
	if err != nil {
		return 0
	}
	for _, l := range links {
		if l.Type() == "vlan" && l.Attrs().ParentIndex == nic.Attrs().Index {
			n++
		}
	}
	return n
}
