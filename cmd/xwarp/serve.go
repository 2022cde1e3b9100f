package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"xwarp/cmd/xwarp/transport"
	"xwarp/engine/plain"
	"xwarp/engine/transfer"
	"xwarp/engine/verbs"
)

// serveEvent is one line of serve --json; the doc tags document its keys.
type serveEvent struct {
	document
	Event     string  `json:"event" doc:"\"listening\", \"put\", \"get\", \"store\" and \"fetch\" (a file of a directory), \"stat\", \"list\" and \"mkdir\" (if they failed), or \"error\" (of a connection)"`
	Address   string  `json:"address,omitempty" doc:"listening: where"`
	Transport string  `json:"transport,omitempty" doc:"listening: \"xdp\" or \"kernel\""`
	Daemon    bool    `json:"daemon,omitempty" doc:"listening: the device is xwarpd's"`
	Interface string  `json:"interface,omitempty" doc:"listening, xdp: the interface"`
	XDPMode   string  `json:"xdp_mode,omitempty" doc:"listening, xdp: \"native\" or \"generic\""`
	Copy      string  `json:"copy,omitempty" doc:"listening, xdp: \"copy\" or \"zero-copy\""`
	Size      int64   `json:"size,omitempty" doc:"listening: bytes of the region"`
	Content   int64   `json:"content" doc:"listening: bytes of its content"`
	Remote    string  `json:"remote,omitempty" doc:"the client"`
	OK        bool    `json:"ok" doc:"false: see error"`
	Error     string  `json:"error,omitempty" doc:"why not"`
	Bytes     int64   `json:"bytes,omitempty" doc:"put, get: moved"`
	SHA256    string  `json:"sha256,omitempty" doc:"put, get: of them"`
	Dir       string  `json:"dir,omitempty" doc:"listening: the directory that is exported, instead of a region"`
	File      string  `json:"file,omitempty" doc:"store, fetch: path in the directory"`
	Seconds   float64 `json:"seconds,omitempty" doc:"put, get, store, fetch: from the request to the end, waiting included"`
}

func newServe(g *global) *cobra.Command {
	var dev transport.Flags
	var what exported
	var listen string
	var idle time.Duration
	asJSON := false
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Export a region that put writes and get reads, or a directory for cp",
		Long: `serve exports one region of memory. xwarp put writes content into it by RDMA Write, xwarp get reads it back by
RDMA Read. The region is anonymous memory of --size bytes, or the mapping of --file.

A put becomes the content at once and whole, after its SHA-256 was found right; one that fails changes nothing. A get
reads the content that was there when it began. Puts in progress need memory beside the region: at most twice its size,
and at most once its size for the clients of one address. Further puts wait. While others wait, a transfer that stands
still for --idle is ended. Whoever reaches the port may put and get: there is no authentication.

A put into a --file is staged beside it, in the same directory, and gets its name when it is whole and on the disk:
whatever dies meanwhile, the file has all of the old content or all of the new one. With --in-place, and where a file
has several names, belongs to another user, has an access control list or is mounted, it is overwritten through a
journal instead; gets that read it then have to begin again. Nobody else may shorten the file.

With --dir it exports a directory instead, for xwarp cp. Nothing outside of it is reached, by no link and no "..". Files
appear, or are replaced, when they are whole; partial files can be resumed for a week. --size and
--read-only say what clients may.

serve runs until SIGINT or SIGTERM.`,
		Example: `  sudo xwarp serve --interface eth0 --size 1GiB
  sudo xwarp serve --listen 192.0.2.2 --file disk.img
  xwarp serve --transport kernel --size 64MiB --listen :9000
  sudo xwarp serve --interface eth0 --dir /srv/backup --size 100GiB`,
		Args: noArgs,
	}
	f := cmd.Flags()
	dev.Register(f)
	registerMPA(f, &dev.MPA)
	f.StringVar(&listen, "listen", fmt.Sprintf(":%d", defaultPort), "`address` to listen on: "+
		"addr, addr:port, [IPv6]:port, or :port for all of IPv4 and IPv6")
	what.addFlags(f)
	f.DurationVar(&idle, "idle", transfer.DefaultIdle,
		"end connections whose peer is silent for this long")
	f.BoolVarP(&asJSON, "json", "j", false, "print one JSON object per line: listening, then "+
		"every transfer")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		at, err := listenAddrs(listen)
		if err != nil {
			return err
		}
		if err := dev.Check(); err != nil {
			return err
		}
		if err := what.validate(); err != nil {
			return err
		}
		if idle < time.Second {
			return usagef("--idle %v is below a second", idle)
		}
		cfg, exported, err := what.openExport(g.logger(cmd))
		if err != nil {
			return err
		}
		defer closing(&err, exported)
		d, err := g.openDevice(cmd, &dev, transport.Of, at[0], "--listen")
		if err != nil {
			return err
		}
		defer closing(&err, d)
		out := &eventPrinter{w: cmd.OutOrStdout(), json: asJSON}
		cfg.Device, cfg.Idle, cfg.Event = d, idle, out.transfer
		if err := checkMemory(d, cfg.Region); err != nil {
			return err
		}
		server, err := transfer.Listen(cfg, at...)
		if own := ownAddrs(d, at); len(own) > 0 && denied(err) {
			server, err = transfer.Listen(cfg, own...)
		}
		if err != nil {
			return err
		}
		for _, at := range server.Addrs() {
			out.listening(at, d, &cfg)
		}
		if cfg.Region != nil {
			go tellLost(cmd, cfg.Region)
		}
		return serve(cmd, server, d)
	}
	return cmd
}

