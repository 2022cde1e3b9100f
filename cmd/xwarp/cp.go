package main

import (
	"context"
	"errors"
	"fmt"
	"net"
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

// cpResult is the output of cp --json; the doc tags document its keys.
type cpResult struct {
	document
	OK     bool   `json:"ok" doc:"every file is there"`
	Error  string `json:"error,omitempty" doc:"why not; absent when ok"`
	Remote string `json:"remote" doc:"address and port of the server"`
	onTransport
	Files     int      `json:"files" doc:"copied"`
	Unchanged int      `json:"unchanged" doc:"files that were there already"`
	Failed    int      `json:"failed" doc:"files that could not be copied; see notes"`
	LeftOut   int      `json:"left_out" doc:"symbolic links, devices, sockets and pipes, which are not copied; see notes"`
	Bytes     int64    `json:"bytes" doc:"bytes sent or received"`
	Kept      int64    `json:"kept" doc:"bytes of copied files that were there from an earlier try"`
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
xwarpd with serve = "directory".

An argument is remote when it has a slash behind its first name, and no file here has that first name: HOST/PATH,
HOST:PORT/PATH or [IPv6]:PORT/PATH. PATH is relative to the exported directory. Write ./NAME/PATH for a local file. If the
destination is a directory that exists, files keep their names in it. Otherwise the source gets the name of the destination.

cp keeps the names, permissions and times of change of files and directories, and holes of 64 KiB and more. It does not copy
owners, extended attributes and access control lists. Set-user-ID, set-group-ID and sticky bits are not copied, and each
hard link becomes a file of its own: cp says so. Symbolic links, devices, sockets and pipes are left out: cp names them, and
its exit status is 1.

Bytes go by RDMA Write or RDMA Read between buffers of both ends, over several connections at a time. Files of up to 64 KiB
go together. A file appears, or is replaced, after all of it has arrived and was compared by XXH64.
A file of the same length and time is not copied again; with --checksum, a file of the same SHA-256. When a copy is
interrupted, repeat the command: it continues where the copy ended. All files are on the disk when cp ends.`,
		Example: `  sudo xwarp cp disk.img notes.txt 192.0.2.2/
  sudo xwarp cp -r --connections 4 photos server.example:9000/backup
  sudo xwarp cp -r 192.0.2.2/backup/photos .`,
		Args: cobra.ArbitraryArgs,
	}
	c.registerOther(cmd)
	f := cmd.Flags()
	f.BoolVarP(&cfg.Recursive, "recursive", "r", false, "copy directories and everything in them")
	f.BoolVar(&cfg.Checksum, "checksum", false,
		"compare files by SHA-256, not by length and time")
	f.IntVar(&cfg.Connections, "connections", 4, "number of connections that copy at the same time")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		sources, dst, up, err := c.direct(args)
		if err != nil {
			return err
		}
		if cfg.Connections < 1 || cfg.Connections > maxConnections {
			return usagef("--connections %d is not in 1 to %d", cfg.Connections, maxConnections)
		}
		if err := c.validate(); err != nil {
			return err
		}
		res := cpResult{document: document{1, "cp"}, Remote: c.server, Notes: []string{}}
		err = explainHost(c.copy(cmd, g, &res, cfg, sources, dst, up))
		res.OK = err == nil
		if *c.json {
			if err != nil {
				res.Error = withoutRepeats(err.Error())
			}
			return errors.Join(err, printJSON(cmd, res))
		}
		if res.Files+res.Unchanged+res.Failed+res.LeftOut == 0 && err != nil {
			return err
		}
		plain.Fprintf(cmd.ErrOrStderr(),
			"%s copied, %d unchanged, %d failed, %d left out: %d bytes %s, %d kept, "+
				"in %.3f s: %.0f MiB/s\n",
			count(res.Files, "file"), res.Unchanged, res.Failed, res.LeftOut, res.Bytes,
			map[bool]string{true: "sent", false: "received"}[up], res.Kept, res.Seconds,
			float64(res.Bytes)/(1<<20)/res.Seconds)
		return err
	}
	return cmd
}

func (c *clientFlags) copy(cmd *cobra.Command, g *global, res *cpResult, cfg cp.Config,
	sources []string, dst string, up bool) error {
	return c.reach(cmd, g, func(ctx context.Context, d verbs.Device, remote netip.AddrPort) error {
		res.Remote, res.onTransport = remote.String(), transportOf(d)
		bar := newBar(cmd.ErrOrStderr())
		defer bar.clear()
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
			text = withoutRepeats(text)
			res.Notes = append(res.Notes, text)
			bar.clear()
			say(cmd, "%s", text)
		}
		run := cp.Down
		if up {
			run = cp.Up
		}
		begin := time.Now()
		r, err := run(ctx, cfg, sources, dst)
		res.Files, res.Unchanged = r.Files, r.Unchanged
		res.Failed, res.LeftOut = r.Failed, r.LeftOut
		res.Bytes, res.Kept, res.Seconds = r.Bytes, r.Kept, time.Since(begin).Seconds()
		return err
	})
}

// explainHost adds to the error for an unknown host name how to write a local path.
func explainHost(err error) error {
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) {
		return fmt.Errorf("%q was taken for a host, because there is no such file here: %w (a path here: ./%s/...)",
			dns.Name, err, dns.Name)
	}
	return err
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
		if bare, scp := strings.CutSuffix(host, ":"); scp {
			return nil, "", false, usagef("%s: write it without the colon: %s/%s", a, bare, name)
		}
		c.server = host
		paths = append(paths, name)
		remotes++
		up = last
	}
	switch n := len(args); {
	case remotes == 0:
		return nil, "", false, usagef("no argument is remote: write the server's side as "+
			"HOST/PATH, for example 192.0.2.2/%s", path.Base(args[0]))
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
