package main

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"xwarp/cmd/program"
	"xwarp/cmd/xwarp/transport"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
	"xwarp/engine/plain"
)

// operatorFlags are the flags of all commands that query the daemon.
type operatorFlags struct {
	socket string
	json   bool
	watch  time.Duration
}

func (o *operatorFlags) addFlags(f *pflag.FlagSet, watch bool) {
	f.StringVar(&o.socket, "socket", "", "control socket of xwarpd "+transport.SocketDefault+
		"; the operator socket beside it is preferred if you have access")
	f.BoolVarP(&o.json, "json", "j", false, "print JSON")
	if watch {
		f.DurationVarP(&o.watch, "watch", "w", 0, "repeat at this interval: --watch=1s, "+
			"--watch 1s or -w1s (without a value: 2s)")
		f.Lookup("watch").NoOptDefVal = "2s"
	}
}

// openClient connects to the daemon.
func (o *operatorFlags) openClient(cmd *cobra.Command) (*client.Device, error) {
	return client.OpenConfig(client.Config{Path: o.socket, Program: cmd.CommandPath(),
		Operator: true})
}

// checkWatch checks the interval that a flag sets.
func (o *operatorFlags) checkWatch(flag string) error {
	if o.watch < shortestWatch {
		return usagef("--%s must be at least %v, is %v", flag, shortestWatch, o.watch)
	}
	return nil
}

// printSnapshots prints the result of make for a snapshot: once, or with --watch repeatedly until the command is
// cancelled.
func printSnapshots[T any](cmd *cobra.Command, o *operatorFlags,
	make func(*control.Snapshot) (T, error), text func(io.Writer, T) error) error {
	if o.watch != 0 {
		if err := o.checkWatch("watch"); err != nil {
			return err
		}
	}
	w := cmd.OutOrStdout()
	return o.each(cmd.Context(), cmd, func(s *control.Snapshot) error {
		v, err := make(s)
		if err != nil {
			return err
		}
		if o.watch > 0 && !o.json && program.IsTerminal(w) {
			fmt.Fprint(w, clearScreen)
		}
		switch {
		case o.json && o.watch > 0:
			return lineJSON(w, v) // one object per line
		case o.json:
			return printJSON(cmd, v)
		}
		return text(w, v)
	})
}

// each calls f with one snapshot, or with one every o.watch until ctx is done. The snapshots lack the session of this
// command.
func (o *operatorFlags) each(ctx context.Context, cmd *cobra.Command,
	f func(*control.Snapshot) error) error {
	d, err := o.openClient(cmd)
	if err != nil {
		return err
	}
	defer d.Close()
	return o.eachOf(ctx, d, f)
}

// eachOf is each on an open connection to the daemon.
func (o *operatorFlags) eachOf(ctx context.Context, d *client.Device,
	f func(*control.Snapshot) error) error {
	for {
		s, err := d.Snapshot(ctx)
		if ctx.Err() != nil && o.watch > 0 {
			return nil
		}
		if err != nil {
			return err
		}
		s.Sessions = slices.DeleteFunc(s.Sessions, func(v control.SessionState) bool {
			return v.Session == d.Session()
		})
		s.Count = s.Numbers()
		if err := f(&s); err != nil || o.watch <= 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(o.watch):
		}
	}
}

// shortestWatch limits the load on the daemon: each snapshot takes time of every worker.
const shortestWatch = 10 * time.Millisecond

const clearScreen = "\x1b[H\x1b[2J"

// writeRow prints a struct as a line of rowText.
func writeRow(w io.Writer, row any) error {
	_, err := fmt.Fprintln(w, rowText(row))
	return err
}

// rowText formats a struct as iproute2 does: link DEV/PORT or dev DEV, then each JSON key and its value. It omits maps,
// ifindex, and zero values whose tag has omitempty or omitzero.
func rowText(row any) string {
	var parts []string
	walkRow(reflect.ValueOf(row), func(name string, v reflect.Value, omitempty bool) {
		if v.IsZero() && omitempty || name == "ifindex" || v.Kind() == reflect.Map {
			return
		}
		value := plain.Field(valueText(v))
		switch name {
		case "ifname":
			name = "dev"
		case "port":
			parts[len(parts)-1] = "link" + strings.TrimPrefix(parts[len(parts)-1], "dev") + "/" +
				value
			return
		}
		parts = append(parts, name+" "+value)
	})
	return strings.Join(parts, " ")
}

// seconds converts a time in seconds to a Duration of whole seconds.
func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Second)
}

// scaled formats a number with three digits and a unit: 1234567 is 1.23M.
func scaled(v float64) string {
	for _, u := range []struct {
		unit string
		size float64
	}{{"E", 1e18}, {"P", 1e15}, {"T", 1e12}, {"G", 1e9}, {"M", 1e6}, {"k", 1e3}} {
		if v >= 0.9995*u.size { // 999.6 is 1k in three digits
			return fmt.Sprintf("%.3g%s", v/u.size, u.unit)
		}
	}
	return fmt.Sprintf("%.3g", v)
}
