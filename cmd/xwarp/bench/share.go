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
		Use: "share",
		Short: "Let flows of the engine and of the kernel's TCP compete for one path: ratio of " +
			"shares, Jain's index",
		Long: `share makes two hosts with a relay between them on this machine, and lets byte streams of the engine's TCP and of the
kernel's, with its congestion control named, run through it at the same time. With --rate they share a bottleneck and
its queue; without, they only meet the same loss and round trip, and the ratio compares recovery from it. It needs root.`,
		Example: `  sudo xwarp bench share --ours 8 --kernel 8 --rate 100 --rtt 20ms
  sudo xwarp bench share --ours 16 --kernel 16 --loss 0.01 --rtt 20ms --rounds 5
  sudo xwarp bench share --ours 64 --rate 200 --rtt 10ms`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.IntVar(&cfg.Ours, "ours", 0, "flows of the engine")
	f.IntVar(&cfg.Kernel, "kernel", 0, "flows of the kernel's TCP (8 and 8 when neither is given)")
	f.Float64Var(&mbit, "rate", 0, "bottleneck in `Mbit/s`; 0 is none")
	f.IntVar(&cfg.Queue, "queue", 0, "`bytes` that wait for the bottleneck at most (default: "+
		"one round trip's)")
	f.IntVar(&cfg.MarkAbove, "mark-above", 0, "`bytes` in the queue above which ECN-capable "+
		"packets are marked")
	f.DurationVar(&cfg.RTT, "rtt", 0, "round trip of the empty path")
	f.Float64Var(&cfg.Loss, "loss", 0,
		"`fraction` of the packets towards the receivers that are lost")
	f.StringVar(&cfg.Congestion, "congestion", "cubic",
		"congestion control of the kernel's sockets")
	f.IntVar(&cfg.MTU, "mtu", 1500, "MTU")
	f.DurationVar(&cfg.Warmup, "warmup", 0, "not measured (default 3s)")
	f.DurationVar(&cfg.Duration, "duration", 0, "measured (default 10s)")
	f.IntVar(&cfg.Rounds, "rounds", 1, "rounds, with fresh connections and another seed each")
	f.Uint64Var(&cfg.Seed, "seed", 1, "what the relay's losses follow from")
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
	row := func(name, a, b string, r *ShareRound) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%.3f\t%.4f\t%.4f\t%.4f\t%.1f\t%d\t%d\t\n", name, a, b, r.Ratio,
			r.JainOurs, r.JainKernel, r.Jain, 100*r.Used, r.Lost, r.Dropped)
	}
	for i := range res.Rounds {
		r := &res.Rounds[i]
		row(fmt.Sprint(i+1), fmt.Sprintf("%.2f", sum(r.Ours)), fmt.Sprintf("%.2f", sum(r.Kernel)),
			r)
	}
	if len(res.Rounds) > 1 {
		row("median", "", "", &res.Median)
	}
	return t.Flush()
}
