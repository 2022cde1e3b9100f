// Command kernels tests xwarp on Debian kernels in virtual machines, from one that is too old to the newest, for amd64
// and arm64, and writes a table of results by kernel. Run it through make kernels, as root;
// scripts/lab/kernels/build.sh builds the images.
//
//	go run ./scripts/lab/kernels [-out FILE] [-only REGEXP] [-try REGEXP] BUILD
//
// BUILD holds the programs for amd64 and, in the directory arm64, those for arm64. A cell of the table says "ok" with
// figures, or has the message that a user gets if it does not work. The figures compare modes on one emulated machine,
// not real processors. The log of each machine is in BUILD. Exit status 1 means that a trial failed.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"xwarp/scripts/lab/table"
	"xwarp/scripts/lab/trial"
	"xwarp/scripts/lab/vm"
)

// kernel is a column of the table: a kernel that scripts/lab/kernels/build.sh has built, by its name there.
type kernel struct {
	name, title string
	old         bool // older than xwarp needs; xwarp must fail with a message that says so
}

var kernels = []kernel{
	{name: "debian12", title: "Debian 12, amd64", old: true},
	{name: "debian13", title: "Debian 13, amd64"},
	{name: "newest-amd64", title: "newest, amd64"},
	{name: "debian13-arm64", title: "Debian 13, arm64"},
	{name: "newest-arm64", title: "newest, arm64"},
}

const preamble = `# xwarp on kernels and processors

Written by ` + "`make kernels`" + `: virtual machines, emulated in software, with Debian kernels and two processors each. Each
transfer is compared byte by byte. Figures compare modes of one machine; they say nothing about the speed of real
processors. Debian has no kernel between 6.1 and 6.12, so 6.6, the oldest that xwarp supports, is not tested. An empty
cell was not tested.

`

func main() {
	s := trial.Set[*machine]{Name: "kernels", Trials: trials,
		Versions: func() (string, error) { return "1", nil },
		Preamble: func(string, bool) string { return preamble }}
	for _, k := range kernels {
		s.Columns = append(s.Columns, trial.Column[*machine]{Name: k.name, Title: k.title,
			Version: func() (string, error) {
				version, _, err := vm.KernelOf(k.name)
				return version, err
			},
			Boot: func(ctx context.Context, build string, log io.Writer) (*machine, error) {
				return boot(ctx, k.name, build, log)
			},
			Judge: k.excused})
	}
	s.Main()
}

// floor is the oldest kernel that xwarp supports. On an older one, a message must name it.
const floor = "6.6"

// excused wraps table.ErrNotOffered around an error on a kernel that is too old, if the message names the kernel that
// is needed. It returns other errors unchanged.
func (k kernel) excused(_ string, err error) error {
	if err == nil || !k.old || errors.Is(err, table.ErrNotOffered) ||
		!strings.Contains(err.Error(), floor) {
		return err
	}
	return fmt.Errorf("%w: %w", table.ErrNotOffered, err)
}
