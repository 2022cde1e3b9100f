package device

import (
	"cmp"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"xwarp/bpf"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/counters"
	"xwarp/engine/host/localaddr"
	"xwarp/engine/verbs"
)

// Ref returns the device for its objects in a snapshot.
func (dev *Device) Ref() control.DeviceRef {
	return control.DeviceRef{Index: dev.index, Device: dev.Name}
}

// Port returns the device's only port.
func (dev *Device) Port() control.Port { return control.Port{DeviceRef: dev.Ref(), Port: 1} }

// AddTo adds the device to a snapshot, with the counters of the devices that it replaces, and if withSAs is true with
// its SAs.
func (dev *Device) AddTo(v *control.Snapshot, withSAs bool) {
	s := control.DeviceState{Name: dev.Name, DeviceMode: dev.Core.Transport().DeviceMode,
		Addresses: []netip.Addr{}, Dropped: []control.Drop{}, UnservedQueues: []int{},
		Missing: []netip.Addr{}, Reopened: dev.past.reopened,
		Mapper: verbs.ErrorText(dev.portMapper.err)}
	list, _ := dev.GIDs() // a removed interface has none
	s.Addresses = append(s.Addresses, list...)
	l, sas, err := dev.counters(&s)
	s.Error = verbs.ErrorText(cmp.Or(dev.Core.Err(), err))
	if withSAs {
		v.SAs = append(v.SAs, sas...)
	} else if p := s.IPsec; p != nil {
		p.In, p.Out = 0, 0
	}
	summarize(&s, l)
	v.Devices, v.Statistics = append(v.Devices, s), append(v.Statistics, l...)
}

// counters returns the counters of the device and of those that it replaces, and its SAs. It adds states of the kernel
// to s. A worker that has stalled does not answer. Then l has no counters of workers: sums without that worker would be
// less than before, and a counter may not decrease.
func (dev *Device) counters(s *control.DeviceState) (l control.Statistics, sas []control.SAState,
	err error) {
	contained, mapped := dev.Core.Contained(), dev.portMapper.Counters()
	dev.put(&l, "contained", &contained)
	dev.put(&l, "port_mapper", &mapped)
	if dev.xdp != nil {
		link := dev.xdp.Link()
		dev.put(&l, "link", &link.LinkCounters)
		s.Link, s.Since = linkState(&link.Link, link.Gone), link.Since.Truncate(time.Second)
		s.Missing = append(s.Missing, link.Missing...)
	}
	if err := dev.Core.Stalled(); err != nil {
		dev.past.addTo(&l, false)
		return l, nil, err
	}
	if err = dev.addTotals(&l); err == nil && dev.xdp != nil {
		err = dev.addWorkers(&l, s)
		list, e := dev.addIPsec(&l, s)
		sas, err = list, errors.Join(err, e)
	}
	dev.past.addTo(&l, true)
	return l, sas, err
}

// put adds the counters v of a part of the device as a group to l, and returns the group.
func (dev *Device) put(l *control.Statistics, part string, v any) *control.Statistic {
	*l = append(*l, control.Statistic{Port: dev.Port(), Part: part, Counters: control.Counters(v)})
	return &(*l)[len(*l)-1]
}

// addTotals adds the sums over all connections.
func (dev *Device) addTotals(l *control.Statistics) error {
	totals, err := dev.Core.Totals()
	if err != nil {
		return err
	}
	dev.put(l, "rdma", &totals.RDMA)
	dev.put(l, "mpa", &totals.MPA)
	if dev.xdp != nil {
		dev.put(l, "tcp", &totals.TCP)
	}
	return nil
}

// addWorkers adds the counters of workers, watches and the steering program.
func (dev *Device) addWorkers(l *control.Statistics, s *control.DeviceState) error {
	stats, err := dev.xdp.Stats()
	for i := range stats.Queues {
		q := &stats.Queues[i]
		dev.put(l, "stack", &q.Stack).Queue = &q.Queue
		dev.put(l, "listen", &q.Listen).Queue = &q.Queue
		dev.put(l, "ring", &q.Ring).Queue = &q.Queue
	}
	for i := range stats.Watches {
		dev.put(l, "watch", &stats.Watches[i].Counters).What = stats.Watches[i].Name
	}
	steering := dev.put(l, "steering", struct{}{}).Counters
	for o, n := range stats.Steering {
		steering[bpf.Outcome(o).String()] = n
	}
	s.Health = verbs.ErrorText(dev.xdp.Health())
	unowned, e := dev.xdp.Unowned()
	s.UnservedQueues = slices.AppendSeq(s.UnservedQueues, maps.Keys(unowned))
	slices.Sort(s.UnservedQueues)
	return errors.Join(err, e)
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

// summarize sets the fields of s that are sums of counters.
func summarize(s *control.DeviceState, l control.Statistics) {
	part := func(name string) counters.Values { return l.Values(s.Name, name) }
	stack, ring, steering, rdma := part("stack"), part("ring"), part("steering"), part("rdma")
	s.RxFrames, s.TxFrames = counters.RxFrames.Of(stack), counters.TxFrames.Of(stack)
	s.Partial = counters.PartialSums.Of(stack)
	s.Offered, s.Grown = counters.RxOffered.Of(ring), counters.RxGrown.Of(ring)
	s.In, s.Out = counters.PayloadIn.Of(rdma), counters.PayloadOut.Of(rdma)
	s.Retrans = counters.RetransBytes.Of(part("tcp"))
	s.Unowned = steering[bpf.DropNoSocket.String()]
	drops := counters.Drops(stack, ring)
	for _, o := range []bpf.Outcome{bpf.DropPeer, bpf.DropSYN, bpf.DropStray, bpf.DropClear} {
		drops[o.String()] = steering[o.String()]
	}
	for _, cause := range slices.Sorted(maps.Keys(drops)) {
		if n := drops[cause]; n > 0 {
			s.Dropped = append(s.Dropped, control.Drop{Cause: cause, Frames: n})
		}
	}
	if p := s.IPsec; p != nil {
		c := part("ipsec")
		p.PacketsIn, p.BytesIn = counters.ESPPackets[0].Of(c), counters.ESPBytes[0].Of(c)
		p.PacketsOut, p.BytesOut = counters.ESPPackets[1].Of(c), counters.ESPBytes[1].Of(c)
		p.Replayed, p.Forged = counters.ESPReplayed.Of(c), counters.ESPForged.Of(c)
		p.Rekeys, p.Refused = counters.ESPRekeys.Of(c), counters.RefusedSAs.Of(c)
	}
}
