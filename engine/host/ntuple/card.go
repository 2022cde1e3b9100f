package ntuple

import "xwarp/engine/host/ethtool"

// Interface is the Card of that name.
type Interface string

// Name implements Card.
func (i Interface) Name() string { return string(i) }

// Ioctl implements Card.
func (i Interface) Ioctl(command []byte) error { return ethtool.Ioctl(string(i), command) }

// filters is the feature's name in the kernel.
const filters = "rx-ntuple-filter"

// NTuple implements Card: of a feature that nobody knows, it is off and stays so.
func (i Interface) NTuple() ethtool.Feature {
	all, err := ethtool.Features(string(i))
	if f, ok := all[filters]; err == nil && ok {
		return f
	}
	return ethtool.Feature{Fixed: true}
}

// SetNTuple implements Card.
func (i Interface) SetNTuple(on bool) error { return ethtool.SetFeature(string(i), filters, on) }
