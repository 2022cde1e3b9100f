package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"xwarp/bench/endpoint"
	"xwarp/engine/plain"
)

// newCompare returns the command that compares this binary, or another, with an older one.
func newCompare() *cobra.Command {
	var o CompareOptions
	var asJSON bool
	names := make([]string, len(Workloads))
	for i, w := range Workloads {
		names[i] = w.Name
	}
	c := &cobra.Command{
		Use:   "compare OLD",
		Short: "Compare the performance of two binaries in alternating rounds",
		Long: `compare runs "xwarp bench local" in rounds: once with the new binary (this one, or --new), once with OLD. It prints the
ratio of new to old for each round; above 1, the new binary is better. A workload counts as slower if two values are
below 0.97: the median of the ratios, and the best new round divided by the best old round. Such a workload is measured
a second time. If it is slower again, the exit status is 1.`,
		Example: "  sudo xwarp bench compare /usr/bin/xwarp --only write-1500,ping-pong",
		Args:    cobra.ExactArgs(1),
	}
	f := c.Flags()
	f.StringVar(&o.New, "new", "", "the new `BINARY` (default: this one)")
	f.IntVar(&o.Rounds, "rounds", 9, "rounds of each workload")
	f.StringVar(&o.Duration, "duration", "1s", "duration of one measurement")
	f.StringSliceVar(&o.Only, "only", nil, "run only these workloads: "+strings.Join(names, ", "))
	f.BoolVarP(&asJSON, "json", "j", false, "print JSON, with the figures of each round")
	c.RunE = func(cmd *cobra.Command, args []string) (err error) {
		o.Old = args[0]
		if o.New == "" {
			if o.New, err = os.Executable(); err != nil {
				return err
			}
		}
		line := newStatus(cmd.ErrOrStderr())
		o.Progress = func(w *Workload, round int) {
			line.show("%s, round %d of %d", w.Name, round+1, o.Rounds)
		}
		rows, err := compareBinaries(cmd.Context(), o)
		line.clear()
		if asJSON {
			rows = append([]ComparedRow{}, rows...) // JSON: [], not null
			err = errors.Join(err, plain.WriteJSON(cmd.OutOrStdout(), rows))
		} else {
			writeRows(cmd.OutOrStdout(), rows)
		}
		return err
	}
	return c
}

