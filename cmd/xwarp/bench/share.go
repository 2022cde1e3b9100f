package bench

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"xwarp/bench/process"
	"xwarp/engine/plain"
)

func newShare() *cobra.Command {
	var cfg ShareConfig
	var mbit float64
	var asJSON bool
	c := &cobra.Command{
		Use:   "share",
		Short: "Measure fairness between xwarp and kernel TCP flows on one path",
		Long: `share creates two network namespaces with a relay between them. It runs byte streams of xwarp TCP and of kernel TCP
through the relay at the same time, and prints the ratio of their throughputs and Jain's fairness index. With --rate the
streams compete for one bottleneck queue. Without --rate they do not compete: each has the same loss and round-trip
time, so the ratio compares loss recovery. share needs root.`,
		Example: `  sudo xwarp bench share --ours 8 --kernel 8 --rate 100 --rtt 20ms
  sudo xwarp bench share --ours 16 --kernel 16 --loss 0.01 --rtt 20ms --rounds 5
  sudo xwarp bench share --ours 64 --rate 200 --rtt 10ms`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.IntVar(&cfg.Ours, "ours", 0, "number of xwarp TCP flows")
	f.IntVar(&cfg.Kernel, "kernel", 0,
		"number of kernel TCP flows (default: 8 of each kind if neither is given)")
	f.Float64Var(&mbit, "rate", 0, "bottleneck rate in `Mbit/s` (default: none)")
	f.IntVar(&cfg.Queue, "queue", 0, "queue of the bottleneck in `bytes` (default: one "+
		"round trip at --rate)")
	f.IntVar(&cfg.MarkAbove, "mark-above", 0, "queue length in `bytes` above which ECN-capable "+
		"packets are marked (default: never)")
	f.DurationVar(&cfg.RTT, "rtt", 0, "round-trip time of the empty path")
	f.Float64Var(&cfg.Loss, "loss", 0,
		"`fraction` of packets towards the receivers to drop")
	f.StringVar(&cfg.Congestion, "congestion", "cubic",
		"congestion control of kernel sockets")
	f.IntVar(&cfg.MTU, "mtu", 1500, "MTU")
	f.DurationVar(&cfg.Warmup, "warmup", 0, "warm-up time (default: 3s)")
	f.DurationVar(&cfg.Duration, "duration", 0, "measurement time (default: 10s)")
	f.IntVar(&cfg.Rounds, "rounds", 1, "rounds, each with new connections and another seed")
	f.Uint64Var(&cfg.Seed, "seed", 1, "seed of the random losses")
	f.BoolVarP(&asJSON, "json", "j", false, "print JSON")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg.Rate = int64(mbit * 1e6)
		end, err := process.Prioritise()
		if err != nil {
			return err
		}
		defer end()
		line := newStatus(cmd.ErrOrStderr())
		cfg.Progress = func(i, n int) { line.show("round %d of %d", i, n) }
		res, err := shareLink(cmd.Context(), cfg)
		line.clear()
		if err != nil {
			return err
		}
		if asJSON {
			return plain.WriteJSON(cmd.OutOrStdout(), res)
		}
		return writeShares(cmd.OutOrStdout(), res)
	}
	return c
}

func writeShares(w io.Writer, res *ShareResult) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "round\txwarp Mbit/s\tkernel %s Mbit/s\tratio of means\tJain xwarp\tJain "+
		"kernel\tJain all\tlink used %%\tlost\tdropped\t\n", res.Congestion)
	sum := func(v []float64) (s float64) {
		for _, x := range v {
			s += x / 1e6
		}
		return s
	}
	row := func(name, a, b string, r *ShareRound, counts string) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%.3f\t%.4f\t%.4f\t%.4f\t%.1f\t%s\t\n", name, a, b, r.Ratio,
			r.JainOurs, r.JainKernel, r.Jain, 100*r.Used, counts)
	}
	for i := range res.Rounds {
		r := &res.Rounds[i]
		row(fmt.Sprint(i+1), fmt.Sprintf("%.2f", sum(r.Ours)), fmt.Sprintf("%.2f", sum(r.Kernel)),
			r, fmt.Sprintf("%d\t%d", r.Lost, r.Dropped))
	}
	if len(res.Rounds) > 1 {
		row("median", "", "", &res.Median, "\t")
	}
	return t.Flush()
}
