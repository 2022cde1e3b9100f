package main

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/view"
	"xwarp/engine/plain"
)

// statisticInfo is the output of statistic show.
type statisticInfo struct {
	document
	Statistics []statisticRow `json:"statistics" doc:"groups of counters"`
}

type statisticRow struct {
	counted
	Counters map[string]uint64 `json:"counters" doc:"counters by name"`
}

// counted identifies the object of a group of counters.
type counted struct {
	onLink
	Queue   *int           `json:"queue,omitempty" doc:"queue of the device, for stack, listen and ring"`
	Session uint64         `json:"session,omitempty" doc:"session that owns the queue pair"`
	QP      control.Handle `json:"lqpn,omitempty" doc:"queue pair; if absent, rdma, mpa and tcp are sums over all queue pairs, including closed ones"`
	Export  string         `json:"export,omitempty" doc:"export that owns the queue pair, instead of a session"`
	Remote  string         `json:"remote,omitempty" doc:"peer address of the queue pair"`
	Part    string         `json:"part" doc:"steering, stack, listen, ring, port_mapper, rdma, mpa or tcp"`
}

func newStatistic(*global) *cobra.Command {
	var o operatorFlags
	cmd, show := objectCommand("statistic", &o)
	cmd.Aliases = []string{"stat", "stats", "s"} // iproute2's
	cmd.Short, cmd.Long = "Show counters",
		"statistic shows the counters of devices, queues and connections."
	cmd.Example = "  xwarp statistic show\n  xwarp -j stat show link eth0/1"
	conns, all := false, false
	show.Use, show.Short = "show [link DEV/PORT]", "Print the nonzero counters"
	show.Example = "  xwarp statistic show\n  xwarp statistic show --connections --watch 1s\n  " +
		"xwarp statistic show -j"
	show.ValidArgsFunction = completeLink
	cmd.PersistentFlags().BoolVarP(&conns, "connections", "c", false,
		"also show counters of each connection")
	cmd.PersistentFlags().BoolVarP(&all, "all", "a", false,
		"also show zero counters (JSON always has them)")
	run := func(cmd *cobra.Command, args []string) error {
		var f filters
		if err := f.parse(args, nil); err != nil {
			return err
		}
		return printSnapshots(cmd, &o, func(s *control.Snapshot) (statisticInfo, error) {
			err := f.resolve(s)
			v := makeStatistics(s, conns)
			if f.device != "" {
				v.Statistics = slices.DeleteFunc(v.Statistics, func(r statisticRow) bool {
					return r.Name != f.device
				})
			}
			return v, err
		}, func(w io.Writer, v statisticInfo) error { return writeStatistics(w, v, all) })
	}
	show.RunE, cmd.RunE = run, defaultShow(run)
	return cmd
}

func makeStatistics(s *control.Snapshot, conns bool) statisticInfo {
	v := statisticInfo{document: document{2, "statistic"}, Statistics: []statisticRow{}}
	add := func(what counted, part string, counters map[string]uint64) {
		if counters != nil {
			what.Part = part
			v.Statistics = append(v.Statistics, statisticRow{what, counters})
		}
	}
	index := map[string]int{}
	for i := range s.Devices {
		d := &s.Devices[i]
		index[d.Name] = i
		device := counted{onLink: onLink{onDevice{i, d.Name}, 1}}
		add(device, "steering", d.Steering)
		for _, w := range d.Workers {
			queue := counted{onLink: device.onLink, Queue: &w.Queue}
			add(queue, "stack", w.Stack)
			add(queue, "listen", w.Listen)
			add(queue, "ring", w.Ring)
		}
		if p := d.PortMapper; p != nil {
			add(device, "port_mapper", p.Counters)
		}
		if t := d.Totals; t != nil {
			add(device, "rdma", t.RDMA)
			add(device, "mpa", t.MPA)
			add(device, "tcp", t.TCP)
		}
	}
	if !conns {
		return v
	}
	for i := range s.QPs {
		q := &s.QPs[i]
		qp := counted{onLink: onLink{onDevice{index[q.Device], q.Device}, 1}, QP: q.Handle,
			Session: q.Session, Export: q.Export, Remote: view.Address(q.Remote)}
		add(qp, "rdma", q.Counters)
		add(qp, "mpa", q.MPA)
		add(qp, "tcp", q.TCP)
	}
	return v
}

func writeStatistics(w io.Writer, v statisticInfo, all bool) error {
	for _, r := range v.Statistics {
		text := rowText(r.counted)
		for _, key := range slices.Sorted(maps.Keys(r.Counters)) {
			if n := r.Counters[key]; n != 0 || all {
				text += fmt.Sprintf(" %s %d", plain.Field(key), n)
			}
		}
		if _, err := fmt.Fprintln(w, text); err != nil {
			return err
		}
	}
	return nil
}
