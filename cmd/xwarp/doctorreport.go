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
	XWarp string `json:"xwarp" doc:"version"`
	doctor.Report
}

// reportFlags are the flags for the content of the file, and its path.
type reportFlags struct {
	file, peer string
	names      bool
	time       time.Duration // for each measurement
}

func (r *reportFlags) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.file, "report", "", "write what is known of --interface to a JSON `FILE` "+
		"that you can send; implies --measure")
	f.StringVar(&r.peer, "peer", "", "for --report: measure with the xwarp serve at this "+
		"`HOST`[:PORT], by AF_XDP and by the kernel's TCP; its content is overwritten")
	f.DurationVar(&r.time, "peer-time", 10*time.Second, "for each of the four transfers with "+
		"--peer")
	f.BoolVar(&r.names, "names", false, "leave names and addresses of this host in the report")
}

func (r *reportFlags) validate(o *doctor.Options) error {
	switch {
	case r.file == "" && (r.peer != "" || r.names):
		return usagef("--peer and --names are for --report")
	case r.file == "":
		return nil
	case o.Interface == "":
		return usagef("--report needs --interface: which one shall it describe?")
	case r.time <= 0 || r.time > time.Minute:
		return usagef("--peer-time %v is not in 1ns to 1m", r.time)
	}
	o.Measure = true
	return nil
}

// write makes the file.
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

// measure puts and gets with this end's AF_XDP and with this end's kernel, whose peer is the same.
func (r *reportFlags) measure(cmd *cobra.Command, g *global, name string) (all []doctor.Measured) {
	for _, by := range []string{"xdp", "kernel"} {
		for _, verb := range []string{"put", "get"} {
			m := doctor.Measured{What: verb, By: by}
			say(cmd, "measuring %s by %s for %v", verb, by, r.time)
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

// reportPiece is how many bytes one put or get moves; the region of an xwarp serve has at least as many.
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

// zeros reads as bytes of value 0.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
