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
	what    string // name of the argument or flag that sets server, for errors
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

// hintIfRefused adds a hint to the error of a refused connection: that the program who may not be running there.
func hintIfRefused(err error, who string) error {
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, tcp.CauseRefused) {
		return fmt.Errorf("%w: is %s running at that address and port?", err, who)
	}
	return err
}

// useClient is a function that uses an open device and a client connected to the server at an address.
type useClient func(context.Context, verbs.Device, netip.AddrPort, *transfer.Client) error

// reach connects to the server and calls use. It tries the addresses of the server, as RFC 8305 asks for, until one
// connects. It tries one after the other, because two devices cannot share an interface. Each attempt has an equal
// share of the remaining time.
func (c *clientFlags) reach(cmd *cobra.Command, g *global, use useClient) error {
	ctx := cmd.Context()
	list, err := resolve(ctx, c.server)
	if err != nil {
		return err
	}
	var failed error
	for i, left := 0, c.timeout; i < len(list); i++ {
		begin := time.Now()
		client, err := c.reachAt(cmd, g, list[i], left/time.Duration(len(list)-i), use)
		if client || ctx.Err() != nil {
			return err
		}
		left = max(left-time.Since(begin), time.Second)
		if len(list) > 1 {
			err = fmt.Errorf("%v: %w", list[i], err)
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// reachAt opens the device towards an address of the server, connects, and calls use. It reports whether it connected.
func (c *clientFlags) reachAt(cmd *cobra.Command, g *global, at netip.AddrPort,
	limit time.Duration, use useClient) (ok bool, err error) {
	ctx := cmd.Context()
	d, err := g.openDevice(cmd, &c.device, transport.InterfaceToward, at, c.what)
	if err != nil {
		return false, err
	}
	defer closing(&err, d)
	watch, stop := context.WithCancel(ctx)
	defer stop()
	go transport.Watch(watch, d, func(text string) { say(cmd, "%s", text) })
	client, err := dial(ctx, d, at, limit)
	if err != nil {
		return false, err
	}
	defer closing(&err, client)
	return true, use(ctx, d, at, client)
}

// dial connects to an address of a server.
func dial(ctx context.Context, d verbs.Device, at netip.AddrPort, limit time.Duration) (
	*transfer.Client, error) {
	tooLong := fmt.Errorf("connect timed out after %v", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, tooLong)
	defer cancel()
	client, err := transfer.Dial(ctx, d, at, 0)
	if errors.Is(err, tooLong) && !errors.Is(err, unix.EHOSTUNREACH) {
		err = fmt.Errorf("%w: is xwarp serve running there? Does a firewall block the port? (--timeout changes the limit)",
			err)
	}
	return client, hintIfRefused(err, "xwarp serve")
}
