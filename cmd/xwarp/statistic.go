package main

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"xwarp/engine/daemon/control"
	"xwarp/engine/plain"
)

// statisticInfo is the output of statistic show.
type statisticInfo struct {
	document
	Statistics control.Statistics `json:"statistics" doc:"groups of counters"`
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
			return makeStatistics(s, conns), err
		}, func(w io.Writer, v statisticInfo) error { return writeStatistics(w, v, all) })
	}
	show.RunE, cmd.RunE = run, defaultShow(run)
	return cmd
}

// makeStatistics returns the counters of devices and exports, and on request those of connections.
func makeStatistics(s *control.Snapshot, conns bool) statisticInfo {
	v := statisticInfo{document: document{2, "statistic"}, Statistics: control.Statistics{}}
	v.Statistics = append(v.Statistics, s.Statistics...)
	if !conns {
		return v
	}
	for i := range s.QPs {
		q := &s.QPs[i]
		add := func(part string, counters map[string]uint64) {
			if counters != nil {
				v.Statistics = append(v.Statistics, control.Statistic{Port: q.Port, QP: q.Handle,
					Session: q.Session, Export: q.Export, Remote: q.Remote, Part: part,
					Counters: counters})
			}
		}
		add("rdma", q.RDMA)
		add("mpa", q.MPA)
		add("tcp", q.TCP)
	}
	return v
}

func writeStatistics(w io.Writer, v statisticInfo, all bool) error {
	for _, r := range v.Statistics {
		text := rowText(r)
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
