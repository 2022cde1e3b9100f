package device

import (
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/counters"
)

// past is the counters of the devices that a device replaces.
type past struct {
	reopened uint64 // number of times that the interface was opened again
	state    control.DeviceState
}

// next returns the past of the device that replaces one with the state s.
func (p *past) next(s *control.DeviceState) *past {
	return &past{p.reopened + 1, *s}
}

// add adds the counters of the past to a state.
func (p *past) add(s *control.DeviceState) {
	old := &p.state
	counters.Add(&s.Contained, old.Contained)
	if old.Totals != nil {
		if s.Totals == nil {
			s.Totals = &control.TotalsState{}
		}
		counters.Add(&s.Totals.RDMA, old.Totals.RDMA)
		counters.Add(&s.Totals.MPA, old.Totals.MPA)
		counters.Add(&s.Totals.TCP, old.Totals.TCP)
	}
	for i := range old.Workers {
		w := &old.Workers[i]
		to := findOrAdd(&s.Workers, control.WorkerState{Queue: w.Queue},
			func(x *control.WorkerState) bool { return x.Queue == w.Queue })
		counters.Add(&to.Stack, w.Stack)
		counters.Add(&to.Listen, w.Listen)
		counters.Add(&to.Ring, w.Ring)
	}
	for i := range old.Watches {
		w := &old.Watches[i]
		to := findOrAdd(&s.Watches, control.WatchState{Name: w.Name},
			func(x *control.WatchState) bool { return x.Name == w.Name })
		counters.Add(&to.Counters, w.Counters)
	}
	if old.IPsec != nil && s.IPsec != nil {
		counters.Add(&s.IPsec.Counters, old.IPsec.Counters)
	}
	if old.Link != nil && s.Link != nil {
		counters.Add(&s.Link.Counters, old.Link.Counters)
	}
}

// findOrAdd returns the element of list that match accepts. Without one it appends v.
func findOrAdd[T any](list *[]T, v T, match func(*T) bool) *T {
	for i := range *list {
		if match(&(*list)[i]) {
			return &(*list)[i]
		}
	}
	*list = append(*list, v)
	return &(*list)[len(*list)-1]
}
