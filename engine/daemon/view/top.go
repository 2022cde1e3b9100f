package view

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"xwarp/engine/daemon/control"
)

// Top is one view of `xwarp top`: rates since the one before.
type Top struct {
	Schema  int          `json:"schema" doc:"version of this layout, 1"`
	Command string       `json:"command" doc:"\"top\""`
	Seconds float64      `json:"seconds" doc:"over which rates are taken"`
	Queues  []QueueRates `json:"queues" doc:"of all devices"`
	Conns   []ConnRates  `json:"connections" doc:"the busiest first"`
	Drops   []DropRates  `json:"drops" doc:"causes for which frames were dropped"`
}

// QueueRates are those of one queue.
type QueueRates struct {
	Device string  `json:"device" doc:"its name"`
	Queue  int     `json:"queue" doc:"of the device"`
	RxPPS  float64 `json:"rx_frames_per_second" doc:"received"`
	TxPPS  float64 `json:"tx_frames_per_second" doc:"sent"`
	RxBPS  float64 `json:"rx_bits_per_second" doc:"received"`
	TxBPS  float64 `json:"tx_bits_per_second" doc:"sent"`
}

// ConnRates are those of one connection.
type ConnRates struct {
	Device  string  `json:"device" doc:"its name"`
	Owner   string  `json:"owner" doc:"session or export"`
	Local   string  `json:"local" doc:"address"`
	Remote  string  `json:"remote" doc:"address"`
	State   string  `json:"state" doc:"of the queue pair"`
	InBPS   float64 `json:"in_bits_per_second" doc:"payload placed"`
	OutBPS  float64 `json:"out_bits_per_second" doc:"payload sent"`
	Ahead   float64 `json:"placed_out_of_order_per_second" doc:"FPDUs placed behind a gap"`
	Held    uint64  `json:"held_octets" doc:"that wait for what is missing in front of them"`
	Retrans uint64  `json:"retransmitted_octets" doc:"sent again so far"`
}

// DropRates are those of one cause for which frames were dropped.
type DropRates struct {
	Device string  `json:"device" doc:"its name"`
	Cause  string  `json:"cause" doc:"as in xwarp_dropped_frames_total"`
	Frames uint64  `json:"frames" doc:"so far"`
	Rate   float64 `json:"frames_per_second" doc:"now"`
}

// MakeTop takes the rates between two snapshots.
func MakeTop(a, b *control.Snapshot) Top {
	seconds := b.Time.Sub(a.Time).Seconds()
	v := Top{Schema: 1, Command: "top", Seconds: seconds, Queues: []QueueRates{},
		Conns: []ConnRates{}, Drops: []DropRates{}}
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
		for k, w := range d.Workers {
			was := map[string]uint64{}
			if k < len(old.Workers) {
				was = old.Workers[k].Stack
			}
			r := func(key string) float64 { return rate(w.Stack[key], was[key]) }
			v.Queues = append(v.Queues, QueueRates{d.Name, w.Queue, r("rx_frames"), r("tx_frames"),
				8 * r("rx_octets"), 8 * r("tx_octets")})
		}
		drops, was := Drops(d), Drops(old)
		for _, cause := range slices.Sorted(maps.Keys(drops)) {
			if n := drops[cause]; n > 0 {
				v.Drops = append(v.Drops, DropRates{d.Name, cause, n, rate(n, was[cause])})
			}
		}
	}
	last := map[string]*control.QPState{}
	for i := range a.QPs {
		last[qpKey(&a.QPs[i])] = &a.QPs[i]
	}
	for i := range b.QPs {
		q := &b.QPs[i]
		was := last[qpKey(q)]
		if was == nil {
			was = &control.QPState{}
		}
		owner := fmt.Sprintf("session %d", q.Session)
		if q.Export != "" {
			owner = "export " + q.Export
		}
		v.Conns = append(v.Conns, ConnRates{
			Device: q.Device, Owner: owner, Local: Address(q.Local), Remote: Address(q.Remote),
			State:  q.State,
			InBPS:  8 * rate(q.Counters["payload_in"], was.Counters["payload_in"]),
			OutBPS: 8 * rate(q.Counters["payload_out"], was.Counters["payload_out"]),
			Ahead: rate(q.MPA["out_by_marker"]+q.MPA["out_by_chain"],
				was.MPA["out_by_marker"]+was.MPA["out_by_chain"]),
			Held: q.MPA["held_octets"], Retrans: q.TCP["retrans_octets"],
		})
	}
	slices.SortStableFunc(v.Conns, func(x, y ConnRates) int {
		return cmp.Compare(y.InBPS+y.OutBPS, x.InBPS+x.OutBPS)
	})
	return v
}

func qpKey(q *control.QPState) string {
	return fmt.Sprint(q.Owner, q.Handle, q.Local, q.Remote)
}

// Address is an address as text, empty for none.
func Address(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
