package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"xwarp/engine/control"
	"xwarp/engine/plain"
	"xwarp/engine/view"
)

// statisticInfo is what statistic show prints.
type statisticInfo struct {
	Schema     int            `json:"schema" doc:"version of this layout, 1"`
	Command    string         `json:"command" doc:"\"statistic\""`
	Statistics []statisticRow `json:"statistics" doc:"groups of counters"`
}

type statisticRow struct {
	Device   string            `json:"device" doc:"where it is counted"`
	Queue    *int              `json:"queue,omitempty" doc:"of the device, for stack and ring"`
	QP       control.Handle    `json:"qpn,omitempty" doc:"queue pair, for rdma, mpa and tcp"`
	Session  uint64            `json:"session,omitempty" doc:"whose the queue pair is"`
	Export   string            `json:"export,omitempty" doc:"whose the queue pair is, instead of a session"`
	Remote   string            `json:"remote,omitempty" doc:"peer of the queue pair"`
	Part     string            `json:"part" doc:"steering, stack, ring, rdma, mpa or tcp"`
	Counters map[string]uint64 `json:"counters" doc:"by name"`
}

func newStatistic(*global) *cobra.Command {
	cmd := &cobra.Command{
		Use: "statistic", Short: "Show counters", Long: "statistic shows the counters of devices, queues and connections.",
		Example: "  xwarp statistic show", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var o operatorFlags
	conns, all := false, false
	show := &cobra.Command{
		Use: "show", Short: "Print the counters that are not zero",
		Example: "  xwarp statistic show\n  xwarp statistic show --connections --watch=1s\n  xwarp statistic show -j",
		Args:    noArgs,
	}
	o.register(show, true)
	show.Flags().BoolVarP(&conns, "connections", "c", false, "those of each connection too")
	show.Flags().BoolVarP(&all, "all", "a", false, "those that are zero too (JSON has them always)")
	show.RunE = func(cmd *cobra.Command, _ []string) error {
		return o.show(cmd, func(s *control.Snapshot) any { return makeStatistics(s, conns) },
			func(w io.Writer, v any) error { return writeStatistics(w, v.(statisticInfo), all) })
	}
	cmd.AddCommand(show)
	return cmd
}

func makeStatistics(s *control.Snapshot, conns bool) statisticInfo {
	v := statisticInfo{Schema: 1, Command: "statistic", Statistics: []statisticRow{}}
	add := func(r statisticRow) {
		if r.Counters != nil {
			v.Statistics = append(v.Statistics, r)
		}
	}
	for _, d := range s.Devices {
		add(statisticRow{Device: d.Name, Part: "steering", Counters: d.Steering})
		for _, w := range d.Workers {
			add(statisticRow{Device: d.Name, Queue: &w.Queue, Part: "stack", Counters: w.Stack})
			add(statisticRow{Device: d.Name, Queue: &w.Queue, Part: "ring", Counters: w.Ring})
		}
	}
	if !conns {
		return v
	}
	for i := range s.QPs {
		q := &s.QPs[i]
		r := statisticRow{Device: q.Device, QP: q.Handle, Session: q.Session, Export: q.Export, Remote: view.Address(q.Remote)}
		r.Part, r.Counters = "rdma", q.Counters
		add(r)
		r.Part, r.Counters = "mpa", q.MPA
		add(r)
		r.Part, r.Counters = "tcp", q.TCP
		add(r)
	}
	return v
}

func writeStatistics(w io.Writer, v statisticInfo, all bool) error {
	for _, r := range v.Statistics {
		var b strings.Builder
		plain.Fprintf(&b, "device %s", r.Device)
		if r.Queue != nil {
			plain.Fprintf(&b, " queue %d", *r.Queue)
		}
		if r.QP != 0 {
			plain.Fprintf(&b, " session %d qpn %d", r.Session, r.QP)
		}
		if r.Export != "" {
			plain.Fprintf(&b, " export %s", r.Export)
		}
		if r.Remote != "" {
			plain.Fprintf(&b, " remote %s", r.Remote)
		}
		plain.Fprintf(&b, " part %s", r.Part)
		for _, key := range slices.Sorted(maps.Keys(r.Counters)) {
			if n := r.Counters[key]; n != 0 || all {
				plain.Fprintf(&b, " %s %d", key, n)
			}
		}
		if _, err := fmt.Fprintln(w, b.String()); err != nil {
			return err
		}
	}
	return nil
}
