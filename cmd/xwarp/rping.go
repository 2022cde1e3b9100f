package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"xwarp/cmd/xwarp/rping"
	"xwarp/cmd/xwarp/transport"
	"xwarp/engine/plain"
	"xwarp/engine/verbs"
)

// rpingResult is the output of rping --json for each connection.
type rpingResult struct {
	document
	Role  string `json:"role" doc:"\"client\" or \"server\""`
	OK    bool   `json:"ok" doc:"false: see error"`
	Error string `json:"error,omitempty" doc:"why not"`
	onTransport
	Micros float64 `json:"microseconds" doc:"of one iteration"`
	rping.Result
}

type rpingFlags struct {
	device            transport.Flags
	server, client    bool
	address, source   string
	port              uint16
	size              size
	verbose, debug    bool
	persistent, ownQP bool
	json              bool
	timeout           time.Duration
	cfg               rping.Config
}

func newRping(g *global) *cobra.Command {
	var r rpingFlags
	cmd := &cobra.Command{
		Use:   "rping -s|-c [-a ADDRESS]",
		Short: "Ping another rping: ours, or the one of rdma-core",
		Long: `rping speaks the protocol of rdma-core's rping, with its flags, as client and as server. In each iteration the
client shows a buffer, the server reads it by RDMA Read, and writes it back by RDMA Write.

A client with --count 0 goes on until it is stopped. A server ends when its client closes, with -P never. It takes
whatever size the client chooses, and with -V checks the data too. Sizes are 23 to 65535 bytes: rping's own limits.

A client asks for markers, and does without when the server rejects them, as Linux siw does. A server asks for them only
of a client that does.`,
		Example: `  sudo xwarp rping -s --interface eth0 -V          # rping -c -V -C 10 -a ADDRESS elsewhere
  sudo xwarp rping -c -a 192.0.2.2 -V -C 1000 -S 4096
  xwarp rping -c -a 192.0.2.2 --transport kernel --no-markers -C 10 -v`,
		Args: noArgs,
	}
	f := cmd.Flags()
	f.BoolVarP(&r.server, "server", "s", false, "be the server")
	f.BoolVarP(&r.client, "client", "c", false, "be the client")
	f.StringVarP(&r.address, "address", "a", "", "client: `address` or name of the server; "+
		"server: address to listen on (default: all of IPv4; ::0 is all of IPv6; the first address "+
		"of the interface where xwarpd lets nobody listen on all)")
	f.StringVarP(&r.source, "source", "I", "", "client: `address` to connect from")
	f.Uint16VarP(&r.port, "port", "p", rping.DefaultPort, "TCP port")
	f.IntVarP(&r.cfg.Count, "count", "C", 0, "client: iterations, 0 for no end")
	r.size = rping.DefaultSize
	f.VarP(&r.size, "size", "S", "client: bytes of ping data")
	f.BoolVarP(&r.cfg.Validate, "validate", "V", false, "compare every byte")
	f.BoolVarP(&r.verbose, "verbose", "v", false, "print the ping data")
	f.BoolVarP(&r.debug, "debug", "d", false,
		"print each step, and log connection events to stderr")
	f.BoolVarP(&r.ownQP, "self-create-qp", "q", false,
		"accepted and without effect: the queue pair is always our own")
	f.BoolVarP(&r.persistent, "persistent", "P", false,
		"server: serve any number of clients, until SIGINT or SIGTERM")
	r.device.Register(f)
	m := &r.device.MPA
	transport.Switch(f, &m.Markers, verbs.MarkersOff, verbs.MarkersMirrored, "no-markers",
		"do not ask for MPA markers")
	transport.Switch(f, &m.CRC, verbs.CRCOptional, verbs.CRCRequired, "no-crc",
		"do without CRC if the peer does too")
	f.DurationVar(&r.cfg.ConnectTimeout, "connect-timeout", 10*time.Second,
		"client: how long connecting may take")
	f.DurationVar(&r.timeout, "timeout", 0, "give up after this long (default: never)")
	f.BoolVarP(&r.json, "json", "j", false, "print one JSON object for each connection, with -P "+
		"one per line")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return r.runRping(cmd, g) }
	return cmd
}

func (r *rpingFlags) validate() error {
	r.cfg.Size = int(r.size)
	if r.server == r.client {
		return usagef("say -s (server) or -c (client)")
	}
	var bad rping.ErrConfig
	if err := r.cfg.Complete(); errors.As(err, &bad) {
		return usageError{Err: err}
	}
	switch {
	case r.client && r.address == "":
		return usagef("where is the server? Say it with -a")
	case r.client && r.persistent:
		return usagef("-P is for the server")
	case r.cfg.ConnectTimeout <= 0:
		return usagef("--connect-timeout %v is not positive", r.cfg.ConnectTimeout)
	case r.server && r.source != "":
		return usagef("-I is for the client; a server listens on -a")
	}
	return r.device.Check()
}

