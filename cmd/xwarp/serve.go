package main

import (
	"context"
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
	Event     string  `json:"event" doc:"\"listening\", \"store\" and \"fetch\", \"stat\", \"list\", \"mkdir\" and \"setattr\" (only failures), or \"error\" (connection failed)"`
	Address   string  `json:"address,omitempty" doc:"listening: address and port"`
	Transport string  `json:"transport,omitempty" doc:"listening: \"xdp\" or \"kernel\""`
	Daemon    bool    `json:"daemon,omitempty" doc:"listening: the device belongs to xwarpd"`
	Interface string  `json:"interface,omitempty" doc:"listening, xdp: network interface"`
	XDPMode   string  `json:"xdp_mode,omitempty" doc:"listening, xdp: \"native\" or \"generic\""`
	Copy      string  `json:"copy,omitempty" doc:"listening, xdp: \"copy\" or \"zero-copy\""`
	Transmit  string  `json:"transmit,omitempty" doc:"listening, xdp: \"xdp\" or \"packet-gso\""`
	Dir       string  `json:"dir,omitempty" doc:"listening: exported directory"`
	Remote    string  `json:"remote,omitempty" doc:"address and port of the client"`
	OK        bool    `json:"ok" doc:"success"`
	Error     string  `json:"error,omitempty" doc:"error; absent if ok"`
	File      string  `json:"file,omitempty" doc:"path in the directory"`
	Bytes     int64   `json:"bytes,omitempty" doc:"store, fetch: bytes transferred"`
	Seconds   float64 `json:"seconds,omitempty" doc:"store, fetch: time from the request to the end"`
}

func newServe(g *global) *cobra.Command {
	var dev transport.Flags
	var of transfer.TreeConfig
	var listen string
	var idle time.Duration
	asJSON := false
	cmd := &cobra.Command{
		Use:   "serve DIRECTORY",
		Short: "Export a directory for xwarp cp",
		Long: `serve exports a directory to xwarp cp. It runs until SIGINT or SIGTERM. There is no authentication: anyone who can reach
the port can read and, without --read-only, write the files.

Paths cannot leave the directory through symbolic links or "..". Files appear, or are replaced, when they are complete
and on disk: after a crash a file has either the old content or the new. Partial files can be resumed for a week. serve
aborts a transfer that makes no progress for the time of --idle, if another client waits for a connection or that file.`,
		Example: `  sudo xwarp serve /srv/backup --interface eth0 --size 100GiB
  sudo xwarp serve /srv/images --listen 192.0.2.2 --read-only
  xwarp serve . --transport kernel --listen :9000`,
		Args: oneArg("the directory to export"),
	}
	f := cmd.Flags()
	dev.Register(f)
	registerMPA(f, &dev.MPA)
	f.StringVar(&listen, "listen", fmt.Sprintf(":%d", defaultPort), "`address` to listen on: "+
		"addr, addr:port, [IPv6]:port, or :port for all IPv4 and IPv6 addresses")
	f.Var((*size)(&of.Size), "size", "limit for all files together, such as 100GiB (default: none)")
	f.BoolVar(&of.ReadOnly, "read-only", false, "export the directory read-only")
	f.DurationVar(&idle, "idle", transfer.DefaultIdle,
		"close connections whose peer is silent for this time")
	f.BoolVarP(&asJSON, "json", "j", false, "print one JSON object per line for each event")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		at, err := listenAddrs(listen)
		if err != nil {
			return err
		}
		if err := dev.Check(); err != nil {
			return err
		}
		if idle < time.Second {
			return usagef("--idle %v: need at least 1s", idle)
		}
		of.Path, of.Log = args[0], g.logger(cmd)
		tree, err := transfer.OpenTree(of)
		if err != nil {
			return err
		}
		defer closing(&err, tree)
		d, err := g.openDevice(cmd, &dev, transport.InterfaceOf, at[0], "--listen")
		if err != nil {
			return err
		}
		defer closing(&err, d)
		out := &eventPrinter{w: cmd.OutOrStdout(), json: asJSON}
		cfg := transfer.ServerConfig{Device: d, Tree: tree, Idle: idle, Event: out.transfer}
		server, err := transfer.Listen(cfg, at...)
		if own := ownAddrs(d, at); len(own) > 0 && denied(err) {
			server, err = transfer.Listen(cfg, own...)
		}
		if err != nil {
			return err
		}
		for _, at := range server.Addrs() {
			out.listening(at, d, tree)
		}
		ctx, cancel := context.WithCancel(cmd.Context())
		defer cancel()
		go transport.Watch(ctx, d, func(text string) { say(cmd, "%s", text) })
		return server.Serve(ctx)
	}
	return cmd
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

func (p *eventPrinter) listening(at netip.AddrPort, d verbs.Device, tree *transfer.Tree) {
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
		Interface: t.Interface, XDPMode: t.XDPMode, Copy: t.Copy, Transmit: t.Transmit,
	}
	e.Dir = tree.Path()
	p.print(e, "listening on %v (%s): directory %s", at, how, e.Dir)
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
	p.print(e, "%s %v: %s, %s in %.3f s", e.Event, ev.Remote, ev.File, plain.Size(uint64(e.Bytes)),
		e.Seconds)
}
