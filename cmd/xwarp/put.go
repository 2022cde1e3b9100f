package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"xwarp/engine/transfer"
)

func newPut(g *global) *cobra.Command {
	var c clientFlags
	cmd := &cobra.Command{
		Use:   "put FILE|-",
		Short: "Write a file or stdin into the region of xwarp serve",
		Long: `put writes a file, or with - what comes on stdin, into the region of an xwarp serve, by RDMA Write. It becomes the
content of the region when all of it has arrived and its SHA-256 is right; a put that fails changes nothing there.`,
		Example: `  sudo xwarp put disk.img --to 192.0.2.2
  tar c dir | sudo xwarp put - --to [2001:db8::2]:9000 --interface eth0
  xwarp put notes.txt --to server.example --transport kernel --json`,
		Args: oneArg("the name of a file, or - for stdin,"),
	}
	c.addFlags(cmd, "to", "the server: host, host:port or [IPv6]:port")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in, length, err := openInput(cmd, args[0])
		if err != nil {
			return err
		}
		defer in.Close()
		return c.runTransfer(cmd, g, args[0], func(ctx context.Context, t *transfer.Client) (
			transfer.Summary, error) {
			return t.Put(ctx, in, length)
		})
	}
	return cmd
}

// openInput returns a file and its length; -1 when that is known at the end only, as of a pipe.
func openInput(cmd *cobra.Command, name string) (io.ReadCloser, int64, error) {
	if name == "-" {
		return io.NopCloser(cmd.InOrStdin()), -1, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err == nil && st.IsDir() {
		err = fmt.Errorf("%s is a directory: tar c %s | xwarp put - …", name, name)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	if !st.Mode().IsRegular() || st.Size() == 0 { // files of /proc say 0 and have something to read all the same
		return f, -1, nil
	}
	return f, st.Size(), nil
}
