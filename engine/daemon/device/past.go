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

// lastCounters returns the past of the device that replaces dev. The port mapper and the steering program outlive both.
func (dev *Device) lastCounters() *past {
	l, _, _ := dev.counters(&control.DeviceState{})
	l = slices.DeleteFunc(l, func(v control.Statistic) bool {
		return v.Part == "port_mapper" || v.Part == "steering"
	})
	return &past{dev.past.reopened + 1, l}
}

// addTo adds the counters of the past. Groups that l lacks are added on request.
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
