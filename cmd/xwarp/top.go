package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"xwarp/engine/control"
	"xwarp/engine/plain"
	"xwarp/engine/view"
)

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
		if o.watch < shortestWatch || views < 0 {
			return usagef("--interval must be at least %v and --count not below 0", shortestWatch)
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
			v := view.MakeTop(before, s)
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

func writeView(w io.Writer, v view.Top, asJSON bool) error {
	if asJSON {
		return lineJSON(w, v)
	}
	if isTerminal(w) {
		fmt.Fprint(w, clearScreen)
	}
	return writeTop(w, &v)
}

// topRows bounds the connections that are shown as text: a screen.
const topRows = 30

func writeTop(w io.Writer, v *view.Top) error {
	var b strings.Builder
	plain.Fprintf(&b, "%-10s %5s %10s %10s %10s %10s\n", "DEVICE", "QUEUE", "RX frame/s", "TX frame/s", "RX bit/s", "TX bit/s")
	for _, q := range v.Queues {
		plain.Fprintf(&b, "%-10s %5d %10s %10s %10s %10s\n", q.Device, q.Queue, scaled(q.RxPPS), scaled(q.TxPPS), scaled(q.RxBPS), scaled(q.TxBPS))
	}
	plain.Fprintf(&b, "\n%-12s %-22s %-22s %-10s %9s %9s %8s %8s %8s\n", "OWNER", "LOCAL", "REMOTE", "STATE", "IN bit/s", "OUT bit/s", "AHEAD/s", "HELD", "RETRANS")
	for i, c := range v.Conns {
		if i == topRows {
			plain.Fprintf(&b, "and %d more\n", len(v.Conns)-topRows)
			break
		}
		plain.Fprintf(&b, "%-12s %-22s %-22s %-10s %9s %9s %8s %8s %8s\n", c.Owner, c.Local, c.Remote, c.State, scaled(c.InBPS), scaled(c.OutBPS),
			scaled(c.Ahead), scaled(float64(c.Held)), scaled(float64(c.Retrans)))
	}
	if len(v.Drops) > 0 {
		plain.Fprintf(&b, "\n%-10s %-24s %10s %10s\n", "DEVICE", "DROPPED BECAUSE", "frames", "frame/s")
	}
	for _, d := range v.Drops {
		plain.Fprintf(&b, "%-10s %-24s %10d %10s\n", d.Device, d.Cause, d.Frames, scaled(d.Rate))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
