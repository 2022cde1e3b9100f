package main

import (
	"context"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
)

func newMonitor(*global) *cobra.Command {
	var o operatorFlags
	cmd := &cobra.Command{
		Use: "monitor", Short: "Print events: objects, connections, drops",
		Long: `monitor prints a line for each event of the daemon, in the order of occurrence and with its time: objects of programs
that are created or destroyed, connections as RDMA_CM events, failed work requests as IBV_WC statuses. Root sees all
events and the lines of the daemon's log, other users those of their programs. Frames dropped are counted every
--interval. A line with "lost" says how many events are missing because they were not read in time.`,
		Example: "  xwarp monitor\n  xwarp monitor --interval 100ms -j",
		Args:    noArgs,
	}
	o.addFlags(cmd.Flags(), false)
	cmd.Flags().DurationVar(&o.watch, "interval", 500*time.Millisecond,
		"interval at which drops are counted")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.checkWatch("interval"); err != nil {
			return err
		}
		d, err := o.openClient(cmd)
		if err != nil {
			return err
		}
		defer d.Close()
		group, ctx := errgroup.WithContext(cmd.Context())
		write := writeRow
		if o.json {
			write = lineJSON
		}
		var mu sync.Mutex // of the output
		show := func(list []control.EventRecord) (err error) {
			mu.Lock()
			defer mu.Unlock()
			for i := 0; i < len(list) && err == nil; i++ {
				err = write(cmd.OutOrStdout(), list[i])
			}
			return err
		}
		group.Go(func() error { return readEvents(ctx, d, show) })
		group.Go(func() error {
			drops := map[string]uint64{}
			return o.eachOf(ctx, d, func(s *control.Snapshot) error {
				return show(newDrops(s, drops))
			})
		})
		return group.Wait()
	}
	return cmd
}

// readEvents passes the events that occur after its call to show, until ctx is done. It omits the events of this
// command's own session.
func readEvents(ctx context.Context, d *client.Device,
	show func([]control.EventRecord) error) error {
	r, err := d.Events(ctx, nil)
	for err == nil {
		next := r.Next
		if r, err = d.Events(ctx, &next); err != nil {
			break
		}
		var list []control.EventRecord
		if r.Lost > 0 {
			list = append(list, control.EventRecord{Time: time.Now(), Change: control.ChangeLost,
				Kind: "daemon", Lost: r.Lost})
		}
		for _, e := range r.Events {
			if e.Session != d.Session() {
				list = append(list, e)
			}
		}
		err = show(list)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// newDrops returns the drops since the previous call. seen holds the counts between calls. The first call returns none.
func newDrops(s *control.Snapshot, seen map[string]uint64) (list []control.EventRecord) {
	first := len(seen) == 0
	for i := range s.Devices {
		d := &s.Devices[i]
		seen[d.Name] = 0 // seen is then not empty, even without drops
		for _, c := range d.Dropped {
			key := d.Name + " " + c.Cause
			if n := c.Frames - min(seen[key], c.Frames); n > 0 && !first {
				list = append(list, control.EventRecord{Time: s.Time, Change: control.ChangeDrop,
					Kind: "device", Device: d.Name, Cause: c.Cause, Frames: n})
			}
			seen[key] = c.Frames
		}
	}
	return list
}
