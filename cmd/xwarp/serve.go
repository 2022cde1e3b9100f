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

// serveEvent is one line of serve --json. The doc tags document its keys.
type serveEvent struct {
	document
	Event     string  `json:"event" doc:"\"listening\", \"put\", \"get\", \"store\" and \"fetch\" (file in a directory), \"stat\", \"list\" and \"mkdir\" (only failures), or \"error\" (connection failed)"`
	Address   string  `json:"address,omitempty" doc:"listening: address and port"`
	Transport string  `json:"transport,omitempty" doc:"listening: \"xdp\" or \"kernel\""`
	Daemon    bool    `json:"daemon,omitempty" doc:"listening: the device belongs to xwarpd"`
	Interface string  `json:"interface,omitempty" doc:"listening, xdp: network interface"`
	XDPMode   string  `json:"xdp_mode,omitempty" doc:"listening, xdp: \"native\" or \"generic\""`
	Copy      string  `json:"copy,omitempty" doc:"listening, xdp: \"copy\" or \"zero-copy\""`
	Size      int64   `json:"size,omitempty" doc:"listening: size of the region in bytes"`
	Content   int64   `json:"content" doc:"listening: bytes of content in the region"`
	Remote    string  `json:"remote,omitempty" doc:"address and port of the client"`
	OK        bool    `json:"ok" doc:"success"`
	Error     string  `json:"error,omitempty" doc:"error; absent if ok"`
	Bytes     int64   `json:"bytes,omitempty" doc:"put, get, store, fetch: bytes transferred"`
	SHA256    string  `json:"sha256,omitempty" doc:"put, get: SHA-256 of these bytes"`
	Dir       string  `json:"dir,omitempty" doc:"listening: exported directory, instead of a region"`
	File      string  `json:"file,omitempty" doc:"store, fetch: path in the directory"`
	Seconds   float64 `json:"seconds,omitempty" doc:"put, get, store, fetch: time from the request to the end, including time in the queue"`
}

func newServe(g *global) *cobra.Command {
	var dev transport.Flags
	var what exported
	var listen string
	var idle time.Duration
	asJSON := false
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Export a memory region for put and get, or a directory for cp",
		Long: `serve exports a memory region or, with --dir, a directory. It runs until SIGINT or SIGTERM. There is no authentication:
anyone who can reach the port can use the export.

Region: xwarp put writes content into the region by RDMA Write, and xwarp get reads it by RDMA Read. The region is
anonymous memory of --size bytes, or a mapping of --file. A put replaces the content atomically once its SHA-256 is
verified; a failed put changes nothing. A get reads the content as of its start. Puts in progress need extra memory: at
most twice the size of the region, and at most once its size for all clients of one address. Further puts wait. While
others wait, a transfer without progress for --idle is aborted.

File: a put to --file is staged in the same directory and renamed when it is complete and on disk. After a crash the
file has either the old content or the new. A file is overwritten through a journal instead with --in-place, and if it
has several hard links, another owner or an ACL, or is a mount point; a get in progress must then restart. No other
process may truncate the file.

Directory: clients use xwarp cp. Paths cannot leave the directory through symbolic links or "..". Files appear, or are
replaced, when they are complete; partial files can be resumed for a week. --size limits the total size, and --read-only
rejects writes.`,
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
		"addr, addr:port, [IPv6]:port, or :port for all IPv4 and IPv6 addresses")
	what.addFlags(f)
	f.DurationVar(&idle, "idle", transfer.DefaultIdle,
		"close connections whose peer is silent for this time")
	f.BoolVarP(&asJSON, "json", "j", false, "print one JSON object per line for each event")
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
			return usagef("--idle %v: need at least 1s", idle)
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

// checkMemory registers as much memory with xwarpd as a put or get of a full region will. A quota that is too low is
// then an error at the start, not an error of the first client.
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
	return fmt.Errorf("a region of %d bytes exceeds the quota of xwarpd: %w", r.Size(), err)
}

// serve serves until the context is done or the server fails.
func serve(cmd *cobra.Command, s *transfer.Server, d verbs.Device) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	go transport.Watch(ctx, d, func(text string) { say(cmd, "%s", text) })
	return s.Serve(ctx)
}

// tellLost prints a message when a region fails, for example because its file was truncated.
func tellLost(cmd *cobra.Command, r *transfer.Region) {
	select {
	case <-cmd.Context().Done():
	case <-r.Failed():
		say(cmd, "region failed, rejecting new clients: %v (remove the cause, then restart serve)",
			r.Err())
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
		p.print(e, "listening on %v (%s): directory %s", at, how, e.Dir)
		return
	}
	e.Size, e.Content = cfg.Region.Size(), cfg.Region.Length()
	p.print(e, "listening on %v (%s): region of %d bytes, %d bytes of content", at, how,
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
