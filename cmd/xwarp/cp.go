package main

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"xwarp/cmd/xwarp/cp"
	"xwarp/engine/plain"
	"xwarp/engine/transfer"
	"xwarp/engine/verbs"
)

// cpResult is what cp --json prints; the doc tags document its keys.
type cpResult struct {
	document
	OK     bool   `json:"ok" doc:"every file is there"`
	Error  string `json:"error,omitempty" doc:"why not; absent when ok"`
	Remote string `json:"remote" doc:"address and port of the server"`
	onTransport
	Files     int      `json:"files" doc:"copied"`
	Unchanged int      `json:"unchanged" doc:"files that were there already"`
	Failed    int      `json:"failed" doc:"files that could not be copied; see notes"`
	Octets    int64    `json:"octets" doc:"sent"`
	Kept      int64    `json:"kept" doc:"octets of copied files that were there from an earlier try"`
	Seconds   float64  `json:"seconds" doc:"all together"`
	Notes     []string `json:"notes" doc:"what was left out or failed, and why"`
}

// maxConnections bounds --connections: a server has places for others too.
const maxConnections = 16

func newCp(g *global) *cobra.Command {
	var c clientFlags
	var cfg cp.Config
	cmd := &cobra.Command{
		Use:   "cp FILE... HOST[:PORT]/PATH | cp HOST[:PORT]/PATH... FILE",
		Short: "Copy files and directories to or from a directory of xwarp serve",
		Long: `cp copies files, and with -r directories, to or from the directory that an xwarp serve --dir exports, or an export of
xwarpd with serve = "directory". PATH is a path in that directory. Names, permissions and times of change are kept;
links, devices and pipes are left out.

Whatever has a / behind its first name, which is none of a file here, is remote: HOST, HOST:PORT or [IPv6]:PORT in front
of it. Into a directory that is there files go by their names; else the one source gets the name.

Octets go from the page cache to the wire by RDMA Write, or from the wire to it by RDMA Read, over several connections
at a time. A file appears, or is replaced, when all of it has arrived and its SHA-256 was compared. A file of the same
length and time is taken to be there already; with --checksum one of the same SHA-256. What is cut off is gone on with
when the same copy is begun again.`,
		Example: `  sudo xwarp cp disk.img notes.txt 192.0.2.2/
  sudo xwarp cp -r --connections 4 photos server.example:9000/backup
  sudo xwarp cp -r 192.0.2.2/backup/photos .`,
		Args: cobra.ArbitraryArgs,
	}
	c.registerOther(cmd)
	f := cmd.Flags()
	f.BoolVarP(&cfg.Recursive, "recursive", "r", false, "copy directories with all that they have")
	f.BoolVar(&cfg.Checksum, "checksum", false,
		"compare SHA-256 instead of length and time to know what is there already")
	f.IntVar(&cfg.Connections, "connections", 2, "how many connections copy at a time")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		sources, dst, up, err := c.direct(args)
		if err != nil {
			return err
		}
		if cfg.Connections < 1 || cfg.Connections > maxConnections {
			return usagef("--connections %d is not in 1 to %d", cfg.Connections, maxConnections)
		}
		if err := c.check(); err != nil {
			return err
		}
		res := cpResult{document: document{1, "cp"}, Remote: c.server, Notes: []string{}}
		err = c.copy(cmd, g, &res, cfg, sources, dst, up)
		res.OK = err == nil
		if *c.json {
			if err != nil {
				res.Error = err.Error()
			}
			return errors.Join(err, printJSON(cmd, res))
		}
		if res.Files+res.Unchanged+res.Failed == 0 && err != nil {
			return err
		}
		plain.Fprintf(cmd.ErrOrStderr(),
			"%d files copied, %d unchanged, %d failed: %d octets sent, %d kept, in %.3f s: %.0f MiB/s\n",
			res.Files, res.Unchanged, res.Failed, res.Octets, res.Kept, res.Seconds,
			float64(res.Octets)/(1<<20)/res.Seconds)
		return err
	}
	return cmd
}

func (c *clientFlags) copy(cmd *cobra.Command, g *global, res *cpResult, cfg cp.Config,
	sources []string, dst string, up bool) error {
	return c.reach(cmd, g, func(ctx context.Context, d verbs.Device, remote netip.AddrPort) error {
		res.Remote, res.onTransport = remote.String(), transportOf(d)
		bar := newBar(cmd.ErrOrStderr())
		defer bar.end()
		cfg.Dial = func(ctx context.Context) (*transfer.Client, error) {
			return c.dial(ctx, d, remote)
		}
		var mu sync.Mutex
		cfg.Progress = func(done, total int64) {
			mu.Lock()
			defer mu.Unlock()
			bar.show(cmd.Name(), done, total)
		}
		cfg.Note = func(text string) {
			mu.Lock()
			defer mu.Unlock()
			res.Notes = append(res.Notes, text)
			bar.end()
			say(cmd, "%s", text)
		}
		run := cp.Down
		if up {
			run = cp.Up
		}
		begin := time.Now()
		r, err := run(ctx, cfg, sources, dst)
		res.Files, res.Unchanged, res.Failed = r.Files, r.Unchanged, r.Failed
		res.Octets, res.Kept, res.Seconds = r.Octets, r.Kept, time.Since(begin).Seconds()
		return err
	})
}

// direct finds out from where to where, and takes the server from it.
func (c *clientFlags) direct(args []string) (sources []string, dst string, up bool, err error) {
	if len(args) < 2 {
		return nil, "", false, usagef("cp takes what to copy and where to")
	}
	var paths []string
	remotes := 0
	for i, a := range args {
		host, name, remote := splitRemote(a)
		last := i == len(args)-1
		switch {
		case !remote:
			paths = append(paths, a)
			continue
		case c.server != "" && host != c.server:
			return nil, "", false, usagef("%s and %s are two servers, and cp knows one", c.server,
				host)
		}
		c.server = host
		paths = append(paths, name)
		remotes++
		up = last
	}
	switch n := len(args); {
	case remotes == 0:
		return nil, "", false, usagef("neither %s nor a source is remote: write HOST/PATH (there is no host %s)",
			args[n-1], args[n-1])
	case up && remotes > 1, !up && remotes < n-1:
		return nil, "", false, usagef("either all sources are remote, or the destination is")
	}
	return paths[:len(paths)-1], paths[len(paths)-1], up, nil
}

// splitRemote takes HOST[:PORT]/PATH apart. Whatever begins with a dot or a slash, or with the name of a
// file that is here, is local.
func splitRemote(arg string) (host, name string, remote bool) {
	host, name, slash := strings.Cut(arg, "/")
	if !slash || host == "" || host[0] == '.' || host[0] == '~' {
		return "", "", false
	}
	if _, err := os.Lstat(host); err == nil {
		return "", "", false
	}
	return host, path.Clean("./" + name), true
}
