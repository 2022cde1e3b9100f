package bench

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"xwarp/bench/compare"
	"xwarp/engine/plain"
)

// newCompare measures this binary, or another, against an older one.
func newCompare() *cobra.Command {
	var o compare.Options
	var asJSON bool
	names := make([]string, len(compare.Workloads))
	for i, w := range compare.Workloads {
		names[i] = w.Name
	}
	c := &cobra.Command{
		Use:   "compare OLD",
		Short: "Measure two binaries against each other, in rounds that take turns",
		Long: `compare runs bench local of this binary (or of --new) and of the binary OLD in turns and shows the ratios of each round:
above 1 the newer is better. A figure counts as fallen when the median of the ratios and the ratio of the best rounds
are both below 0.97, in two sets of rounds; the exit status is 1 then.`,
		Example: "  sudo xwarp bench compare /usr/bin/xwarp --only write-1500,ping-pong",
		Args:    cobra.ExactArgs(1),
	}
	f := c.Flags()
	f.StringVar(&o.New, "new", "", "the newer `BINARY`; default: this one")
	f.IntVar(&o.Rounds, "rounds", 9, "of each workload")
	f.StringVar(&o.Duration, "duration", "1s", "of one measurement")
	f.StringSliceVar(&o.Only, "only", nil, "some of the workloads: "+strings.Join(names, ", "))
	f.BoolVarP(&asJSON, "json", "j", false, "JSON, with the figures of each round")
	c.RunE = func(cmd *cobra.Command, args []string) (err error) {
		o.Old = args[0]
		if o.New == "" {
			if o.New, err = os.Executable(); err != nil {
				return err
			}
		}
		line := newStatus(cmd.ErrOrStderr())
		o.Progress = func(w *compare.Workload, round int) {
			line.show("%s, round %d of %d", w.Name, round+1, o.Rounds)
		}
		rows, err := compare.Run(cmd.Context(), o)
		line.end()
		if asJSON {
			rows = append([]compare.Row{}, rows...) // no null
			err = errors.Join(err, plain.WriteJSON(cmd.OutOrStdout(), rows))
		} else {
			writeRows(cmd.OutOrStdout(), rows)
		}
		return err
	}
	return c
}

func writeRows(w io.Writer, rows []compare.Row) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "workload\tmedian\tspread\tbest to best\t")
	for _, r := range rows {
		verdict := ""
		if r.Fallen {
			verdict = "fallen"
		}
		if r.Error != "" {
			fmt.Fprintf(t, "%s\tnot measured\t\t\t\n", r.Name)
		} else {
			fmt.Fprintf(t, "%s\t%.3f\t%.3f – %.3f\t%.3f\t%s\n", r.Name, r.Median, r.Low, r.High,
				r.Best, verdict)
		}
	}
	t.Flush()
	for _, r := range rows {
		if r.Error != "" {
			plain.Fprintf(w, "%s: %s\n", r.Name, r.Error)
		}
	}
}
