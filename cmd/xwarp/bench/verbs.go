package bench

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"xwarp/bench/process"
	"xwarp/bench/verbs"
	"xwarp/engine/plain"
)

// newVerbs measures the library of xwarp run.
func newVerbs() *cobra.Command {
	var o verbs.Options
	var asJSON bool
	c := &cobra.Command{
		Use:   "verbs",
		Short: "Measure perftest over xwarp run against the daemon's Go client and the engine",
		Long: `verbs runs ib_write_lat and ib_write_bw over the library of xwarp run, and the same tests of this
command over the daemon's client in Go and over the embedded engine, in rounds that take turns, between
two network namespaces of this machine with a daemon in each. It needs root, perftest, and xwarpd and
the library beside this executable.`,
		Args: cobra.NoArgs,
	}
	c.Flags().IntVar(&o.Rounds, "rounds", 5, "of each figure")
	c.Flags().BoolVarP(&asJSON, "json", "j", false, "JSON, with the figures of each round")
	c.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if o.Xwarp, err = os.Executable(); err != nil {
			return err
		}
		o.Xwarpd = filepath.Join(filepath.Dir(o.Xwarp), "xwarpd")
		end, err := process.Prioritise()
		if err != nil {
			return err
		}
		defer end()
		line := newStatus(cmd.ErrOrStderr())
		o.Progress = func(f *verbs.Figure, w verbs.Way, round int) {
			line.show("%s over %s, round %d of %d", f.Title, w, round+1, o.Rounds)
		}
		tables, err := verbs.Run(cmd.Context(), o)
		line.end()
		if err != nil {
			return err
		}
		if asJSON {
			return plain.WriteJSON(cmd.OutOrStdout(), tables)
		}
		return verbs.WriteMarkdown(cmd.OutOrStdout(), tables)
	}
	return c
}
