package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"xwarp/cmd/xwarp/transport"
	"xwarp/engine/plain"
	"xwarp/engine/transfer"
	"xwarp/engine/verbs"
	"xwarp/tcp"
)

// transferResult is the output of put and get. The doc tags document its JSON keys.
type transferResult struct {
	document
	OK     bool   `json:"ok" doc:"all bytes arrived and the SHA-256 matches"`
	Error  string `json:"error,omitempty" doc:"error; absent if ok"`
	File   string `json:"file" doc:"local file"`
	Remote string `json:"remote" doc:"server address and port"`
	onTransport
	Bytes         int64   `json:"bytes" doc:"bytes transferred"`
	Content       int64   `json:"content" doc:"bytes of content on the server; get --length beyond that returns the memory behind the content"`
	SHA256        string  `json:"sha256,omitempty" doc:"SHA-256 of these bytes"`
	Seconds       float64 `json:"seconds" doc:"duration, from the grant of the server to the end"`
	GbitPerSecond float64 `json:"gbit_per_s" doc:"rate in 10^9 bits per second"`
	MiBPerSecond  float64 `json:"mib_per_s" doc:"rate in 2^20 bytes per second"`
}

// move transfers data over a connection.
type move func(context.Context, *transfer.Client) (transfer.Summary, error)

// clientFlags are the flags of the client commands: put, get, cp, and doctor --report --peer.
type clientFlags struct {
	device     transport.Flags
	server     string
	serverFlag string // name of the flag that sets server
	timeout    time.Duration
	json       *bool
}

func (c *clientFlags) addFlags(cmd *cobra.Command, name, usage string) {
	cmd.Flags().StringVar(&c.server, name, "", usage)
	c.serverFlag = name
	c.registerOther(cmd)
}

func (c *clientFlags) registerOther(cmd *cobra.Command) {
	f := cmd.Flags()
	c.device.Register(f)
	registerMPA(f, &c.device.MPA)
	f.DurationVar(&c.timeout, "timeout", 10*time.Second, "connect timeout")
	c.json = jsonFlag(cmd)
}

// runTransfer connects, transfers the file and prints the result: with --json to stdout, otherwise to stderr.
func (c *clientFlags) runTransfer(cmd *cobra.Command, g *global, file string, do move) error {
	if c.server == "" {
		return usagef("missing --%s: address of xwarp serve", c.serverFlag)
	}
	if err := c.validate(); err != nil {
		return err
	}
	res := transferResult{document: document{1, cmd.Name()}, File: file, Remote: c.server}
	err := c.transfer(cmd, g, &res, do)
	res.OK = err == nil
	if *c.json {
		if err != nil {
			res.Error = err.Error()
		}
		return errors.Join(err, printJSON(cmd, res))
	}
	if err == nil {
		plain.Fprintf(cmd.ErrOrStderr(),
			"%d bytes in %.3f s: %.2f Gbit/s, %.0f MiB/s\nSHA-256 %s\n",
			res.Bytes, res.Seconds, res.GbitPerSecond, res.MiBPerSecond, res.SHA256)
		if res.Content != res.Bytes {
			plain.Fprintf(cmd.ErrOrStderr(), "content on the server: %d bytes\n", res.Content)
		}
	}
	return err
}

func (c *clientFlags) validate() error {
	if c.timeout <= 0 {
		return usagef("--timeout %v must be positive", c.timeout)
	}
	return c.device.Check()
}

// refused adds a hint to the error of a refused connection: who may not be running.
func refused(err error, who string) error {
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, tcp.CauseRefused) {
		return fmt.Errorf("%w: is %s running at that address and port?", err, who)
	}
	return err
}

func (c *clientFlags) transfer(cmd *cobra.Command, g *global, res *transferResult,
	do move) error {
	return c.reach(cmd, g, func(ctx context.Context, d verbs.Device, remote netip.AddrPort) (
		err error) {
		res.Remote, res.onTransport = remote.String(), transportOf(d)
		client, err := c.dial(ctx, d, remote)
		if err != nil {
			return err
		}
		defer closing(&err, client)
		bar := newBar(cmd.ErrOrStderr())
		defer bar.clear()
		client.Progress = func(done, total int64) { bar.show(cmd.Name(), done, total) }
		client.Waiting = func() { say(cmd, "queued by the server: other transfers are ahead") }
		s, err := do(ctx, client)
		if err == nil {
			res.addDetails(&s)
		}
		return err
	})
}

// reach resolves the server, opens the device towards it and calls use.
func (c *clientFlags) reach(cmd *cobra.Command, g *global,
	use func(context.Context, verbs.Device, netip.AddrPort) error) (err error) {
	ctx := cmd.Context()
	remote, err := resolve(ctx, c.server)
	if err != nil {
		return err
	}
	d, err := g.openDevice(cmd, &c.device, transport.To, remote, "--"+c.serverFlag)
	if err != nil {
		return err
	}
	defer closing(&err, d)
	watch, stop := context.WithCancel(ctx)
	defer stop()
	go transport.Watch(watch, d, func(text string) { say(cmd, "%s", text) })
	return use(ctx, d, remote)
}

// dial connects to the server.
func (c *clientFlags) dial(ctx context.Context, d verbs.Device, remote netip.AddrPort) (
	*transfer.Client, error) {
	tooLong := fmt.Errorf("connect timed out after %v: is xwarp serve running there? Does a firewall "+
		"block the port? (--timeout changes the limit)", c.timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, tooLong)
	defer cancel()
	client, err := transfer.Dial(ctx, d, remote, 0)
	if err != nil {
		return nil, refused(err, "xwarp serve")
	}
	return client, nil
}

func (r *transferResult) addDetails(s *transfer.Summary) {
	r.Bytes, r.Content = s.Bytes, s.Content
	r.SHA256, r.Seconds = hex.EncodeToString(s.Sum[:]), s.Took.Seconds()
	if r.Seconds > 0 {
		r.GbitPerSecond = float64(r.Bytes) * 8 / 1e9 / r.Seconds
		r.MiBPerSecond = float64(r.Bytes) / (1 << 20) / r.Seconds
	}
}
