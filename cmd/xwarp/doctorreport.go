package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
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
		"`HOST`[:PORT], over AF_XDP and kernel TCP; overwrites its content")
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

// write writes the report.
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
		if at, err := resolve(cmd.Context(), r.peer); err == nil {
			others = append(others, r.peer, at.Addr().String())
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

// measure measures put and get to the peer, over AF_XDP and over kernel TCP at this end.
func (r *reportFlags) measure(cmd *cobra.Command, g *global, name string) (all []doctor.Measured) {
	for _, by := range []string{"xdp", "kernel"} {
		for _, verb := range []string{"put", "get"} {
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

// reportPiece is the size of one put or get in bytes. The region of xwarp serve must be at least this large.
const reportPiece = 16 << 20

func (r *reportFlags) transfer(cmd *cobra.Command, g *global, name string,
	m *doctor.Measured) error {
	c := clientFlags{server: r.peer, serverFlag: "peer", timeout: 10 * time.Second}
	c.device.Transport = m.By
	if m.By == "xdp" {
		c.device.Interface = name
	}
	return c.reach(cmd, g, func(ctx context.Context, d verbs.Device, remote netip.AddrPort) (
		err error) {
		client, err := c.dial(ctx, d, remote)
		if err != nil {
			return err
		}
		defer closing(&err, client)
		for begin := time.Now(); time.Since(begin) < r.time && err == nil; {
			err = onePiece(ctx, client, m)
		}
		return err
	})
}

func onePiece(ctx context.Context, client *transfer.Client, m *doctor.Measured) error {
	var s transfer.Summary
	var err error
	if m.What == "put" {
		s, err = client.Put(ctx, io.LimitReader(zeros{}, reportPiece), reportPiece)
	} else {
		s, err = client.Get(ctx, io.Discard, reportPiece)
	}
	if err == nil && s.Bytes != reportPiece {
		err = fmt.Errorf("%s moved %d bytes of %d", m.What, s.Bytes, reportPiece)
	}
	m.Bytes += s.Bytes
	m.Seconds += s.Took.Seconds()
	return err
}

// zeros is a Reader of zero bytes.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
