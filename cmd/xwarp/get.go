package main

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"xwarp/cmd/program"
	"xwarp/engine/transfer"
)

func newGet(g *global) *cobra.Command {
	var c clientFlags
	var length size
	var output string
	cmd := &cobra.Command{
		Use:   "get",
		Short: "Read the region of xwarp serve into a file or to stdout",
		Long: `get reads the content of the region of an xwarp serve, by RDMA Read, and compares its SHA-256.

With -o the file appears, or is replaced, only when everything is right. On stdout the bytes come as they arrive, and
only the exit status says whether they are right. To a terminal they go with -o - only.`,
		Example: `  sudo xwarp get --from 192.0.2.2 -o disk.img
  sudo xwarp get --from 192.0.2.2:9000 | tar x
  xwarp get --from server.example --length 4096 --transport kernel | xxd | head`,
		Args: noArgs,
	}
	c.addFlags(cmd, "from", "the server: host, host:port or [IPv6]:port")
	cmd.Flags().StringVarP(&output, "output", "o", "", "write to this `FILE` instead of stdout")
	cmd.Flags().Var(&length, "length", "bytes from the region's start (default: its content)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		toStdout := output == "" || output == "-"
		switch {
		case toStdout && *c.json:
			return usagef("--json and the bytes cannot both go to stdout: name a file with -o")
		case output == "" && program.IsTerminal(cmd.OutOrStdout()):
			return usagef("the bytes are not for a terminal: name a file with -o, or pipe " +
				"them (-o - has them there all the same)")
		}
		return c.runTransfer(cmd, g, cmp.Or(output, "-"),
			func(ctx context.Context, t *transfer.Client) (
				transfer.Summary, error) {
				if toStdout {
					return t.Get(ctx, cmd.OutOrStdout(), int64(length))
				}
				return getFile(ctx, t, output, int64(length))
			})
	}
	return cmd
}

func getFile(ctx context.Context, t *transfer.Client, name string, length int64) (
	s transfer.Summary, err error) {
	out, err := transfer.CreateOutput(name)
	if err != nil {
		return s, err
	}
	if s, err = t.Get(ctx, out, length); err != nil {
		out.Abort()
		return s, err
	}
	return s, out.Commit()
}
