// Command drivers tests xwarp on the drivers of network cards that virtual machines emulate, and writes a table of
// results by driver. Run it through make drivers, as root; scripts/lab/drivers/build.sh builds the images.
//
//	go run ./scripts/lab/drivers [-out FILE] [-only REGEXP] [-try REGEXP] [-soak 1m] BINARIES
//
// A cell has ok with figures, the reason of a failure, or what the driver does not offer. Figures compare modes of one
// machine, not real cards. The log of each machine is beside the binaries. Status 1: something failed.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"xwarp/scripts/lab/table"
	"xwarp/scripts/lab/vm"
)

func main() {
	var o options
	o.Flags("drivers", "bench/results/drivers.md")
	flag.DurationVar(&o.soak, "soak", time.Minute, "how long a soak takes")
	flag.IntVar(&o.size, "size", 2, "MiB that a transfer moves")
	flag.Parse()
	o.share = flag.Arg(0)
	table.Main("drivers", func(ctx context.Context) (int, error) { return run(ctx, &o) })
}

type options struct {
	table.Options
	share string // directory of the binaries
	soak  time.Duration
	size  int
}

// preamble is followed by the table.
const preamble = `# xwarp on drivers of network cards

Written by ` + "`make drivers`" + `: virtual machines, emulated in software, with Linux's own drivers for their cards;
%s.
Two cards of one machine, each in a network namespace, are joined by a cable that can lose and corrupt frames. Each
transfer is compared byte by byte. Figures in MiB/s compare modes and drivers of this emulation; they say nothing about
the speed of real cards. "Not offered" means that the driver or the emulator lacks the feature; the message to the user
follows. An empty cell was not tested. %s

`

// run runs all trials on every kind of card, one machine at a time, and returns the number of failed cells.
func run(ctx context.Context, o *options) (failed int, err error) {
	versions, err := vm.Newest()
	if err != nil {
		return 0, err
	}
	if o.share, err = filepath.Abs(o.share); err != nil {
		return 0, err
	}
	fmt.Println(versions)
	state := filepath.Join(o.share, "drivers.json")
	t, err := table.Load(state, versions)
	if err != nil {
		return 0, err
	}
	var drivers, rows []string
	for _, tr := range trials() {
		rows = append(rows, tr.what)
	}
	for _, k := range kinds {
		drivers = append(drivers, k.name)
		if !o.Only.MatchString(k.name) {
			continue
		}
		tried := func(row string, c table.Cell) { t.Set(k.name, row, c) }
		if err := tryKind(ctx, k, o, tried); err != nil {
			return 0, errors.Join(fmt.Errorf("%s: %w", k.name, err), t.Save(state))
		}
	}
	if o.Script != "" {
		return 0, nil
	}
	if o.Out != "" {
		runs := "All cells are of one run."
		if o.Only.String() != "" || o.Try.String() != "" {
			runs = "Cells are of several runs, each of some drivers and rows (-only, -try)."
		}
		text := fmt.Sprintf(preamble, versions, runs) + t.Markdown(drivers, rows)
		err = os.WriteFile(o.Out, []byte(text), 0o644)
	}
	return t.Failed(), errors.Join(err, t.Save(state))
}

// tryKind boots a machine with cards of a kind and runs the trials, on a new machine if that one ends.
func tryKind(ctx context.Context, k kind, o *options, tried func(row string, c table.Cell)) error {
	log, err := os.Create(filepath.Join(o.share, "drivers-"+k.name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	var r *rig
	defer func() {
		if r != nil {
			r.close()
		}
	}()
	if o.Script != "" {
		if r, err = bootRig(ctx, k, o, log); err != nil {
			return err
		}
		out, err := r.runScript(o.Script, patience)
		fmt.Print(out)
		return err
	}
	for _, tr := range trials() {
		if !o.Try.MatchString(tr.what) {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if r == nil {
			if r, err = bootRig(ctx, k, o, log); err != nil {
				return err
			}
		}
		fmt.Fprintf(log, "\n== %s\n", tr.what)
		begin := time.Now()
		text, err := tr.run(r, cmp.Or(tr.mode, k.best()))
		if err != nil && !r.m.Running() {
			err = fmt.Errorf("the emulator ended: %w", err)
			r.close()
			r = nil
		}
		c := table.CellOf(text, k.blame(tr.what, err))
		tried(tr.what, c)
		fmt.Fprintf(log, "-- %s\n", c.Text)
		fmt.Printf("%s: %s: %s (%.0f s)\n", k.name, tr.what, c.Text, time.Since(begin).Seconds())
	}
	return nil
}

// bootRig boots a machine, and retries if the emulator ends early: qemu 10 sometimes fails an assertion about its
// translation buffer.
func bootRig(ctx context.Context, k kind, o *options, log io.Writer) (r *rig, err error) {
	const attempts = 3
	for range attempts {
		begin := time.Now()
		if r, err = newRig(ctx, k, o.share, log); err == nil {
			fmt.Printf("%s: up after %.0f s\n", k.name, time.Since(begin).Seconds())
			r.soak, r.size = o.soak, o.size
			return r, r.fill(o.size)
		}
		fmt.Fprintf(log, "%v\n", err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, err
}