func writeRows(w io.Writer, rows []ComparedRow) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "workload\tmedian\tspread\tbest to best\t")
	for _, r := range rows {
		verdict := ""
		if r.Slower {
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

// Workload is one measurement: a name, and flags of `xwarp bench local`.
type Workload struct {
	Name, Flags string
	Latency     bool // the figure is the median latency, not the message rate
}

// Workloads are the measurements of a comparison.
var Workloads = []Workload{
	{Name: "write-1500", Flags: "--size 1048576 --depth 8 --no-markers --tx xdp"},
	{Name: "write-1500-markers", Flags: "--size 1048576 --depth 8 --tx xdp"},
	{Name: "write-1500-gso", Flags: "--size 1048576 --depth 8 --no-markers --tx packet-gso"},
	{Name: "write-1500-auto", Flags: "--size 1048576 --depth 8 --no-markers --tx auto --offloads"},
	{Name: "write-9000", Flags: "--size 1048576 --depth 8 --no-markers --mtu 9000 --tx xdp"},
	{Name: "read-1500", Flags: "--size 1048576 --depth 8 --verb read --tx xdp"},
	{Name: "send-1500", Flags: "--size 1048576 --depth 8 --verb send --tx xdp"},
	{Name: "write-64", Flags: "--size 64 --depth 4096 --cq-mod 64 --tx xdp"},
	{Name: "write-64-one", Flags: "--size 64 --depth 1 --tx xdp"},
	{Name: "write-4096-one", Flags: "--size 4096 --depth 1 --tx xdp"},
	{Name: "ping-pong", Flags: "--size 64 --mode lat --tx xdp", Latency: true},
	{Name: "crowd-256", Flags: "--size 65536 --depth 2 --qps 256 --tx xdp"},
	{Name: "kernel-1500", Flags: "--peer kernel --size 1048576 --depth 8 --offloads"},
	{Name: "kernel-1500-bare",
		Flags: "--peer kernel --size 1048576 --depth 8 --offloads --no-markers"},
	{Name: "kernel-9000-bare",
		Flags: "--peer kernel --size 1048576 --depth 8 --offloads --no-markers --mtu 9000"},
	{Name: "kernel-crowd-4", Flags: "--peer kernel --size 65536 --depth 2 --qps 4 --offloads"},
	{Name: "kernel-crowd-16", Flags: "--peer kernel --size 65536 --depth 2 --qps 16 --offloads"},
}

// CompareOptions are the settings of a comparison.
type CompareOptions struct {
	Old, New string   // paths of the binaries
	Rounds   int      // rounds of each workload
	Only     []string // names of workloads; none: all
	Duration string   // duration of one measurement, in Go syntax
	Progress func(w *Workload, round int)
}

// ComparedRow is the result of one workload. Ratios are above 1 where the new binary is better.
type ComparedRow struct {
	Name   string    `json:"name" doc:"workload"`
	Unit   string    `json:"unit" doc:"messages/s or us"`
	Old    []float64 `json:"old" doc:"figures of the old binary, one per round"`
	New    []float64 `json:"new" doc:"figures of the new binary, one per round"`
	Median float64   `json:"median" doc:"median ratio of the rounds; above 1 the new binary is better"`
	Low    float64   `json:"low" doc:"smallest ratio"`
	High   float64   `json:"high" doc:"largest ratio"`
	Best   float64   `json:"best" doc:"ratio of the best figures of both binaries"`
	Slower bool      `json:"fallen" doc:"median and best are below the tolerance, in two sets of rounds"`
	Error  string    `json:"error,omitempty" doc:"why the measurement failed"`
}

// Tolerance is the fraction by which the median ratio and the best ratio may be below 1.
const Tolerance = 0.03

// ErrSlower is wrapped by the error of a workload that is slower than with the old binary.
var ErrSlower = errors.New("slower than the old binary")

// compareBinaries measures all workloads, or those of o.Only. It returns rows even if it fails. A workload that cannot
// be measured has its error in its row. It is a failure unless the old binary cannot do it.
func compareBinaries(ctx context.Context, o CompareOptions) (rows []ComparedRow, err error) {
	for _, name := range o.Only {
		if !slices.ContainsFunc(Workloads, func(w Workload) bool { return w.Name == name }) {
			return nil, fmt.Errorf("unknown workload %q", name)
		}
	}
	var errs []error
	for i := range Workloads {
		w := &Workloads[i]
		if len(o.Only) > 0 && !slices.Contains(o.Only, w.Name) {
			continue
		}
		row, err := o.measureRounds(ctx, w)
		errs = append(errs, err)
		if row.Slower { // a second set of rounds must agree
			again, err := o.measureRounds(ctx, w)
			errs = append(errs, err)
			row.Old, row.New = append(row.Old, again.Old...), append(row.New, again.New...)
			row.judge(w)
			row.Slower = row.Slower && again.Slower
		}
		if ctx.Err() != nil {
			return rows, context.Cause(ctx)
		}
		if row.Slower {
			errs = append(errs, fmt.Errorf("%w: %s: %.3f (best against best %.3f)", ErrSlower,
				w.Name, row.Median, row.Best))
		}
		rows = append(rows, row)
	}
	return rows, errors.Join(errs...)
}

// measureRounds measures one workload in o.Rounds rounds. The two binaries alternate in going first. If one fails, its
// error is in the row, and that of the new binary is also returned.
func (o *CompareOptions) measureRounds(ctx context.Context, w *Workload) (row ComparedRow,
	err error) {
	row = ComparedRow{Name: w.Name, Unit: "messages/s"}
	if w.Latency {
		row.Unit = "us"
	}
	for round := range o.Rounds {
		if o.Progress != nil {
			o.Progress(w, round)
		}
		figures := map[string]float64{}
		order := []string{o.Old, o.New}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, binary := range order {
			x, err := runBenchLocal(ctx, binary, w, o.Duration)
			if err != nil {
				if row.Error = err.Error(); binary == o.Old {
					return row, nil
				}
				return row, fmt.Errorf("%s: not measured: %w", w.Name, err)
			}
			figures[binary] = x
		}
		row.Old, row.New = append(row.Old, figures[o.Old]), append(row.New, figures[o.New])
	}
	row.judge(w)
	return row, nil
}

// judge computes the ratios from the figures, and whether the workload has fallen.
func (r *ComparedRow) judge(w *Workload) {
	ratios := make([]float64, len(r.Old))
	better := slices.Max[[]float64]
	ratio := func(old, now float64) float64 { return now / old }
	if w.Latency {
		better = slices.Min[[]float64]
		ratio = func(old, now float64) float64 { return old / now }
	}
	for i := range ratios {
		ratios[i] = ratio(r.Old[i], r.New[i])
	}
	r.Median, r.Low, r.High = endpoint.Spread(ratios)
	r.Best = ratio(better(r.Old), better(r.New))
	r.Slower = r.Median < 1-Tolerance && r.Best < 1-Tolerance
}

var medianPattern = regexp.MustCompile(`\bp50 ([0-9.]+)`)

// runBenchLocal runs bench local of a binary once. It returns the figure of the workload: messages per second, or the
// median latency in microseconds.
func runBenchLocal(ctx context.Context, binary string, w *Workload, duration string) (float64,
	error) {
	args := append([]string{"bench", "local", "--duration", duration}, strings.Fields(w.Flags)...)
	cmd := exec.CommandContext(ctx, binary, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		return 0, fmt.Errorf("%s %s: %w: %s", binary, strings.Join(args, " "), err,
			lines[len(lines)-1])
	}
	text, results, _ := strings.Cut(string(out), "\n")
	var r struct {
		Client struct{ Messages, Seconds float64 }
	}
	if err := json.Unmarshal([]byte(results), &r); err != nil {
		return 0, fmt.Errorf("%s: unexpected output of bench local: %w", binary, err)
	}
	x := r.Client.Messages / r.Client.Seconds
	if m := medianPattern.FindStringSubmatch(text); w.Latency && m != nil {
		if x, err = strconv.ParseFloat(m[1], 64); err != nil {
			return 0, err
		}
	} else if w.Latency {
		return 0, fmt.Errorf("%s: no latency in %q", binary, text)
	}
	if !(x > 0) {
		return 0, fmt.Errorf("%s transferred nothing: %s", binary, text)
	}
	return x, nil
}
