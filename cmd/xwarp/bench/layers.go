package bench

import (
	"fmt"

	"github.com/spf13/cobra"

	"xwarp/bench/endpoint"
	"xwarp/bench/layers"
	"xwarp/engine/plain"
)

func newLayers() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "layers",
		Short: "Measure the cost of a segment in each layer: nanoseconds and allocations",
		Args:  cobra.NoArgs,
	}
	c.Flags().BoolVarP(&asJSON, "json", "j", false, "print JSON instead of tables")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		run, end, err := runner("")
		if err != nil {
			return err
		}
		defer end()
		endpoint.Quiet(memoryLimit)
		var all []*layers.Budget
		for _, k := range []struct {
			mtu     int
			markers bool
		}{{1500, false}, {1500, true}, {9000, false}, {9000, true}} {
			var b *layers.Budget
			err := endpoint.OnProcessor(run.CPUs[0], func() (err error) {
				b, err = layers.Measure(k.mtu, k.markers)
				return err
			})
			if err != nil {
				return err
			}
			all = append(all, b)
			if asJSON {
				continue
			}
			if err := b.WriteMarkdown(cmd.OutOrStdout()); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout())
		}
		if asJSON {
			return plain.WriteJSON(cmd.OutOrStdout(), all)
		}
		return nil
	}
	return c
}
