package main

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/cobra"

	"xwarp/cmd/xwarp/doctor"
	"xwarp/engine/transfer"
	"xwarp/engine/verbs"
)

// reportDocument is the file of xwarp doctor --report.
type reportDocument struct {
	document
	XWarp string `json:"xwarp" doc:"version of xwarp"`
	doctor.Report
}

// reportFlags are the flags for the path and the content of the report.
type reportFlags struct {
	file, peer string
	names      bool
	time       time.Duration // of each measurement
}

func (r *reportFlags) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.file, "report", "", "write a report on --interface to a JSON `FILE`, for a bug "+
		"report; implies --measure")
	f.StringVar(&r.peer, "peer", "", "with --report: measure throughput to xwarp serve at this "+
		"`HOST`[:PORT], over AF_XDP and kernel TCP")
	f.DurationVar(&r.time, "peer-time", 10*time.Second, "duration of each of the four transfers "+
		"of --peer")
	f.BoolVar(&r.names, "names", false, "include host names and addresses in the report")
}

func (r *reportFlags) validate(o *doctor.Options) error {
	switch {
	case r.file == "" && (r.peer != "" || r.names):
		return usagef("--peer and --names need --report")
	case r.file == "":
		return nil
	case o.Interface == "":
		return usagef("--report needs --interface")
	case r.time <= 0 || r.time > time.Minute:
		return usagef("--peer-time %v: need more than 0 and at most 1m", r.time)
	}
	o.Measure = true
	return nil
}

// write completes the report and writes it to the file. It measures throughput to the peer if there is one, and removes
// names unless --names is set.
func (r *reportFlags) write(cmd *cobra.Command, g *global, name string, lines []doctor.Line) error {
	report, err := doctor.NewReport(name, lines)
	if err != nil {
		return err
	}
	if r.peer != "" {
		report.Measured = r.measure(cmd, g, name)
	}
	if !r.names {
		var others []string
		if list, err := resolve(cmd.Context(), r.peer); err == nil {
			others = append(others, r.peer)
			for _, at := range list {
				others = append(others, at.Addr().String())
			}
		}
		if err := report.Anonymous(others...); err != nil {
			return err
		}
	}
	v := reportDocument{document{1, "doctor report"}, buildVersion().Version, *report}
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.file, append(text, '\n'), 0o644)
}

// measure measures RDMA Write and Read to the peer, over AF_XDP and over kernel TCP at this end.
func (r *reportFlags) measure(cmd *cobra.Command, g *global, name string) (all []doctor.Measured) {
	for _, by := range []string{"xdp", "kernel"} {
		for _, verb := range []string{"write", "read"} {
			m := doctor.Measured{What: verb, By: by}
			say(cmd, "measuring %s over %s for %v", verb, by, r.time)
			if err := r.transfer(cmd, g, name, &m); err != nil {
				m.Error = err.Error()
			}
			if m.Seconds > 0 {
				m.Rate = float64(m.Bytes) / (1 << 20) / m.Seconds
			}
			all = append(all, m)
		}
	}
	return all
}

func (r *reportFlags) transfer(cmd *cobra.Command, g *global, name string,
	m *doctor.Measured) error {
	c := clientFlags{server: r.peer, what: "--peer", timeout: 10 * time.Second}
	c.device.Transport = m.By
	if m.By == "xdp" {
		c.device.Interface = name
	}
	return c.reach(cmd, g, func(ctx context.Context, _ verbs.Device, _ netip.AddrPort,
		client *transfer.Client) (err error) {
		op := verbs.WRWrite
		if m.What == "read" {
			op = verbs.WRRead
		}
		var took time.Duration
		m.Bytes, took, err = client.Measure(ctx, op, r.time)
		m.Seconds = took.Seconds()
		return err
	})
}
