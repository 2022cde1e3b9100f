package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/device"
	"xwarp/engine/testkit/rawclient"
	"xwarp/engine/verbs"
	"xwarp/ring"
)

// daemonOn returns a daemon with one device on kernel sockets.
func daemonOn(t *testing.T) (d *Daemon, socket string) {
	t.Helper()
	dir := t.TempDir()
	path, socket := filepath.Join(dir, "xwarp.toml"), filepath.Join(dir, "socket")
	text := fmt.Sprintf("[daemon]\nsocket = %q\n[[interface]]\nname = \"lo\"\ntransport = "+
		"\"kernel\"\n", socket)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Source{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if d, err = New(cfg, Options{Log: slog.New(slog.NewTextHandler(t.Output(), nil))}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, socket
}

// brittle is a port whose Flush panics on demand.
type brittle struct {
	ring.Port
	broken *atomic.Bool
}

func (p *brittle) Flush() ring.State {
	if p.broken.Load() {
		panic("made to fail")
	}
	return p.Port.Flush()
}

// TestDeviceFails: a device fails, beside a working one or as the only one. The sessions of its programs end, and its
// exports have an error in their state. Programs of the other device continue. The daemon ends only if it has no device
// left. It then records one event for the stop, without the error, which its caller logs.
func TestDeviceFails(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	for _, only := range []bool{false, true} {
		t.Run(fmt.Sprintf("only=%v", only), func(t *testing.T) {
			tn, err := topo.New(topo.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { tn.Close() })
			var broken atomic.Bool
			d, socket := daemonOn(t)
			o := device.Opener{Config: d.opener.Config, Peers: d.peers, Log: d.log,
				Wrap: func(_ int, p ring.Port) (ring.Port, error) {
					return &brittle{p, &broken}, nil
				}}
			var v *device.Device
			if err := tn.A.Do(func() (err error) {
				v, err = o.Open(config.Interface{Name: "eth0", Transport: config.TransportXDP,
					Queues: []int{0}, Restart: config.RestartNever}, nil)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if d.devices = append(d.devices, v); only {
				if err := d.devices[0].Core.Close(); err != nil {
					t.Fatal(err)
				}
				d.devices = d.devices[1:]
			}
			if err := d.exports.Start(config.Export{Name: "x", Interface: "eth0",
				Listen: config.Address(netip.AddrPortFrom(tn.A.Addr4.Addr(), 7174)),
				Serve:  config.ServeMemory, Size: 4096, Access: config.AccessRead}); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			ended := make(chan error, 1)
			go func() { ended <- d.Run(ctx) }()
			r := rawclient.Dial(t, socket, "eth0")
			if err := r.Ask(control.OpAllocPD, &struct{}{}); err != nil {
				t.Fatal(err)
			}
			broken.Store(true)
			if _, _, _, err := r.Receive(); err == nil {
				t.Error("the program's session did not end")
			}
			if only {
				if err := <-ended; !errors.Is(err, errNoDevice) ||
					!errors.Is(err, verbs.ErrDefect) {
					t.Errorf("the daemon ended with %v", err)
				}
				told := 0
				for _, e := range d.Snapshot().Events {
					if e.Event == "stopping" {
						told++
						if e.Error != "" {
							t.Errorf("the error that ended the daemon is logged twice, here and by its caller: %s",
								e.Error)
						}
					}
				}
				if told != 1 {
					t.Errorf("%d events report the stop", told)
				}
				return
			}
			other := rawclient.Dial(t, socket, "lo")
			if err := other.Ask(control.OpAllocPD, &struct{}{}); err != nil {
				t.Errorf("a program of the other device: %v", err)
			}
			if s := d.Snapshot(); s.Devices[1].Error == "" || s.Exports[0].Error == "" ||
				d.healthy() != nil {
				t.Errorf("device: %q, export: %q, healthy: %v", s.Devices[1].Error,
					s.Exports[0].Error, d.healthy())
			}
			stop()
			if err := <-ended; err != nil {
				t.Errorf("the daemon ended with %v", err)
			}
		})
	}
}
