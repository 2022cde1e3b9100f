// Command xwarp-device-plugin offers a node's xwarpd to Kubernetes as xwarp.io/socket. A container that asks
// for it has the directory of a control socket mounted that is its own, with limits of its own at the daemon, and needs
// no privilege; the daemon's other sockets are never handed out.
//
// It is a program of its own because the kubelet's API brings gRPC, which neither xwarp nor xwarpd has.
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

// config holds the settings of the command line.
type config struct {
	socket       string // of the daemon
	kubelet      string // the kubelet's directory of plugins
	pace         time.Duration
	replyTimeout time.Duration
	log          *slog.Logger
}

func main() { program.Main(run) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c := config{pace: pace, replyTimeout: replyTimeout}
	f := flag.NewFlagSet("xwarp-device-plugin", flag.ContinueOnError)
	f.StringVar(&c.socket, "socket", control.DefaultPath, "the daemon's control `socket`, to ask "+
		"how it is and how many sockets it has for containers (tenants.count)")
	f.StringVar(&c.kubelet, "kubelet-dir", v1beta1.DevicePluginPath,
		"`directory` in which the kubelet and its plugins have their sockets")
	if status, done := program.Parse(f, "xwarp-device-plugin offers control sockets of xwarpd to "+
		"Kubernetes as "+resource+".", args, stdout, stderr); done {
		return status
	}
	if !filepath.IsAbs(c.socket) {
		fmt.Fprintf(stderr, "xwarp-device-plugin: --socket %q: an absolute path\n", c.socket)
		return exitUsage
	}
	c.log = slog.New(slog.NewJSONHandler(plain.JSON(stderr), nil))
	newPlugin(&c).serveLoop(ctx)
	return exitOK
}
