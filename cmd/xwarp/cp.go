package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"xwarp/cmd/program"
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
	cp.Result
	Seconds float64  `json:"seconds" doc:"total duration"`
	Notes   []string `json:"notes" doc:"skipped and failed files, with the reason"`
}

// maxConnections limits --connections, so that one client does not use up a server's connections.
const maxConnections = 16

func newCp(g *global) *cobra.Command {
	c := clientFlags{what: "the remote argument"}
	var cfg cp.Config
	cmd := &cobra.Command{
		Use:   "cp FILE... HOST:[PORT]/PATH | cp HOST:[PORT]/PATH... FILE",
		Short: "Copy files and directories to or from a directory of xwarp serve",
		Long: `cp copies files, and with -r directories, to or from a directory exported by xwarp serve or by an xwarpd export with
serve = "directory".

As with scp and rsync, an argument with a colon before its first slash is remote: HOST:/PATH, HOST:PORT/PATH or
[IPv6]:/PATH. PATH is relative to the exported directory. Write ./NAME for a local file with a colon in its name. If the
destination is a directory, files are copied into it under their own names; otherwise the source is copied to the name of
the destination. A slash at the end makes the destination a directory, which is created. If two sources have the
same destination, cp copies only the first.

The source - is stdin, and the destination - is stdout. A file from stdin appears when stdin ends. Bytes for stdout are
written as they arrive, and only the exit status says whether they are the whole file.

cp preserves names, permissions, modification times and holes of 64 KiB or more. It does not copy owners, extended
attributes or ACLs. It drops setuid, setgid and sticky bits and copies hard links as separate files, with a notice. As scp
does, it copies the target of a symbolic link. cp does not copy devices, sockets, pipes, dangling symbolic links,
symbolic links to a parent directory, or files of unfinished copies (.NAME.xwarp-partial, .xwarp-staged). It lists
them, and then exits with status 1.

Data moves by RDMA Write or RDMA Read over several connections; files of up to 64 KiB are batched. A file appears under
its name once it is complete and its XXH64 matches. A file whose size and modification time match is
up to date and not copied again. With --checksum, cp compares SHA-256 instead. To resume an interrupted copy, repeat the command. Files are synced to
disk before cp exits.`,
		Example: `  sudo xwarp cp disk.img notes.txt 192.0.2.2:/
  sudo xwarp cp -r --connections 4 photos server.example:9000/backup
  sudo xwarp cp -r [2001:db8::2]:/backup/photos .
  tar c photos | sudo xwarp cp - 192.0.2.2:/photos.tar
  sudo xwarp cp 192.0.2.2:/photos.tar - | tar x`,
		Args: cobra.ArbitraryArgs,
	}
	c.register(cmd)
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
		if err := checkStreams(cmd, sources, dst, up, *c.json); err != nil {
			return err
		}
		cfg.Stdin, cfg.Stdout = cmd.InOrStdin(), cmd.OutOrStdout()
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
			"%s copied, %d unchanged, %d failed, %d skipped: %s %s over %s, %s resumed, "+
				"in %.3f s: %.0f MiB/s\n",
			plain.Count(res.Files, "file"), res.Unchanged, res.Failed, res.LeftOut,
			plain.Size(uint64(res.Bytes)), map[bool]string{true: "sent", false: "received"}[up],
			res.onTransport, plain.Size(uint64(res.Kept)), res.Seconds,
			float64(res.Bytes)/(1<<20)/max(res.Seconds, 1e-6))
		return err
	}
	return cmd
}

func (c *clientFlags) copy(cmd *cobra.Command, g *global, res *cpResult, cfg cp.Config,
	sources []string, dst string, up bool) error {
	return c.reach(cmd, g, func(ctx context.Context, d verbs.Device, remote netip.AddrPort,
		client *transfer.Client) error {
		res.Remote, res.onTransport = remote.String(), transportOf(d)
		bar := newBar(cmd.ErrOrStderr())
		defer bar.clear()
		cfg.Dial = func(ctx context.Context) (*transfer.Client, error) {
			if first := client; first != nil {
				client = nil
				return first, nil
			}
			return dial(ctx, d, remote, c.timeout)
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
		var err error
		res.Result, err = run(ctx, cfg, sources, dst)
		res.Seconds = time.Since(begin).Seconds()
		return err
	})
}

// checkStreams checks the use of stdin and stdout as a source or destination.
func checkStreams(cmd *cobra.Command, sources []string, dst string, up, json bool) error {
	from, to := up && slices.Contains(sources, cp.Stream), !up && dst == cp.Stream
	switch {
	case (from || to) && len(sources) > 1:
		return usagef("- is stdin or stdout, and needs exactly one source and one destination")
	case to && json:
		return usagef("--json and the file cannot both go to stdout: name a file")
	case to && program.IsTerminal(cmd.OutOrStdout()):
		return usagef("the file is not for a terminal: name a file, or pipe it (for text: | cat)")
	}
	return nil
}

// explainHost adds a hint to the error of an unknown host: the argument may be a local path.
func explainHost(err error) error {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Errorf("host %q: %w (for a local file with a colon in its name write ./%s:...)",
			dns.Name, err, dns.Name)
	}
	return err
}

// direct parses the arguments into sources and destination, and sets c.server. up is true if the destination is remote.
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
		if user, _, ok := strings.Cut(host, "@"); ok {
			return nil, "", false, usagef("%s: xwarp serve has no users: omit %s@", a, user)
		}
		if i := strings.LastIndexByte(a, ':'); strings.Contains(a[:i], ":") {
			if _, err := netip.ParseAddr(a[:i]); err == nil {
				return nil, "", false, usagef("write an IPv6 address in brackets: [%s]%s",
					a[:i], a[i:])
			}
		}
		c.server = host
		paths = append(paths, name)
		remotes++
		up = last
	}
	switch n := len(args); {
	case remotes == 0:
		return nil, "", false, usagef("no remote argument: write the remote path as "+
			"HOST:/PATH, such as 192.0.2.2:/%s", filepath.Base(args[0]))
	case up && remotes > 1, !up && remotes < n-1:
		return nil, "", false, usagef("all sources must be remote, or only the destination")
	}
	return paths[:len(paths)-1], paths[len(paths)-1], up, nil
}

// splitRemote splits HOST:PATH or HOST:PORT/PATH into the server and the path. Digits between the colon and a slash are
// the port. An argument without a colon before its first slash is local.
func splitRemote(arg string) (server, name string, remote bool) {
	at := strings.IndexAny(arg, ":/")
	if strings.HasPrefix(arg, "[") {
		at = strings.Index(arg, "]:") + 1
	}
	if at <= 0 || arg[at] == '/' {
		return "", "", false
	}
	server, name = arg[:at], arg[at+1:]
	if port, rest, ok := strings.Cut(name, "/"); ok && strings.Trim(port, "0123456789") == "" {
		name = rest
		if port != "" {
			server += ":" + port
		}
	}
	return server, name, true
}
