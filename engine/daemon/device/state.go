package device

import (
	"errors"

	"xwarp/bpf"
	"xwarp/engine/daemon/control"
	"xwarp/engine/host/localaddr"
)

// State returns the device for a snapshot, with the counters of the devices that it replaces.
func (dev *Device) State() control.DeviceState {
	s := dev.stateWithPast()
	s.Reopened = dev.past.reopened
	s.Addresses, _ = dev.GIDs() // a removed interface has none
	if err := dev.Core.Err(); err != nil {
		s.Error = err.Error()
	}
	return s
}

// stateWithPast returns the device with its counters and those of the past.
func (dev *Device) stateWithPast() control.DeviceState {
	contained := dev.Core.Contained()
	s := control.DeviceState{DeviceInfo: dev.Describe(), Contained: control.Counters(&contained),
		Link: dev.link(), PortMapper: dev.ports.state(dev.Config.PortMapper)}
	if err := dev.Core.Stalled(); err != nil {
		s.Error = err.Error() // a worker that has stalled does not answer
		return s
	}
	s.Error = control.ErrorText(dev.addCounters(&s))
	dev.past.add(&s)
	return s
}

// link returns the state of the interface, nil on the kernel's sockets.
func (dev *Device) link() *control.LinkState {
	if dev.xdp == nil {
		return nil
	}
	l := dev.xdp.Link()
	v := &control.LinkState{State: linkState(&l.Link, l.Gone), MTU: l.Link.MTU, Since: l.Since,
		Missing: l.Missing, Counters: control.Counters(&l.LinkCounters)}
	return v
}

// linkState returns the state of an interface in the words of ip-link(8).
func linkState(l *localaddr.Link, gone bool) string {
	switch {
	case gone:
		return control.LinkGone
	case !l.Up:
		return control.LinkDown
	case !l.Carrier:
		return control.LinkNoCarrier
	}
	return control.LinkUp
}

// addCounters adds the counters of workers, connections and the steering program to s.
func (dev *Device) addCounters(s *control.DeviceState) error {
	if err := dev.addTotals(s); err != nil || dev.xdp == nil {
		return err
	}
	stats, err := dev.xdp.Stats()
	for i := range stats.Queues {
		q := &stats.Queues[i]
		w := control.WorkerState{Queue: q.Queue, Stack: control.Counters(&q.Stack),
			Listen: control.Counters(&q.Listen), Ring: control.Counters(&q.Ring)}
		s.Workers = append(s.Workers, w)
	}
	for i := range stats.Watches {
		w := &stats.Watches[i]
		s.Watches = append(s.Watches, control.WatchState{Name: w.Name,
			Counters: control.Counters(&w.Counters)})
	}
	s.Steering = map[string]uint64{}
	for o, n := range stats.Steering {
		s.Steering[bpf.Outcome(o).String()] = n
	}
	s.Health = control.ErrorText(dev.xdp.Health())
	unowned, e := dev.xdp.Unowned()
	s.Unowned = unowned
	sas, e2 := dev.ipsecState()
	s.IPsec = sas
	return errors.Join(err, e, e2)
}

// addTotals adds the sums over all connections to s.
func (dev *Device) addTotals(s *control.DeviceState) error {
	totals, err := dev.Core.Totals()
	if err != nil {
		return err
	}
	s.Totals = &control.TotalsState{RDMA: control.Counters(&totals.RDMA),
		MPA: control.Counters(&totals.MPA)}
	if dev.xdp != nil {
		s.Totals.TCP = control.Counters(&totals.TCP)
	}
	return nil
}