// checkMemory has xwarpd register as much memory as the region has, as each put and get of a full region will: a quota
// that is too low is an error before a client finds it.
func checkMemory(d verbs.Device, r *transfer.Region) (err error) {
	if r == nil || !d.Transport().Daemon {
		return nil
	}
	mem, err := d.Alloc(int(r.Size()))
	if err == nil {
		defer func() { err = errors.Join(err, d.Free(mem)) }()
		var pd verbs.PD
		if pd, err = d.AllocPD(); err == nil {
			defer closing(&err, pd)
			var mr verbs.MR
			if mr, err = pd.RegMR(mem, verbs.LocalWrite); err == nil {
				return mr.Close()
			}
		}
	}
	return fmt.Errorf("a region of %d bytes is more than xwarpd allows: %w", r.Size(), err)
}

// serve serves until the command ends, or until the server fails.
func serve(cmd *cobra.Command, s *transfer.Server, d verbs.Device) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	go transport.Watch(ctx, d, func(text string) { say(cmd, "%s", text) })
	return s.Serve(ctx)
}

// tellLost says when the file of a region was cut short.
func tellLost(cmd *cobra.Command, r *transfer.Region) {
	select {
	case <-cmd.Context().Done():
	case <-r.Failed():
		say(cmd, "the region failed, and new clients are rejected: %v (when its cause is gone, "+
			"start serve again)", r.Err())
	}
}

// eventPrinter prints events, one line each, as text or JSON.
type eventPrinter struct {
	mu   sync.Mutex
	w    io.Writer
	json bool
}

func (p *eventPrinter) print(e serveEvent, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.Schema, e.Command = 1, "serve"
	if p.json {
		lineJSON(p.w, e)
		return
	}
	plain.Fprintf(p.w, format+"\n", args...)
}

func (p *eventPrinter) listening(at netip.AddrPort, d verbs.Device, cfg *transfer.ServerConfig) {
	t := d.Transport()
	how := t.Name
	if t.Interface != "" {
		how = fmt.Sprintf("%s on %s, %s, %s", t.Name, t.Interface, t.XDPMode, t.Copy)
	}
	if t.Daemon {
		how += ", by xwarpd"
	}
	e := serveEvent{
		Event: "listening", OK: true, Address: at.String(),
		Transport: t.Name, Daemon: t.Daemon,
		Interface: t.Interface, XDPMode: t.XDPMode, Copy: t.Copy,
	}
	if cfg.Tree != nil {
		e.Dir = cfg.Tree.Path()
		p.print(e, "listening on %v (%s): the directory %s", at, how, e.Dir)
		return
	}
	e.Size, e.Content = cfg.Region.Size(), cfg.Region.Length()
	p.print(e, "listening on %v (%s): a region of %d bytes, %d of them content", at, how,
		e.Size, e.Content)
}

func (p *eventPrinter) transfer(ev transfer.Event) {
	e := serveEvent{Event: ev.Op, Remote: ev.Remote.String(), Seconds: ev.Took.Seconds(),
		OK: ev.Err == nil, File: ev.File}
	if ev.Op == "" {
		e.Event = "error"
	}
	if ev.Err != nil {
		e.Error = ev.Err.Error()
		p.print(e, "%s %v failed: %v", e.Event, ev.Remote, ev.Err)
		return
	}
	e.Bytes = ev.Bytes
	if ev.File != "" {
		p.print(e, "%s %v: %s, %d bytes in %.3f s", e.Event, ev.Remote, ev.File, e.Bytes,
			e.Seconds)
		return
	}
	e.SHA256 = hex.EncodeToString(ev.Sum[:])
	p.print(e, "%s %v: %d bytes in %.3f s, SHA-256 %s", e.Event, ev.Remote, e.Bytes, e.Seconds,
		e.SHA256)
}
