package daemon_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"xwarp/bench/topo"
	"xwarp/engine/daemon"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/verbs"
)

// running returns a daemon that runs until the test ends.
func running(t *testing.T, cfg *config.Loaded) *daemon.Daemon {
	t.Helper()
	o := daemon.Options{Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Load: func() (*config.Loaded, error) {
			return config.Load(config.Source{Path: cfg.Path, Partial: true})
		}}
	d, err := daemon.New(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return d
}

// TestLateInterface: the daemon waits for an interface that is missing at the start, and meanwhile serves the other
// one. Once the interface appears, its export works.
func TestLateInterface(t *testing.T) {
	l := &twoLinks{t: t, tn: hosts(t, topo.Options{Queues: 2, IPv4Only: true,
		OffloadsA: topo.NoOffloads})}
	l.start("")
	if _, err := l.dial(0); err != nil {
		t.Errorf("the interface that is there: %v", err)
	}
	dev, err := client.Open(control.OperatorPath(l.socket))
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	s, err := dev.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Devices) != 2 || !strings.Contains(s.Devices[1].Error, "no such device") ||
		s.Devices[1].Reopened != 0 {
		t.Errorf("devices: %+v", s.Devices)
	}
	l.addSecond()
	if _, ok := eventually(func() bool {
		_, err := l.dial(1)
		return err == nil
	}); !ok {
		t.Error("the late interface is not served")
	}
	if s, err = dev.Snapshot(t.Context()); err != nil || s.Devices[1].Error != "" ||
		s.Devices[1].Reopened != 0 {
		t.Errorf("the late interface: %+v, %v", s.Devices, err)
	}
}

// TestLateExport: an export whose directory is missing, or whose port is in use, waits with an error in its state, and
// works once the directory exists or the port is free. The others work meanwhile.
func TestLateExport(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	good, elsewhere := freePort(t), freePort(t)
	dir := filepath.Join(t.TempDir(), "late")
	cfg, _ := load(t, fmt.Sprintf("[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n"+
		"[[export]]\nname = \"port\"\nlisten = %q\nsize = 4096\n"+
		"[[export]]\nname = \"directory\"\nlisten = %q\nserve = \"directory\"\npath = %q\n"+
		"[[export]]\nname = \"good\"\nlisten = %q\nsize = 4096\n", taken.Addr(), elsewhere,
		dir, good))
	d := running(t, cfg)
	if _, err := dialExport(t, good); err != nil {
		t.Errorf("the available export: %v", err)
	}
	for name, want := range map[string]string{"port": "address already in use",
		"directory": "no such file or directory", "good": ""} {
		s := d.Snapshot()
		i := slices.IndexFunc(s.Exports, func(e control.ExportState) bool { return e.Name == name })
		if e := s.Exports[i].Error; e != want && !(want != "" && strings.Contains(e, want)) {
			t.Errorf("export %s: %q, want %q", name, e, want)
		}
	}
	e := event(d.Snapshot(), "cannot open export")
	if e == nil || e.Export != "directory" || !strings.Contains(e.Detail["next"], "install -d") {
		t.Errorf("the line of the log: %+v", e)
	}
	taken.Close()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, ok := eventually(func() bool {
		return !slices.ContainsFunc(d.Snapshot().Exports, func(e control.ExportState) bool {
			return e.Error != ""
		})
	}); !ok {
		t.Errorf("exports: %+v", d.Snapshot().Exports)
	}
	if _, err := dialExport(t, netip.MustParseAddrPort(taken.Addr().String())); err != nil {
		t.Errorf("the export whose port was in use: %v", err)
	}
}

// TestPartialReload: a reload applies the valid settings. It returns an error for each invalid export, which keeps its
// old settings.
func TestPartialReload(t *testing.T) {
	ports := []netip.AddrPort{freePort(t), freePort(t), freePort(t)}
	export := func(name string, at netip.AddrPort, more string) string {
		return fmt.Sprintf("[[export]]\nname = %q\nlisten = %q\n%s\n", name, at, more)
	}
	base := func(socket string) string {
		return fmt.Sprintf("[daemon]\nsocket = %q\n[[interface]]\nname = \"lo\"\ntransport = "+
			"\"kernel\"\n", socket)
	}
	cfg, socket := load(t, "[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n"+
		export("kept", ports[0], "size = 4096"))
	running(t, cfg)
	dev, err := client.Open(control.OperatorPath(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	reload := func(text string) control.ReloadResult {
		t.Helper()
		if err := os.WriteFile(cfg.Path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := dev.Reload(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := reload(base(socket) + export("kept", ports[0], "serve = \"directory\"") +
		export("new", ports[1], "size = 4096") +
		"[[interface]]\nname = \"other\"\ntransport = \"kernel\"\n" +
		export("elsewhere", ports[2], "size = 4096\ninterface = \"other\""))
	text := strings.Join(r.Errors, "\n")
	if !r.Applied || len(r.Errors) != 2 || !strings.Contains(text, "export[0].path") ||
		!strings.Contains(text, "interface other is not open: a new [[interface]] needs") ||
		!slices.Contains(r.Restart, "interface") {
		t.Errorf("a file with two exports that are wrong: %+v", r)
	}
	for _, at := range ports[:2] {
		if _, err := dialExport(t, at); err != nil {
			t.Errorf("export at %v: %v", at, err)
		}
	}
	if r = reload("[export\n"); r.Applied || len(r.Errors) == 0 {
		t.Errorf("a broken file: %+v", r)
	}
	if r = reload(base(socket) + export("kept", ports[0], "size = 4096")); !r.Applied ||
		len(r.Errors) != 0 {
		t.Errorf("a right file: %+v", r)
	}
	if _, err := dialExport(t, ports[1]); err == nil {
		t.Error("an export that is not in the file any more serves")
	}
}

// TestExportOfBothFamilies: an export at ":port" is one region for IPv4 and IPv6 peers.
func TestExportOfBothFamilies(t *testing.T) {
	port := freePort(t).Port()
	d, _ := kernel(t, fmt.Sprintf("[[export]]\nname = \"x\"\nlisten = \":%d\"\nsize = 4096\n",
		port))
	four, err := dialExport(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port))
	if err != nil {
		t.Fatal(err)
	}
	six, err := dialExport(t, netip.AddrPortFrom(netip.IPv6Loopback(), port))
	if err != nil {
		t.Fatal(err)
	}
	copy(four.Mem, "one region")
	for _, step := range []struct {
		p  *peer
		op verbs.SendWR
	}{
		{four, verbs.SendWR{Op: verbs.WRWrite, SGL: []verbs.SGE{four.MR.SGE(0, 10)}}},
		{four, verbs.SendWR{Op: verbs.WRRead, SGL: []verbs.SGE{four.MR.SGE(1024, 10)}}},
		{six, verbs.SendWR{Op: verbs.WRRead, SGL: []verbs.SGE{six.MR.SGE(1024, 10)}}},
	} {
		step.op.RemoteSTag, step.op.RemoteTO = step.p.info.STag, step.p.info.Base
		if err := step.p.do(step.op); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(six.Mem[1024:][:10]); got != "one region" {
		t.Errorf("over IPv6 it has %q", got)
	}
	if s := d.Snapshot().Exports; len(s) != 1 || s[0].Listen != fmt.Sprintf(":%d", port) ||
		s[0].Connections != 2 {
		t.Errorf("state: %+v", s)
	}
}
