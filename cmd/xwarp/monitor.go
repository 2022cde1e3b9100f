package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"xwarp/engine/daemon/control"
)

// change is one line of the output of monitor.
type change struct {
	Time   string `json:"time" doc:"time of detection; of an event, its own time"`
	Change string `json:"change" doc:"\"new\", \"del\", \"state\", \"drop\" or \"event\""`
	Kind   string `json:"kind" doc:"qp, cq, srq, mr, mw, pd, listener, session or device; daemon for events"`
	Device string `json:"device,omitempty" doc:"device of the object"`
	Object string `json:"object" doc:"description: numbers and addresses; of an event, its name"`
	State  string `json:"state,omitempty" doc:"new state of a queue pair"`
	Before string `json:"before,omitempty" doc:"previous state"`
	Cause  string `json:"cause,omitempty" doc:"drop cause"`
	Frames uint64 `json:"frames,omitempty" doc:"frames dropped since the previous snapshot"`
	Error  string `json:"error,omitempty" doc:"error of a queue pair or of an event"`
}

func newMonitor(*global) *cobra.Command {
	var o operatorFlags
	cmd := &cobra.Command{
		Use: "monitor", Short: "Print changes: objects, states, drops, events",
		Long: `monitor prints a line when an object is created or destroyed, when a queue pair changes state, and when frames are
dropped. It polls every --interval, so it misses objects that exist for a shorter time. For root it also prints every
event of the daemon: connections as RDMA_CM events, failed work requests as IBV_WC statuses.`,
		Example: "  xwarp monitor\n  xwarp monitor --interval 100ms -j",
		Args:    noArgs,
	}
	o.addFlags(cmd.Flags(), false)
	cmd.Flags().DurationVar(&o.watch, "interval", 500*time.Millisecond, "polling interval")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.checkWatch("interval"); err != nil {
			return err
		}
		var before map[string]change
		drops := map[string]uint64{}
		var seq uint64
		return o.each(cmd.Context(), cmd, func(s *control.Snapshot) error {
			now := objects(s)
			list := newEvents(s, &seq, before == nil) // older than the snapshot
			list = append(list, compare(before, now)...)
			list = append(list, newDrops(s, drops, before == nil)...)
			before = now
			return writeChanges(cmd.OutOrStdout(), list, s.Time, o.json)
		})
	}
	return cmd
}

// objects returns all objects of a snapshot by a unique key.
func objects(s *control.Snapshot) map[string]change {
	m := map[string]change{}
	add := func(kind, device string, o control.Owner, object, state, err string) {
		text := fmt.Sprintf("session %d %s", o.Session, object)
		if o.Export != "" {
			text = fmt.Sprintf("export %s %s", o.Export, object)
		}
		m[kind+" "+device+" "+text] = change{Kind: kind, Device: device, Object: text,
			State: state, Error: err}
	}
	for _, p := range s.Sessions {
		add("session", p.Device, p.Owner, fmt.Sprintf("program %q uid %d pid %d", p.Program, p.UID, p.Pid),
			"", "")
	}
	for _, p := range s.PDs {
		add("pd", p.Device, p.Owner, fmt.Sprintf("pdn %d", p.Handle), "", "")
	}
	for _, r := range s.MRs {
		add("mr", r.Device, r.Owner, fmt.Sprintf("mrn %d mrlen %d", r.Handle, r.Length), "", "")
	}
	for _, w := range s.MWs {
		add("mw", w.Device, w.Owner, fmt.Sprintf("mwn %d", w.Handle), "", "")
	}
	for _, c := range s.CQs {
		add("cq", c.Device, c.Owner, fmt.Sprintf("cqn %d cqe %d", c.Handle, c.Depth), "", "")
	}
	for _, q := range s.SRQs {
		add("srq", q.Device, q.Owner, fmt.Sprintf("srqn %d max_wr %d", q.Handle, q.Depth), "", "")
	}
	for _, l := range s.Listeners {
		add("listener", l.Device, l.Owner, fmt.Sprintf("listenern %d address %s", l.Handle, l.Addr), "", "")
	}
	for _, q := range s.QPs {
		object := fmt.Sprintf("qpn %d", q.Handle)
		if q.Export != "" {
			object = "remote " + q.Remote.String()
		}
		add("qp", q.Device, q.Owner, object, q.State, q.Error)
	}
	return m
}

// compare returns the differences between two snapshots. If before is nil, everything is new.
func compare(before, now map[string]change) (list []change) {
	for key, c := range now {
		old, ok := before[key]
		switch {
		case !ok:
			c.Change = "new"
		case old.State != c.State:
			c.Change, c.Before = "state", old.State
		default:
			continue
		}
		list = append(list, c)
	}
	for key, c := range before {
		if _, ok := now[key]; !ok {
			c.Change = "del"
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.Change, b.Change), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Object, b.Object))
	})
	return list
}

// newDrops returns the drops since the previous call. seen holds the counts. The first call returns none.
func newDrops(s *control.Snapshot, seen map[string]uint64, first bool) (list []change) {
	for i := range s.Devices {
		d := &s.Devices[i]
		for _, c := range d.Dropped {
			key := d.Name + " " + c.Cause
			if n := c.Frames - min(seen[key], c.Frames); n > 0 && !first {
				list = append(list, change{Change: "drop", Kind: "device", Device: d.Name,
					Object: d.Name, Cause: c.Cause, Frames: n})
			}
			seen[key] = c.Frames
		}
	}
	return list
}

// newEvents returns the events after seq in order of time, and updates seq. The first call returns none.
func newEvents(s *control.Snapshot, seq *uint64, first bool) (list []change) {
	events := slices.DeleteFunc(slices.Clone(s.Events), func(e control.EventRecord) bool {
		return e.Seq <= *seq
	})
	for _, e := range events {
		*seq = max(*seq, e.Seq)
	}
	if first {
		return nil
	}
	slices.SortStableFunc(events, func(a, b control.EventRecord) int {
		return a.Time.Compare(b.Time)
	})
	for _, e := range events {
		event := e.Event
		if e.Remote != "" {
			event += " remote " + e.Remote
		}
		list = append(list, change{Time: e.Time.Format(timeFormat), Change: "event", Kind: "daemon",
			Device: e.Device, Object: event, Error: e.Error})
	}
	return list
}

const timeFormat = "2006-01-02T15:04:05.000Z07:00"

func writeChanges(w io.Writer, list []change, at time.Time, asJSON bool) error {
	write := writeRow
	if asJSON {
		write = lineJSON
	}
	for _, c := range list {
		c.Time = cmp.Or(c.Time, at.Format(timeFormat))
		if err := write(w, c); err != nil {
			return err
		}
	}
	return nil
}
