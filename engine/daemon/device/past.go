package device

import (
	"slices"

	"xwarp/engine/daemon/control"
)

// past is the counters of the devices that a device replaces.
type past struct {
	reopened uint64 // number of times that the interface was opened again
	counters control.Statistics
}

// lastCounters returns the past of the device that replaces dev. It leaves out the port mapper and the steering
// program, because that device takes over these two with their counters.
func (dev *Device) lastCounters() *past {
	l, _, _ := dev.counters(&control.DeviceState{})
	l = slices.DeleteFunc(l, func(v control.Statistic) bool {
		return v.Part == "port_mapper" || v.Part == "steering"
	})
	return &past{dev.past.reopened + 1, l}
}

// addTo adds the counters of the past to the same groups of l. If missing is true, it also appends the groups that l
// lacks.
func (p *past) addTo(l *control.Statistics, missing bool) {
	for i := range p.counters {
		old := &p.counters[i]
		found := false
		for j := range *l {
			if v := &(*l)[j]; v.SameAs(old) {
				control.AddCounters(&v.Counters, old.Counters)
				found = true
			}
		}
		if !found && missing {
			*l = append(*l, *old)
		}
	}
}
