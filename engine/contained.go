package engine

import "sync/atomic"

// Contained counts what ended a part of a device and nothing else.
type Contained struct {
	RegionFaults uint64 // memory regions that were lost because their memory could not be accessed
}

type contained struct {
	regions atomic.Uint64
}

// Contained returns what the device survived until now.
func (d *Device) Contained() Contained {
	return Contained{RegionFaults: d.contained.regions.Load()}
}
