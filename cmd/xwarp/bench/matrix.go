package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"xwarp/bench/endpoint"
	"xwarp/bench/matrix"
)

func newMatrix(version string) *cobra.Command {
	var out, against, only string
	var rounds int
	var full bool
	c := &cobra.Command{
		Use:   "matrix",
		Short: "Run the standard measurements on this machine",
		Long: `matrix runs every case of the standard matrix between pairs of network namespaces joined by veth, in interleaved rounds.
It writes results.json, results.md and plots to a subdirectory of --out named after the CPU model. If that directory has
earlier results, or with --against, it compares with them. The exit status is 1 if a ratio that has a target
is worse than in the earlier results. Other ratios do not affect it. matrix needs root and two idle CPUs.`,
		Example: `  sudo xwarp bench matrix --out bench/results
  sudo xwarp bench matrix --only write-mtu,latency --rounds 9 --out /tmp/try`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.StringVar(&out, "out", "", "write the results to a subdirectory of this `DIRECTORY`")
	f.StringVar(&against, "against", "", "compare with this results.json (default: the one "+
		"in --out)")
	f.StringVar(&only, "only", "", "run only cases whose names begin with one of these "+
		"comma-separated prefixes")
	f.BoolVar(&full, "full", false, "also run the additional cases (--only can select them "+
		"without this flag)")
	f.IntVar(&rounds, "rounds", matrix.DefaultRounds, "rounds of each case")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		run, end, err := runner(version)
		if err != nil {
			return err
		}
		defer end()
		all := matrix.Standard()
		if only != "" || full {
			all = append(all, matrix.Extra()...)
		}
		cases := choose(all, only)
		if len(cases) == 0 {
			return fmt.Errorf("no case begins with %q; the cases are: %s", only,
				strings.Join(names(all), ", "))
		}
		old, err := earlier(cmd, run.Env, out, against)
		if err != nil {
			return err
		}
		xwarpd, err := daemonPath()
		if err != nil {
			return err
		}
		line := newStatus(cmd.ErrOrStderr())
		start := time.Now()
		res, err := matrix.Run(cmd.Context(), matrix.Config{
			Rounds: rounds, Cases: cases, Runner: run, Command: commandLine(cmd),
			Xwarpd: xwarpd,
			Progress: func(what string, i, n int) {
				left := time.Duration(float64(time.Since(start)) / float64(i) * float64(n-i))
				line.show("%d of %d, %v left: %s", i, n, left.Round(time.Second), what)
			},
		})
		line.clear()
		if err != nil {
			return err
		}
		if err := res.WriteMarkdown(cmd.OutOrStdout()); err != nil {
			return err
		}
		if out != "" {
			if err := res.Save(out); err != nil {
				return err
			}
		}
		if old != nil {
			return matrix.Check(res, old)
		}
		return nil
	}
	return c
}

// earlier returns the results to compare with: those in against, or those in out for this CPU model, or nil if there
// are none.
func earlier(cmd *cobra.Command, env endpoint.Env, out, against string) (*matrix.Results, error) {
	now, name := &matrix.Results{Env: env}, against
	if name == "" {
		if out == "" {
			return nil, nil
		}
		name = filepath.Join(now.ModelDir(out), matrix.FileJSON)
	}
	old, err := matrix.Load(name)
	if against == "" && errors.Is(err, fs.ErrNotExist) {
		cmd.PrintErrf("no earlier results to compare with: %s does not exist\n", name)
		return nil, nil
	}
	if err == nil {
		err = now.SameProcessor(old)
	}
	return old, err
}

// commandLine returns the command with the flags that change the measurement.
func commandLine(cmd *cobra.Command) string {
	s := cmd.CommandPath()
	for _, name := range []string{"full", "only", "rounds"} {
		if f := cmd.Flag(name); f.Changed {
			s += " --" + name
			if f.Value.Type() != "bool" {
				s += " " + f.Value.String()
			}
		}
	}
	return s
}

func choose(all []matrix.Case, only string) []matrix.Case {
	return slices.DeleteFunc(slices.Clone(all), func(c matrix.Case) bool {
		return !slices.ContainsFunc(strings.Split(only, ","), func(p string) bool {
			return strings.HasPrefix(c.Name, p)
		})
	})
}

func names(all []matrix.Case) (n []string) {
	for _, c := range all {
		n = append(n, c.Name)
	}
	return n
}
