// Command kernels tests xwarp on Debian kernels in virtual machines, from one that is too old to the newest, for amd64
// and arm64, and writes a table of results by kernel. Run it through make kernels, as root;
// scripts/lab/kernels/build.sh builds the images.
//
//	go run ./scripts/lab/kernels [-out FILE] [-only REGEXP] [-try REGEXP] BUILD
//
// BUILD holds the programs for amd64 and, in the directory arm64, for arm64. A cell has ok with figures, or the
// message that a user gets if it does not work. Figures compare modes of one machine, not real processors. The log of
// each machine is beside the programs. Status 1: something failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"xwarp/scripts/lab/table"
	"xwarp/scripts/lab/vm"
)

func main() {
	var o options
	o.Flags("kernels", "bench/results/kernels.md")
	flag.Parse()
	table.Main("kernels", func(ctx context.Context) (int, error) {
		return run(ctx, &o, flag.Arg(0))
	})
}

type options struct {
	table.Options
	build string // directory of the programs
}

// kernel is one of scripts/lab/kernels/build.sh.
type kernel struct {
	name, title string
	old         bool // older than xwarp needs: failures must say so
}

var kernels = []kernel{
	{name: "debian12", title: "Debian 12, amd64", old: true},
	{name: "debian13", title: "Debian 13, amd64"},
	{name: "newest-amd64", title: "newest, amd64"},
	{name: "debian13-arm64", title: "Debian 13, arm64"},
	{name: "newest-arm64", title: "newest, arm64"},
}

// versionRow is the table's first row.
const versionRow = "kernel"

const preamble = `# xwarp on kernels and processors

Written by ` + "`make kernels`" + `: virtual machines, emulated in software, with Debian kernels and two processors each. Each
transfer is compared byte by byte. Figures compare modes of one machine; they say nothing about the speed of real
processors. Debian has no kernel between 6.1 and 6.12, so 6.6, the oldest that xwarp supports, is not tested. An empty
cell was not tested.

`

// run runs all trials on every kernel, one machine at a time, and returns the number of failed cells.
func run(ctx context.Context, o *options, build string) (failed int, err error) {
	if o.build, err = filepath.Abs(build); err != nil {
		return 0, err
	}
	state := filepath.Join(o.build, "kernels.json")
	t, err := table.Load(state, "1")
	if err != nil {
		return 0, err
	}
	columns, rows := []string(nil), []string{versionRow}
	for _, tr := range trials {
		rows = append(rows, tr.what)
	}
	for _, k := range kernels {
		columns = append(columns, k.title)
		if !o.Only.MatchString(k.name) {
			continue
		}
		version, arch, err := vm.KernelOf(k.name)
		if err != nil {
			return 0, err
		}
		if v := (table.Cell{Text: version}); t.Columns[k.title][versionRow] != v {
			delete(t.Columns, k.title) // an earlier kernel's
			t.Set(k.title, versionRow, v)
		}
		tried := func(row string, c table.Cell) { t.Set(k.title, row, c) }
		if err := tryKernel(ctx, k, arch, o, tried); err != nil {
			return 0, errors.Join(fmt.Errorf("%s: %w", k.name, err), t.Save(state))
		}
	}
	if o.Script != "" {
		return 0, nil
	}
	if o.Out != "" {
		err = os.WriteFile(o.Out, []byte(preamble+t.Markdown(columns, rows)), 0o644)
	}
	return t.Failed(), errors.Join(err, t.Save(state))
}

// tryKernel boots a machine and runs the trials in it.
func tryKernel(ctx context.Context, k kernel, arch string, o *options,
	tried func(row string, c table.Cell)) (err error) {
	log, err := os.Create(filepath.Join(o.build, "kernels-"+k.name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	begin := time.Now()
	m, err := boot(ctx, k, arch, o, log)
	if err != nil {
		return err
	}
	defer m.close()
	fmt.Printf("%s: up after %.0f s\n", k.name, time.Since(begin).Seconds())
	if o.Script != "" {
		out, err := m.runScript(o.Script)
		fmt.Print(out)
		return err
	}
	for _, tr := range trials {
		if !o.Try.MatchString(tr.what) {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		fmt.Fprintf(log, "\n== %s\n", tr.what)
		begin := time.Now()
		text, err := tr.run(m)
		if err != nil && !m.vm.Running() {
			return fmt.Errorf("%s: the emulator ended: %w", tr.what, err)
		}
		c := table.CellOf(text, k.excused(err))
		tried(tr.what, c)
		fmt.Fprintf(log, "-- %s\n", c.Text)
		fmt.Printf("%s: %s: %s (%.0f s)\n", k.name, tr.what, c.Text, time.Since(begin).Seconds())
	}
	return nil
}

// floor is the text that a message must have on a kernel that is too old.
const floor = "6.6"

// excused accepts a failure on a kernel that is too old, if the message names the kernel that is needed.
func (k kernel) excused(err error) error {
	if err == nil || !k.old || errors.Is(err, table.ErrNotOffered) ||
		!strings.Contains(err.Error(), floor) {
		return err
	}
	return fmt.Errorf("%w: %w", table.ErrNotOffered, err)
}
