// Command xwarp-device-plugin offers a node's xwarpd to Kubernetes as xwarp.io/socket. A container that asks
// for it has the directory of a control socket mounted that is its own, with limits of its own at the daemon, and needs
// no privilege; the daemon's other sockets are never handed out.
//
// It is a program of its own because the kubelet's API brings gRPC, which neither xwarp nor xwarpd has.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"xwarp/engine/daemon/control"
	"xwarp/engine/plain"
	"xwarp/engine/version"
)

// Exit statuses.
const (
	exitOK    = 0
	exitUsage = 2
)

// config is what the command line says.
type config struct {
	socket       string // of the daemon
	kubelet      string // the kubelet's directory of plugins
	pace         time.Duration
	replyTimeout time.Duration
	log          *slog.Logger
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal ends it at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c := config{pace: pace, replyTimeout: replyTimeout}
	f := flag.NewFlagSet("xwarp-device-plugin", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&c.socket, "socket", control.DefaultPath, "the daemon's control `socket`, to ask "+
		"how it is and how many sockets it has for containers (tenants.count)")
	f.StringVar(&c.kubelet, "kubelet-dir", v1beta1.DevicePluginPath,
		"`directory` in which the kubelet and its plugins have their sockets")
	show := f.Bool("version", false, "print the version and end")
	f.Usage = func() {
		fmt.Fprintf(stderr,
			"xwarp-device-plugin offers control sockets of xwarpd to Kubernetes as %s.\n\n", resource)
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitOK
		}
		return exitUsage
	}
	switch {
	case *show:
		fmt.Fprintf(stdout, "xwarp-device-plugin %s, %s, %s/%s\n", version.Get().Version,
			runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return exitOK
	case f.NArg() > 0:
		fmt.Fprintf(stderr, "xwarp-device-plugin: %q is one argument too many\n", f.Arg(0))
		return exitUsage
	case !filepath.IsAbs(c.socket):
		fmt.Fprintf(stderr, "xwarp-device-plugin: --socket %q: an absolute path\n", c.socket)
		return exitUsage
	}
	c.log = slog.New(slog.NewJSONHandler(plain.JSON(stderr), nil))
	newPlugin(&c).run(ctx)
	return exitOK
}
