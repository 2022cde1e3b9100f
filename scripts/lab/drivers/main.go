// Command drivers tries xwarp on the drivers of real network cards, in virtual machines that emulate the cards, and writes a table of
// driver by what was tried. Run it through make drivers, as root; scripts/lab/drivers/build.sh makes what the machines boot from.
//
//	go run ./scripts/lab/drivers [-out FILE] [-only REGEXP] [-try REGEXP] [-soak 1m] BINARIES
//
// A cell says ok with figures that show it (they compare modes of one machine, and say nothing of real cards), why it failed, or
// what the driver does not offer. The log of each machine is beside the binaries. Status 1: something failed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"xwarp/scripts/lab/vm"
)

func main() {
	out := flag.String("out", "bench/results/drivers.md", "the table; empty: none")
	only := flag.String("only", "", "drivers whose name matches")
	try := flag.String("try", "", "rows whose name matches")
	soak := flag.Duration("soak", time.Minute, "how long a soak takes")
	size := flag.Int("size", 16, "MiB that a transfer moves")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	t, err := run(ctx, options{share: flag.Arg(0), only: regexp.MustCompile(*only), try: regexp.MustCompile(*try), soak: *soak, size: *size})
	if err == nil && *out != "" {
		err = os.WriteFile(*out, []byte(t.markdown()), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "drivers:", err)
		os.Exit(1)
	}
	if n := t.failed(); n > 0 {
		fmt.Fprintf(os.Stderr, "drivers: %d failed\n", n)
		os.Exit(1)
	}
}

type options struct {
	share     string // directory of the binaries
	only, try *regexp.Regexp
	soak      time.Duration
	size      int
}

// run tries everything on every kind, one machine at a time.
func run(ctx context.Context, o options) (*table, error) {
	versions, err := vm.Newest()
	if err != nil {
		return nil, err
	}
	if o.share, err = filepath.Abs(o.share); err != nil {
		return nil, err
	}
	fmt.Println(versions)
	t := &table{versions: versions}
	for _, tr := range trials() {
		if o.try.MatchString(tr.what) {
			t.rows = append(t.rows, tr.what)
		}
	}
	for _, k := range kinds {
		if !o.only.MatchString(k.name) {
			continue
		}
		column, err := tryKind(ctx, k, &o)
		if err != nil {
			return t, fmt.Errorf("%s: %w", k.name, err)
		}
		t.add(k.name, column)
	}
	return t, nil
}

func tryKind(ctx context.Context, k kind, o *options) (column map[string]cell, err error) {
	log, err := os.Create(filepath.Join(o.share, "drivers-"+k.name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	begin := time.Now()
	r, err := newRig(ctx, k, o.share, log)
	if err != nil {
		return nil, err
	}
	defer r.close()
	r.soak = o.soak
	fmt.Printf("%s: up after %.0f s\n", k.name, time.Since(begin).Seconds())
	if err := r.makePayload(o.size); err != nil {
		return nil, err
	}
	column = map[string]cell{}
	for _, tr := range trials() {
		if !o.try.MatchString(tr.what) {
			continue
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		fmt.Fprintf(log, "\n== %s\n", tr.what)
		begin := time.Now()
		text, err := tr.run(r)
		c := cellOf(text, err)
		column[tr.what] = c
		fmt.Fprintf(log, "-- %s\n", c.text)
		fmt.Printf("%s: %s: %s (%.0f s)\n", k.name, tr.what, c.text, time.Since(begin).Seconds())
	}
	return column, nil
}
