// Package view computes what commands show from snapshots of a daemon: the rates of xwarp top and of the status page,
// and listeners.
package view

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/counters"
)

// Top is one screen of `xwarp top`, with the rates since the previous screen.
type Top struct {
	Schema  int           `json:"schema" doc:"version of this layout, 1"`
	Command string        `json:"command" doc:"\"top\""`
	Seconds float64       `json:"seconds" doc:"interval of the rates"`
	Devices []DeviceRates `json:"devices" doc:"per device, all connections including ended ones"`
	Queues  []QueueRates  `json:"queues" doc:"per queue of all devices"`
	Conns   []ConnRates   `json:"connections" doc:"per connection, busiest first"`
	Drops   []DropRates   `json:"drops" doc:"dropped frames by cause"`
}

// DeviceRates are the rates of one device.
type DeviceRates struct {
	Device string  `json:"device" doc:"its name"`
	InBPS  float64 `json:"in_bits_per_second" doc:"payload placed"`
	OutBPS float64 `json:"out_bits_per_second" doc:"payload sent"`
}

// QueueRates are the rates of one queue.
type QueueRates struct {
	Device string  `json:"device" doc:"its name"`
	Queue  int     `json:"queue" doc:"of the device"`
	RxPPS  float64 `json:"rx_frames_per_second" doc:"received"`
	TxPPS  float64 `json:"tx_frames_per_second" doc:"sent"`
	RxBPS  float64 `json:"rx_bits_per_second" doc:"received"`
	TxBPS  float64 `json:"tx_bits_per_second" doc:"sent"`
}

// ConnRates are the rates of one connection.
type ConnRates struct {
	Device  string  `json:"device" doc:"its name"`
	Owner   string  `json:"owner" doc:"program, or \"export\" and the export's name"`
	Session uint64  `json:"session,omitempty" doc:"of the program"`
	UID     uint32  `json:"uid" doc:"user of the program"`
	Tenant  string  `json:"tenant,omitempty" doc:"tenant whose socket the program uses"`
	Local   string  `json:"local" doc:"address"`
	Remote  string  `json:"remote" doc:"address"`
	State   string  `json:"state" doc:"of the queue pair"`
	InBPS   float64 `json:"in_bits_per_second" doc:"payload placed"`
	OutBPS  float64 `json:"out_bits_per_second" doc:"payload sent"`
	Ahead   float64 `json:"placed_out_of_order_per_second" doc:"FPDUs placed behind a gap"`
	Held    uint64  `json:"held_bytes" doc:"bytes held because earlier bytes are missing"`
	Retrans uint64  `json:"retransmitted_bytes" doc:"retransmitted so far"`
}

// DropRates are the dropped frames of one cause.
type DropRates struct {
	Device string  `json:"device" doc:"its name"`
	Cause  string  `json:"cause" doc:"as in xwarp_dropped_frames_total"`
	Frames uint64  `json:"frames" doc:"so far"`
	Rate   float64 `json:"frames_per_second" doc:"now"`
}

// MakeTop computes the rates between two snapshots. The rate of a counter is 0 if no time has passed, or if the counter
// has decreased.
func MakeTop(a, b *control.Snapshot) Top {
	seconds := b.Time.Sub(a.Time).Seconds()
	v := Top{Schema: 1, Command: "top", Seconds: seconds, Devices: []DeviceRates{},
		Queues: []QueueRates{}, Conns: []ConnRates{}, Drops: []DropRates{}}
	rate := func(now, before uint64) float64 {
		if seconds <= 0 || now < before {
			return 0
		}
		return float64(now-before) / seconds
	}
	for i := range b.Devices {
		d, old := &b.Devices[i], &control.DeviceState{}
		if j := slices.IndexFunc(a.Devices, func(x control.DeviceState) bool {
			return x.Name == d.Name
		}); j >= 0 {
			old = &a.Devices[j]
		}
		v.Devices = append(v.Devices,
			DeviceRates{d.Name, 8 * rate(d.In, old.In), 8 * rate(d.Out, old.Out)})
		was := map[string]uint64{}
		for _, x := range old.Dropped {
			was[x.Cause] = x.Frames
		}
		for _, x := range d.Dropped {
			v.Drops = append(v.Drops, DropRates{d.Name, x.Cause, x.Frames,
				rate(x.Frames, was[x.Cause])})
		}
	}
	for i := range b.Statistics {
		w := &b.Statistics[i]
		if w.Part != "stack" {
			continue
		}
		was := counters.Values{}
		for j := range a.Statistics {
			if x := &a.Statistics[j]; x.Device == w.Device && x.SameAs(w) {
				was = x.Counters
			}
		}
		r := func(c *counters.Counter) float64 { return rate(c.Of(w.Counters), c.Of(was)) }
		v.Queues = append(v.Queues, QueueRates{w.Device, *w.Queue, r(counters.RxFrames),
			r(counters.TxFrames), 8 * r(counters.RxBytes), 8 * r(counters.TxBytes)})
	}
	programs := map[uint64]string{}
	for _, p := range b.Sessions {
		programs[p.Session] = p.Program
	}
	last := map[string]*control.QPState{}
	for i := range a.QPs {
		last[qpKey(&a.QPs[i])] = &a.QPs[i]
	}
	for i := range b.QPs {
		q := &b.QPs[i]
		was := cmp.Or(last[qpKey(q)], &control.QPState{})
		owner := cmp.Or(programs[q.Session], fmt.Sprintf("session %d", q.Session))
		if q.Export != "" {
			owner = "export " + q.Export
		}
		v.Conns = append(v.Conns, ConnRates{
			Device: q.Device, Owner: owner, Session: q.Session, UID: q.UID,
			Tenant: q.Tenant, Local: Address(q.Local), Remote: Address(q.Remote),
			State:  q.State,
			InBPS:  8 * rate(q.In, was.In),
			OutBPS: 8 * rate(q.Out, was.Out),
			Ahead:  rate(outOfOrder(q), outOfOrder(was)),
			Held:   q.Held, Retrans: counters.RetransBytes.Of(q.TCP),
		})
	}
	slices.SortStableFunc(v.Conns, func(x, y ConnRates) int {
		return cmp.Compare(y.InBPS+y.OutBPS, x.InBPS+x.OutBPS)
	})
	return v
}

func outOfOrder(q *control.QPState) uint64 {
	return counters.OutByMarker.Of(q.MPA) + counters.OutByChain.Of(q.MPA)
}

func qpKey(q *control.QPState) string {
	return fmt.Sprint(q.Owner, q.Handle, q.Local, q.Remote)
}

// Address returns an address as text, or "" if it is invalid.
func Address(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