func (r *rpingFlags) runRping(cmd *cobra.Command, g *global) (err error) {
	if err := r.validate(); err != nil {
		return err
	}
	ctx := cmd.Context()
	if r.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.timeout,
			fmt.Errorf("not done within %v (--timeout)", r.timeout))
		defer cancel()
	}
	at, err := r.peer(ctx)
	if err != nil {
		return err
	}
	r.cfg.Conn.MPA = &r.device.MPA
	if r.source != "" {
		a, err := netip.ParseAddr(r.source)
		if err != nil {
			return usagef("-I %q is no IP address", r.source)
		}
		r.cfg.Conn.Local = netip.AddrPortFrom(a, 0)
	}
	g.verbose = r.debug
	r.prints(cmd)
	find := transport.To
	if r.server {
		find = transport.Of
	}
	dev, err := g.openDevice(cmd, &r.device, find, at, "-a")
	if err != nil {
		return err
	}
	defer closing(&err, dev)
	if r.client {
		res, err := rping.Client(ctx, dev, at, r.cfg)
		err = refused(err, "an rping -s")
		if cmd.Context().Err() != nil && r.cfg.Count == 0 {
			err = nil // stopped, as it must be
		}
		return errors.Join(err, r.report(cmd, dev, res, err))
	}
	return r.runServer(ctx, cmd, dev, at)
}

func (r *rpingFlags) runServer(ctx context.Context, cmd *cobra.Command, dev verbs.Device,
	at netip.AddrPort) error {
	cfg := verbs.ListenConfig{MPA: r.cfg.Conn.MPA}
	l, err := dev.Listen(at, cfg)
	if own := ownAddrs(dev, []netip.AddrPort{at}); len(own) > 0 && denied(err) {
		l, err = dev.Listen(own[0], cfg)
	}
	if err != nil {
		return err
	}
	defer l.Close()
	if !r.json {
		say(cmd, "listening on %v", l.Addr())
	}
	if !r.persistent {
		res, err := rping.Serve(ctx, dev, l, r.cfg)
		return errors.Join(err, r.report(cmd, dev, res, err))
	}
	return rping.ServeAll(ctx, dev, l, r.cfg, func(res rping.Result, err error) {
		if err != nil {
			say(cmd, "%v: %v", res.Remote, err)
		}
		r.report(cmd, dev, res, err)
	})
}

// peer is the address to connect to or to listen on.
func (r *rpingFlags) peer(ctx context.Context) (netip.AddrPort, error) {
	if r.address == "" {
		return netip.AddrPortFrom(netip.IPv4Unspecified(), r.port), nil
	}
	list, err := lookUp(ctx, r.address, r.port)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return list[0], nil
}

// prints sets the output during the iterations. The words are rping's.
func (r *rpingFlags) prints(cmd *cobra.Command) {
	out := cmd.OutOrStdout()
	if r.json {
		out = cmd.ErrOrStderr()
	}
	head := "ping data: "
	if r.server {
		head = "server ping data: "
	}
	if r.verbose {
		r.cfg.Ping = func(b []byte) { plain.Fprintf(out, "%s%s\n", head, string(b)) }
	}
	if r.debug {
		r.cfg.Debug = func(format string, args ...any) { plain.Fprintf(out, format+"\n", args...) }
	}
}

// report prints the result of one connection.
func (r *rpingFlags) report(cmd *cobra.Command, dev verbs.Device, res rping.Result,
	err error) error {
	if !r.json {
		if res.Iterations == 0 {
			return nil
		}
		_, err := plain.Fprintf(cmd.OutOrStdout(), "%v: %d iterations of %d bytes, %v each; MPA "+
			"revision %d, markers out %s, in %s, CRC %s%s\n",
			res.Remote, res.Iterations, res.Bytes/int64(res.Iterations),
			res.Latency().Round(100*time.Nanosecond),
			res.Revision, plain.OnOff(res.MarkersOut), plain.OnOff(res.MarkersIn),
			plain.OnOff(res.CRC), map[bool]string{true: "; every byte is right"}[res.Validated])
		return err
	}
	o := rpingResult{
		document: document{1, "rping"}, Role: "client", OK: err == nil,
		onTransport: transportOf(dev),
		Micros:      float64(res.Latency()) / float64(time.Microsecond), Result: res,
	}
	if r.server {
		o.Role = "server"
	}
	if err != nil {
		o.Error = err.Error()
	}
	if r.persistent {
		return lineJSON(cmd.OutOrStdout(), o)
	}
	return printJSON(cmd, o)
}
