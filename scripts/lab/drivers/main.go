// Command drivers tests xwarp on Linux's drivers of network cards, in virtual machines that emulate the cards. It
// writes a table of results by driver. Run it through make drivers, as root; scripts/lab/drivers/build.sh builds the
// images.
//
//	go run ./scripts/lab/drivers [-out FILE] [-only REGEXP] [-try REGEXP] [-soak 1m] BINARIES
//
// A cell of the table says "ok" with figures, the reason of a failure, or what the driver does not offer. The figures
// compare modes on one emulated machine, not real cards. The log of each machine is in the directory BINARIES. Exit
// status 1 means that a trial failed.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"time"

	"xwarp/scripts/lab/trial"
	"xwarp/scripts/lab/vm"
)

func main() {
	soak := flag.Duration("soak", time.Minute, "how long a soak takes")
	size := flag.Int("size", 2, "MiB that a transfer moves")
	s := trial.Set[*rig]{Name: "drivers", Versions: vm.Newest, Preamble: preamble}
	for _, k := range kinds {
		boot := func(ctx context.Context, dir string, log io.Writer) (*rig, error) {
			r, err := newRig(ctx, k, dir, *size, log)
			if err == nil {
				r.soak = *soak
			}
			return r, err
		}
		s.Columns = append(s.Columns, trial.Column[*rig]{Name: k.name, Title: k.name, Boot: boot,
			Judge: k.blame})
	}
	for _, t := range trials() {
		s.Trials = append(s.Trials, trial.Trial[*rig]{What: t.what,
			Run: func(r *rig) (string, error) { return t.run(r, cmp.Or(t.mode, r.kind.best())) }})
	}
	s.Main()
}

func preamble(versions string, isPart bool) string {
	runs := "All cells are of one run."
	if isPart {
		runs = "Cells are of several runs, each of some drivers and rows (-only, -try)."
	}
	return fmt.Sprintf(`# xwarp on drivers of network cards

Written by `+"`make drivers`"+`: virtual machines, emulated in software, with Linux's own drivers for their cards;
%s.
Two cards of one machine, each in a network namespace, are joined by a cable that can lose and corrupt frames. Each
transfer is compared byte by byte. Figures in MiB/s compare modes and drivers of this emulation; they say nothing about
the speed of real cards. "Not offered" means that the driver or the emulator lacks the feature; the message to the user
follows. An empty cell was not tested. %s

`, versions, runs)
}
