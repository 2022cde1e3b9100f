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

// cpResult is the output of cp --json. The doc tags document its keys.
type cpResult struct {
	document
	OK     bool   `json:"ok" doc:"all files were copied or unchanged"`
	Error  string `json:"error,omitempty" doc:"error; absent if ok"`
	Remote string `json:"remote" doc:"server address and port"`
	onTransport
	Files     int      `json:"files" doc:"files copied"`
	Unchanged int      `json:"unchanged" doc:"files already present and unchanged"`
	Failed    int      `json:"failed" doc:"files that could not be copied (see notes)"`
	LeftOut   int      `json:"left_out" doc:"symbolic links, devices, sockets and pipes skipped (see notes)"`
	Bytes     int64    `json:"bytes" doc:"bytes sent or received"`
	Kept      int64    `json:"kept" doc:"bytes of copied files already present from an interrupted copy"`
	Seconds   float64  `json:"seconds" doc:"total duration"`
	Notes     []string `json:"notes" doc:"skipped and failed files, with the reason"`
}

// maxConnections limits --connections, so that one client does not use up a server's connections.
const maxConnections = 16

func newCp(g *global) *cobra.Command {
	var c clientFlags
	var cfg cp.Config
	cmd := &cobra.Command{
		Use:   "cp FILE... HOST[:PORT]/PATH | cp HOST[:PORT]/PATH... FILE",
		Short: "Copy files and directories to or from a directory of xwarp serve",
		Long: `cp copies files, and with -r directories, to or from a directory exported by xwarp serve --dir or by an xwarpd export
with serve = "directory".

Remote arguments are HOST/PATH, HOST:PORT/PATH or [IPv6]:PORT/PATH. PATH is relative to the exported directory. An
argument is local if it has no slash, begins with ".", "/" or "~", or if its first component exists here; write
./NAME/PATH to force a local path. If the destination is an existing directory, files are copied into it under their own
names; otherwise the source is copied to the name of the destination.

cp preserves names, permissions, modification times and holes of 64 KiB or more. It does not copy owners, extended
attributes or ACLs. It drops setuid, setgid and sticky bits and copies hard links as separate files, with a notice. It
skips symbolic links, devices, sockets and pipes, lists them, and exits with status 1.

Data moves by RDMA Write or RDMA Read over several connections; files of up to 64 KiB are batched. A file appears under
its name once it is complete and its XXH64 matches. Files with the same size and modification time are not copied again;
with --checksum, files with the same SHA-256. To resume an interrupted copy, repeat the command. Files are synced to
disk before cp exits.`,
		Example: `  sudo xwarp cp disk.img notes.txt 192.0.2.2/
  sudo xwarp cp -r --connections 4 photos server.example:9000/backup
  sudo xwarp cp -r 192.0.2.2/backup/photos .`,
		Args: cobra.ArbitraryArgs,
	}
	c.registerOther(cmd)
	f := cmd.Flags()
	f.BoolVarP(&cfg.Recursive, "recursive", "r", false, "copy directories recursively")
	f.BoolVar(&cfg.Checksum, "checksum", false,
		"compare files by SHA-256 instead of size and modification time")
	f.IntVar(&cfg.Connections, "connections", 4,
		fmt.Sprintf("number of parallel connections, 1 to %d", maxConnections))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		sources, dst, up, err := c.direct(args)
		if err != nil {
			return err
		}
		if cfg.Connections < 1 || cfg.Connections > maxConnections {
			return usagef("--connections %d: need 1 to %d", cfg.Connections, maxConnections)
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
			"%s copied, %d unchanged, %d failed, %d skipped: %d bytes %s, %d resumed, "+
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

// explainHost adds a hint to the error of an unknown host: the argument may be a local path.
func explainHost(err error) error {
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) {
		return fmt.Errorf("host %q: %w (no such file here; for a local path write ./%s/...)",
			dns.Name, err, dns.Name)
	}
	return err
}

// direct parses the arguments into sources, destination and direction, and sets c.server.
func (c *clientFlags) direct(args []string) (sources []string, dst string, up bool, err error) {
	if len(args) < 2 {
		return nil, "", false, usagef("missing source or destination")
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
			return nil, "", false, usagef("more than one server: %s and %s", c.server,
				host)
		}
		if bare, scp := strings.CutSuffix(host, ":"); scp {
			return nil, "", false, usagef("%s: remove the colon after the host: %s/%s", a, bare,
				name)
		}
		c.server = host
		paths = append(paths, name)
		remotes++
		up = last
	}
	switch n := len(args); {
	case remotes == 0:
		return nil, "", false, usagef("no remote argument: write the remote path as "+
			"HOST/PATH, such as 192.0.2.2/%s", path.Base(args[0]))
	case up && remotes > 1, !up && remotes < n-1:
		return nil, "", false, usagef("all sources must be remote, or only the destination")
	}
	return paths[:len(paths)-1], paths[len(paths)-1], up, nil
}

// splitRemote splits HOST[:PORT]/PATH. An argument is local if it has no slash, begins with a dot, a slash or a tilde,
// or if its first component exists here.
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
