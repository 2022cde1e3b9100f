package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"xwarp/engine/control"
)

// topInfo is one view of top: rates since the one before.
type topInfo struct {
	Schema  int        `json:"schema" doc:"version of this layout, 1"`
	Command string     `json:"command" doc:"\"top\""`
	Seconds float64    `json:"seconds" doc:"over which rates are taken"`
	Queues  []queueTop `json:"queues" doc:"of all devices"`
	Conns   []connTop  `json:"connections" doc:"the busiest first"`
	Drops   []dropTop  `json:"drops" doc:"causes for which frames were dropped"`
}

type queueTop struct {
	Device string  `json:"device" doc:"its name"`
	Queue  int     `json:"queue" doc:"of the device"`
	RxPPS  float64 `json:"rx_frames_per_second" doc:"received"`
	TxPPS  float64 `json:"tx_frames_per_second" doc:"sent"`
	RxBPS  float64 `json:"rx_bits_per_second" doc:"received"`
	TxBPS  float64 `json:"tx_bits_per_second" doc:"sent"`
}

type connTop struct {
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

type dropTop struct {
	Device string  `json:"device" doc:"its name"`
	Cause  string  `json:"cause" doc:"as in xwarp_dropped_frames_total"`
	Frames uint64  `json:"frames" doc:"so far"`
	Rate   float64 `json:"frames_per_second" doc:"now"`
}

func newTop(*global) *cobra.Command {
	var o operatorFlags
	views := 0
	cmd := &cobra.Command{
		Use: "top", Short: "Watch queues, connections, rates and drops",
		Long: `top shows, again and again, the rates of all queues and connections, what was placed out of order, what is held, and the
frames dropped by cause. End it with Ctrl-C.`,
		Example: "  xwarp top\n  xwarp top --interval 5s\n  xwarp top -n 1 -j",
		Args:    noArgs,
	}
	o.register(cmd, false)
	cmd.Flags().DurationVar(&o.watch, "interval", time.Second, "time between two views")
	cmd.Flags().IntVarP(&views, "count", "n", 0, "end after so many views")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.watch <= 0 || views < 0 {
			return usagef("--interval must be above 0 and --count not below")
		}
		d, err := o.open(cmd)
		if err != nil {
			return err
		}
		defer d.Close()
		w := cmd.OutOrStdout()
		var before *control.Snapshot
		shown := 0
		err = o.each(cmd.Context(), d, func(s *control.Snapshot) error {
			if before == nil {
				before = s
				return nil
			}
			v := makeTop(before, s)
			before = s
			shown++
			err := writeView(w, v, o.json)
			if err == nil && shown == views {
				return io.EOF
			}
			return err
		})
		if err == io.EOF {
			return nil
		}
		return err
	}
	return cmd
}

func writeView(w io.Writer, v topInfo, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(v)
	}
	if isTerminal(w) {
		fmt.Fprint(w, clearScreen)
	}
	return writeTop(w, &v)
}

// makeTop takes the rates between two snapshots.
func makeTop(a, b *control.Snapshot) topInfo {
	seconds := b.Time.Sub(a.Time).Seconds()
	v := topInfo{Schema: 1, Command: "top", Seconds: seconds, Queues: []queueTop{}, Conns: []connTop{}, Drops: []dropTop{}}
	rate := func(now, before uint64) float64 {
		if seconds <= 0 || now < before {
			return 0
		}
		return float64(now-before) / seconds
	}
	for i := range b.Devices {
		d, old := &b.Devices[i], &control.DeviceState{}
		if j := slices.IndexFunc(a.Devices, func(x control.DeviceState) bool { return x.Name == d.Name }); j >= 0 {
			old = &a.Devices[j]
		}
		for k, w := range d.Workers {
			was := map[string]uint64{}
			if k < len(old.Workers) {
				was = old.Workers[k].Stack
			}
			r := func(key string) float64 { return rate(w.Stack[key], was[key]) }
			v.Queues = append(v.Queues, queueTop{d.Name, w.Queue, r("rx_frames"), r("tx_frames"), 8 * r("rx_octets"), 8 * r("tx_octets")})
		}
		drops, was := deviceDrops(d), deviceDrops(old)
		for _, cause := range slices.Sorted(maps.Keys(drops)) {
			if n := drops[cause]; n > 0 {
				v.Drops = append(v.Drops, dropTop{d.Name, cause, n, rate(n, was[cause])})
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
		v.Conns = append(v.Conns, connTop{
			Device: q.Device, Owner: owner, Local: address(q.Local), Remote: address(q.Remote), State: q.State,
			InBPS:  8 * rate(q.Counters["payload_in"], was.Counters["payload_in"]),
			OutBPS: 8 * rate(q.Counters["payload_out"], was.Counters["payload_out"]),
			Ahead:  rate(q.MPA["out_by_marker"]+q.MPA["out_by_chain"], was.MPA["out_by_marker"]+was.MPA["out_by_chain"]),
			Held:   q.MPA["held_octets"], Retrans: q.TCP["retrans_octets"],
		})
	}
	slices.SortStableFunc(v.Conns, func(x, y connTop) int { return cmp.Compare(y.InBPS+y.OutBPS, x.InBPS+x.OutBPS) })
	return v
}

func qpKey(q *control.QPState) string {
	return fmt.Sprint(q.Owner, q.Handle, q.Local, q.Remote)
}

// topRows bounds the connections that are shown as text: a screen.
const topRows = 30

func writeTop(w io.Writer, v *topInfo) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%-10s %5s %10s %10s %10s %10s\n", "DEVICE", "QUEUE", "RX frame/s", "TX frame/s", "RX bit/s", "TX bit/s")
	for _, q := range v.Queues {
		fmt.Fprintf(&b, "%-10s %5d %10s %10s %10s %10s\n", q.Device, q.Queue, scaled(q.RxPPS), scaled(q.TxPPS), scaled(q.RxBPS), scaled(q.TxBPS))
	}
	fmt.Fprintf(&b, "\n%-12s %-22s %-22s %-10s %9s %9s %8s %8s %8s\n", "OWNER", "LOCAL", "REMOTE", "STATE", "IN bit/s", "OUT bit/s", "AHEAD/s", "HELD", "RETRANS")
	for i, c := range v.Conns {
		if i == topRows {
			fmt.Fprintf(&b, "and %d more\n", len(v.Conns)-topRows)
			break
		}
		fmt.Fprintf(&b, "%-12s %-22s %-22s %-10s %9s %9s %8s %8s %8s\n", c.Owner, c.Local, c.Remote, c.State, scaled(c.InBPS), scaled(c.OutBPS),
			scaled(c.Ahead), scaled(float64(c.Held)), scaled(float64(c.Retrans)))
	}
	if len(v.Drops) > 0 {
		fmt.Fprintf(&b, "\n%-10s %-24s %10s %10s\n", "DEVICE", "DROPPED BECAUSE", "frames", "frame/s")
	}
	for _, d := range v.Drops {
		fmt.Fprintf(&b, "%-10s %-24s %10d %10s\n", d.Device, d.Cause, d.Frames, scaled(d.Rate))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
