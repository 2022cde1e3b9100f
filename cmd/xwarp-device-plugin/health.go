package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
)

var (
	errUnknown  = errors.New("the daemon was not asked yet")
	errSilent   = errors.New("the daemon does not answer (see: journalctl -u xwarpd, kubectl logs)")
	errOperator = errors.New("this is the operator's socket, which is for nobody else: --socket " +
		"has to be daemon.socket")
)

// visit is the connection to the daemon. It is kept: each new one would be a program that came, in the daemon's log.
type visit struct {
	socket       string
	replyTimeout time.Duration
	dev          *client.Device
	opening      chan opened // of an attempt that is under way: the daemon took the connection and says nothing
}

type opened struct {
	dev *client.Device
	err error
}

// follow looks at the daemon again and again until ctx is done.
func (p *plugin) follow(ctx context.Context) {
	v := visit{socket: p.cfg.socket, replyTimeout: p.cfg.replyTimeout}
	defer v.close()
	for ctx.Err() == nil {
		places, err := v.ask(ctx)
		if ctx.Err() == nil {
			p.set(places, err)
		}
		sleep(ctx, p.cfg.pace)
	}
}

// ask returns how many programs the daemon has places for.
func (v *visit) ask(ctx context.Context) (places int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, v.replyTimeout, errSilent)
	defer cancel()
	if err := alone(v.socket); err != nil {
		return 0, err
	}
	if v.dev == nil {
		if err := v.open(ctx); err != nil {
			return 0, err
		}
	}
	s, err := v.dev.Snapshot(ctx)
	if err != nil {
		v.close()
		if c := context.Cause(ctx); c != nil {
			err = c
		}
		return 0, err
	}
	return s.Places, nil
}

// open connects, and makes sure that this is not the operator's socket: what only the operator may has to be
// refused here.
func (v *visit) open(ctx context.Context) error {
	if v.opening == nil {
		c := make(chan opened, 1)
		go func() {
			d, err := client.OpenConfig(client.Config{Path: v.socket,
				Program: "xwarp-device-plugin"})
			c <- opened{d, err}
		}()
		v.opening = c
	}
	var o opened
	select {
	case o = <-v.opening:
		v.opening = nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if o.err != nil {
		return o.err
	}
	v.dev = o.dev
	err := v.dev.FlushExport(ctx, "")
	var refused *control.Error
	if errors.As(err, &refused) && refused.Code == control.CodePermission {
		return nil
	}
	v.close()
	switch {
	case err == nil || refused != nil:
		return errOperator
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

func (v *visit) close() {
	if v.dev != nil {
		v.dev.Close()
		v.dev = nil
	}
}

// alone returns an error when the directory of a socket has another one, for containers get the directory:
// root in one would be taken for the operator at the operator's socket.
func alone(socket string) error {
	dir, err := os.Open(filepath.Dir(socket))
	if err != nil {
		return err
	}
	defer dir.Close()
	list, err := dir.ReadDir(maxEntries)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for _, e := range list {
		if e.Name() != filepath.Base(socket) && (e.Type()&(fs.ModeSocket|fs.ModeSymlink) != 0 ||
			e.IsDir()) {
			return fmt.Errorf("%s holds more than the daemon's socket: %s; put the operator's "+
				"(daemon.admin_socket) and whatever else into another directory",
				filepath.Dir(socket), e.Name())
		}
	}
	if len(list) == maxEntries {
		return fmt.Errorf("%s holds %d files and more: it has to be the socket's alone",
			filepath.Dir(socket), maxEntries)
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
