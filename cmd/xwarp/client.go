package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"xwarp/cmd/xwarp/transport"
	"xwarp/engine/transfer"
	"xwarp/engine/verbs"
	"xwarp/tcp"
)

// clientFlags are the flags of cp, and of doctor --report --peer.
type clientFlags struct {
	device  transport.Flags
	server  string
	what    string // what sets server, for errors
	timeout time.Duration
	json    *bool
}

func (c *clientFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	c.device.Register(f)
	registerMPA(f, &c.device.MPA)
	f.DurationVar(&c.timeout, "timeout", 10*time.Second, "connect timeout")
	c.json = jsonFlag(cmd)
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

// reach resolves the server, opens the device towards it and calls use.
func (c *clientFlags) reach(cmd *cobra.Command, g *global,
	use func(context.Context, verbs.Device, netip.AddrPort) error) (err error) {
	ctx := cmd.Context()
	remote, err := resolve(ctx, c.server)
	if err != nil {
		return err
	}
	d, err := g.openDevice(cmd, &c.device, transport.To, remote, c.what)
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
