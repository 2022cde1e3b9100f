package device

import (
	"slices"

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
		k := slices.IndexFunc(s.Workers, func(x control.WorkerState) bool {
			return x.Queue == w.Queue
		})
		if k < 0 {
			k = len(s.Workers)
			s.Workers = append(s.Workers, control.WorkerState{Queue: w.Queue})
		}
		to := &s.Workers[k]
		counters.Add(&to.Stack, w.Stack)
		counters.Add(&to.Listen, w.Listen)
		counters.Add(&to.Ring, w.Ring)
		counters.Add(&to.Live, w.Live)
	}
	for i := range old.Watches {
		w := &old.Watches[i]
		k := slices.IndexFunc(s.Watches, func(x control.WatchState) bool {
			return x.Name == w.Name
		})
		if k < 0 {
			k = len(s.Watches)
			s.Watches = append(s.Watches, control.WatchState{Name: w.Name})
		}
		counters.Add(&s.Watches[k].Counters, w.Counters)
	}
	if old.IPsec != nil && s.IPsec != nil {
		counters.Add(&s.IPsec.Counters, old.IPsec.Counters)
	}
	if old.Link != nil && s.Link != nil {
		counters.Add(&s.Link.Counters, old.Link.Counters)
	}
}
