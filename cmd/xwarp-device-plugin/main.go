// Command xwarp-device-plugin is a Kubernetes device plugin that offers the xwarpd of a node as xwarp.io/socket. A
// container that requests it gets the directory of its own control socket mounted, with its own limits, and needs no
// privilege. Other sockets of the daemon are never exposed.
//
// It is a separate program because the kubelet API needs gRPC, which xwarp and xwarpd do not link.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"xwarp/cmd/program"
	"xwarp/engine/daemon/control"
	"xwarp/engine/plain"
)

// Exit statuses.
const (
	exitOK    = program.ExitOK
	exitUsage = program.ExitUsage
)

// config holds the command line settings.
type config struct {
	daemonSocket string // control socket of the daemon
	kubelet      string // directory of the plugin sockets of the kubelet
	pace         time.Duration
	replyTimeout time.Duration
	log          *slog.Logger
}

func main() { program.Main(run) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c := config{pace: pace, replyTimeout: replyTimeout}
	f := flag.NewFlagSet("xwarp-device-plugin", flag.ContinueOnError)
	f.StringVar(&c.daemonSocket, "socket", control.DefaultPath, "control `socket` of xwarpd, to "+
		"query its health and the number of sockets for containers (tenants.count)")
	f.StringVar(&c.kubelet, "kubelet-dir", v1beta1.DevicePluginPath,
		"`directory` of the sockets of the kubelet and its plugins")
	if status, done := program.Parse(f, "xwarp-device-plugin offers control sockets of xwarpd to "+
		"Kubernetes as the resource "+resource+".", args, stdout, stderr); done {
		return status
	}
	if !filepath.IsAbs(c.daemonSocket) {
		fmt.Fprintf(stderr, "xwarp-device-plugin: --socket %q: need an absolute path\n",
			c.daemonSocket)
		return exitUsage
	}
	c.log = slog.New(slog.NewJSONHandler(plain.JSON(stderr), nil))
	newPlugin(&c).serveLoop(ctx)
	return exitOK
}
