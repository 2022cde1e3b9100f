package main

import (
	"context"
	"errors"
	"time"

	"xwarp/engine/daemon/client"
)

var (
	errUnknown = errors.New("xwarpd not queried yet")
	errSilent  = errors.New("xwarpd does not respond (see: journalctl -u xwarpd, kubectl logs)")
	errNone    = errors.New("xwarpd has no sockets for containers: tenants.count in its " +
		"configuration is 0")
)

// daemonConn is the connection to the daemon. It is kept open, because the daemon logs each new one.
type daemonConn struct {
	socket       string
	replyTimeout time.Duration
	dev          *client.Device
	opening      chan opened // receives the result of connecting, which may outlive a call of ask; nil: not connecting
}

type opened struct {
	dev *client.Device
	err error
}

// tenants describes the control sockets that a daemon has for containers: their number and their directory.
type tenants struct {
	count     int
	directory string
}

// daemonLoop polls the daemon until ctx is done, and stores each reply or error with set.
func (p *plugin) daemonLoop(ctx context.Context) {
	v := daemonConn{socket: p.cfg.daemonSocket, replyTimeout: p.cfg.replyTimeout}
	defer v.close()
	for ctx.Err() == nil {
		now, err := v.ask(ctx)
		if ctx.Err() == nil {
			p.set(now, err)
		}
		sleep(ctx, p.cfg.pace)
	}
}

// ask queries the tenants of the daemon, and connects first if there is no connection. It fails with errNone if the
// daemon has no tenants, and with errSilent if it does not reply in time.
func (v *daemonConn) ask(ctx context.Context) (t tenants, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, v.replyTimeout, errSilent)
	defer cancel()
	if v.dev == nil {
		if err := v.dial(ctx); err != nil {
			return t, err
		}
	}
	s, err := v.dev.Snapshot(ctx)
	if err != nil {
		v.close()
		if c := context.Cause(ctx); c != nil {
			err = c
		}
		return t, err
	}
	if s.Tenants == 0 {
		return t, errNone
	}
	return tenants{s.Tenants, s.TenantDirectory}, nil
}

func (v *daemonConn) dial(ctx context.Context) error {
	if v.opening == nil {
		c := make(chan opened, 1)
		go func() {
			d, err := client.OpenConfig(client.Config{Path: v.socket,
				Program: "xwarp-device-plugin"})
			c <- opened{d, err}
		}()
		v.opening = c
	}
	select {
	case o := <-v.opening:
		v.opening = nil
		v.dev = o.dev
		return o.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (v *daemonConn) close() {
	if v.dev != nil {
		v.dev.Close()
		v.dev = nil
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
