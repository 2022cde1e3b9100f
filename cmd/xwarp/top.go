package main

import (
	"fmt"
	"io"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"xwarp/cmd/program"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/view"
	"xwarp/engine/plain"
)

func newTop(*global) *cobra.Command {
	var o operatorFlags
	views := 0
	cmd := &cobra.Command{
		Use: "top", Short: "Show live rates of queues and connections, and drops",
		Long: `top shows the rates of all queues and connections, and the frames dropped by cause, and refreshes them every --interval.
Press q or Ctrl-C to quit.

  OOO/s   FPDUs placed out of order per second
  HELD B  bytes held until the gap before them is filled
  RETX B  bytes retransmitted so far`,
		Example: "  xwarp top\n  xwarp top --interval 5s\n  xwarp top -n 1 -j",
		Args:    noArgs,
	}
	o.addFlags(cmd.Flags(), false)
	cmd.Flags().DurationVar(&o.watch, "interval", time.Second, "refresh interval")
	cmd.Flags().IntVarP(&views, "count", "n", 0,
		"stop after this number of refreshes (default: no limit)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.checkWatch("interval"); err != nil {
			return err
		}
		if views < 0 {
			return usagef("--count %d must not be negative", views)
		}
		ctx, restore, err := quitKey(cmd.Context(), cmd.InOrStdin())
		if err != nil {
			return err
		}
		defer restore()
		var before *control.Snapshot
		shown := 0
		err = o.each(ctx, cmd, func(s *control.Snapshot) error {
			if before == nil {
				before = s
				return nil
			}
			v := view.MakeTop(before, s)
			before = s
			shown++
			err := writeView(cmd.OutOrStdout(), &v, o.json)
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

func writeView(w io.Writer, v *view.Top, asJSON bool) error {
	if asJSON {
		return lineJSON(w, v)
	}
	if program.IsTerminal(w) {
		fmt.Fprint(w, clearScreen)
	}
	err := writeTop(w, v)
	if err == nil && program.IsTerminal(w) {
		_, err = fmt.Fprint(w, "\nq: quit\n")
	}
	return err
}

// userOf returns the user or tenant that owns a connection, or - for an export.
func userOf(c *view.ConnRates) string {
	switch {
	case c.Session == 0:
		return "-" // an export
	case c.Tenant != "":
		return c.Tenant
	}
	uid := strconv.FormatUint(uint64(c.UID), 10)
	if u, err := user.LookupId(uid); err == nil {
		return u.Username
	}
	return uid
}

// topRows limits the connections shown as text to about one screen.
const topRows = 30

// fit shortens text to the width of its column and marks the cut. It keeps the end, which has the port of an address.
func fit(text string, width int) string {
	if r := []rune(plain.Line(text)); len(r) > width {
		return "…" + string(r[len(r)-width+1:])
	}
	return text
}

func writeTop(w io.Writer, v *view.Top) error {
	var b strings.Builder
	plain.Fprintf(&b, "%-15s %5s %10s %10s %10s %10s\n", "DEVICE", "QUEUE", "RX frame/s",
		"TX frame/s", "RX bit/s", "TX bit/s")
	for _, q := range v.Queues {
		plain.Fprintf(&b, "%-15s %5d %10s %10s %10s %10s\n", fit(q.Device, 15), q.Queue,
			scaled(q.RxPPS), scaled(q.TxPPS), scaled(q.RxBPS), scaled(q.TxBPS))
	}
	const row = "%-8s %-9s %-21s %8s %8s %7s %6s %6s\n"
	plain.Fprintf(&b, "\n"+row, "USER", "PROGRAM", "REMOTE", "RX bit/s", "TX bit/s",
		"OOO/s", "HELD B", "RETX B")
	for i, c := range v.Conns {
		if i == topRows {
			plain.Fprintf(&b, "and %d more\n", len(v.Conns)-topRows)
			break
		}
		plain.Fprintf(&b, row, fit(userOf(&c), 8), fit(c.Owner, 9), fit(c.Remote, 21),
			scaled(c.InBPS), scaled(c.OutBPS),
			scaled(c.Ahead), scaled(float64(c.Held)), scaled(float64(c.Retrans)))
	}
	if len(v.Drops) > 0 {
		plain.Fprintf(&b, "\n%-15s %-40s %10s %10s\n", "DEVICE", "DROP CAUSE", "frames",
			"frame/s")
	}
	for _, d := range v.Drops {
		plain.Fprintf(&b, "%-15s %-40s %10s %10s\n", fit(d.Device, 15), fit(d.Cause, 40),
			scaled(float64(d.Frames)), scaled(d.Rate))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
