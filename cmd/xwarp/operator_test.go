package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"xwarp/bench/topo"
	"xwarp/cmd/xwarp/doctor"
	"xwarp/ddp/rdmap"
	"xwarp/engine/daemon"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/view"
	"xwarp/engine/stack"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
)

// startDaemon starts a daemon on kernel sockets with an export and additional keys for [daemon], and two programs
// connected to each other.
func startDaemon(t *testing.T, keys string) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "xwarp") // short: the name of a socket has 107 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")
	file := filepath.Join(dir, "xwarp.toml")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	text := fmt.Sprintf(`[daemon]
socket = %q
grace = "1s"
%s
[[interface]]
name = "lo"
transport = "kernel"
[[export]]
name = "scratch"
listen = %q
size = "64KiB"
`, socket, keys, free.Addr().String())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Source{Path: file})
	if err != nil {
		t.Fatal(err)
	}
	d, err := daemon.New(cfg, daemon.Options{Version: "v9"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	a, b := newProgram(t, socket, "ping"), newProgram(t, socket, "pong")
	at := netip.MustParseAddrPort("127.0.0.1:0")
	verbstest.Connect(t, a, b, at)
	if _, err := b.Dev.Listen(at, verbs.ListenConfig{}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.PD.AllocMW(); err != nil {
		t.Fatal(err)
	}
	return socket
}

// newProgram connects a program with a name to the daemon at socket.
func newProgram(t *testing.T, socket, name string) *verbstest.End {
	t.Helper()
	dev, err := client.OpenConfig(client.Config{Path: socket, Program: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return verbstest.New(t, dev, 4096)
}

// runScripts runs the scripts in a directory of testdata against the daemon at socket.
func runScripts(t *testing.T, dir, socket string) {
	testscript.Run(t, testscript.Params{
		Dir:   filepath.Join("testdata", dir),
		Setup: func(e *testscript.Env) error { e.Setenv("SOCKET", socket); return nil },
		Cmds:  map[string]func(*testscript.TestScript, bool, []string){"waitfile": waitFile},
	})
}

// waitFile waits until each of the files, written by background commands, is not empty.
func waitFile(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: waitfile file...")
	}
	for _, name := range args {
		empty := func() bool {
			s, err := os.Stat(ts.MkAbs(name))
			return err != nil || s.Size() == 0
		}
		for end := time.Now().Add(30 * time.Second); empty(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				ts.Fatalf("nothing is in %s", name)
			}
		}
	}
}

// The commands that query the daemon, with text and JSON output.
func TestOperatorScripts(t *testing.T) {
	socket := startDaemon(t, "")
	runScripts(t, "operator", socket)
}

// TestConfirmScripts confirms to a daemon that waits for a confirmation.
func TestConfirmScripts(t *testing.T) {
	socket := startDaemon(t, `confirm = "1h"`)
	runScripts(t, "confirm", socket)
}

// startXDP starts two hosts, each with a daemon on AF_XDP, and a program on the first that writes to one on the second
// until the test ends.
func startXDP(t *testing.T) (socket string) {
	t.Helper()
	net := hosts(t, topo.NoOffloads, topo.NoOffloads)
	dir, err := os.MkdirTemp("", "xwarp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	var ends [2]*verbstest.End
	for i, h := range []*topo.Host{net.A, net.B} {
		socket, file := filepath.Join(dir, fmt.Sprint("s", i)),
			filepath.Join(dir, fmt.Sprint("toml", i))
		text := fmt.Sprintf("[daemon]\nsocket = %q\ngrace = \"1s\"\n[mpa]\nmarkers = "+
			"false\n[[interface]]\nname = \"eth0\"\n", socket)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(config.Source{Path: file})
		if err != nil {
			t.Fatal(err)
		}
		var d *daemon.Daemon
		if err := h.Do(func() (err error) {
			d, err = daemon.New(cfg, daemon.Options{Version: "v9"})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		ends[i] = newProgram(t, socket, []string{"writer", "target"}[i])
	}
	verbstest.Connect(t, ends[0], ends[1], netip.AddrPortFrom(net.B.Addr4.Addr(), 7174))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	t.Cleanup(func() { stop(); <-ended })
	go func() {
		defer close(ended)
		var c [1]verbs.Completion
		for ctx.Err() == nil {
			wr := verbs.SendWR{Op: rdmap.WRWrite, Flags: rdmap.Signaled,
				SGL: []verbs.SGE{ends[0].MR.SGE(0, 4096)}, RemoteSTag: ends[1].MR.STag()}
			if err := ends[0].QP.PostSend(&wr); err != nil {
				t.Error(err)
				return
			}
			if _, err := ends[0].CQ.Wait(ctx, c[:]); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	return filepath.Join(dir, "s0")
}

// The commands that query a daemon on AF_XDP, with traffic.
func TestXDPScripts(t *testing.T) {
	socket := startXDP(t)
	runScripts(t, "xdp", socket)
}

// TestDoctorCommand runs doctor in a network namespace: fixes are applied and undone.
func TestDoctorCommand(t *testing.T) {
	w := hosts(t, topo.NoOffloads, topo.Offloads{})
	state := filepath.Join(t.TempDir(), "state.json")
	doctorRun := func(args ...string) doctorInfo {
		t.Helper()
		c := onHost(t, w.A, append([]string{"doctor", "-j", "--state", state}, args...)...)
		err := c.run(t, w.A)
		var v doctorInfo
		if e := json.Unmarshal(c.stdout.Bytes(), &v); e != nil || v.OK != (err == nil) {
			t.Fatalf("doctor %q: %v, %v\n%s%s", args, err, e, &c.stdout, &c.stderr)
		}
		return v
	}
	status := func(v doctorInfo) doctor.Line {
		for _, l := range v.Lines {
			if l.Check == "ports" {
				return l
			}
		}
		return doctor.Line{}
	}
	if l := status(doctorRun("--interface", "eth0", "--port",
		"40000", "--fix")); l.Status != doctor.OK || !l.Fixed {
		t.Errorf("--fix: %+v", l)
	}
	if v := doctorRun("--undo"); len(v.Undone) != 1 {
		t.Errorf("--undo: %+v", v)
	}
	server, _ := serving(t, w.A, append(transportArgs("xdp"), t.TempDir(),
		"--listen="+w.A.Addr4.Addr().String()+":7174")...)
	want := fmt.Sprintf("used already: 7174 by xwarp.test (pid %d)", server.Process.Pid)
	if l := status(doctorRun("--port", "7174")); l.Status != doctor.OK ||
		!strings.Contains(l.What, want) {
		t.Errorf("a port of xwarp serve: %+v", l)
	}
	server.end(t)
	c := onHost(t, w.A, "doctor", "--interface", "eth0", "--port", "40000")
	if err := c.run(t, w.A); err != nil {
		t.Errorf("a warning is no failure: %v\n%s", err, &c.stderr)
	}
	for _, want := range []string{"ok     kernel", "warn   ports",
		" sysctl -w net.ipv4.ip_local_reserved_ports=40000", "why: a port of xwarp"} {
		if !strings.Contains(c.stdout.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, &c.stdout)
		}
	}
}

func snapshot(at int, frames, drops, payload uint64, state string) control.Snapshot {
	d := control.DeviceState{Name: "eth0", DeviceMode: verbs.DeviceMode{Name: "xdp",
		XDPMode: "native", Transmit: "xdp", Copy: "copy", MTU: 1500, Queues: 1}, RxFrames: frames,
		Unowned: drops, Dropped: []control.Drop{{Cause: "checksum", Frames: drops}}}
	port := control.Port{DeviceRef: control.DeviceRef{Device: "eth0"}}
	w := control.Statistic{Port: port, Part: "stack", Queue: new(0),
		Counters: control.Counters(stack.Stats{RxFrames: frames, RxBytes: frames * 1000})}
	q := control.QPState{Port: port, Owner: control.Owner{Session: 3}, Handle: 4, State: state,
		In: payload}
	return control.Snapshot{Status: control.Status{Devices: []control.DeviceState{d}},
		Time: time.Unix(int64(at), 0), Statistics: control.Statistics{w},
		Objects: control.Objects{QPs: []control.QPState{q}}}
}

func TestTopRates(t *testing.T) {
	a, b := snapshot(10, 100, 1, 1000, "RTS"), snapshot(12, 300, 5, 3000, "RTS")
	v := view.MakeTop(&a, &b)
	if q := v.Queues[0]; q.RxPPS != 100 || q.RxBPS != 800_000 {
		t.Errorf("queue: %+v", q)
	}
	if c := v.Conns[0]; c.InBPS != 8000 {
		t.Errorf("connection: %+v", c)
	}
	if d := v.Drops[0]; d.Cause != "checksum" || d.Frames != 5 || d.Rate != 2 {
		t.Errorf("drops: %+v", d)
	}
	var out strings.Builder
	if err := writeTop(&out, &v, termSize{}); err != nil ||
		!strings.Contains(out.String(), "checksum") ||
		!strings.Contains(out.String(), "800k") {
		t.Errorf("%v\n%s", err, out.String())
	}
	// A restarted daemon counts from zero: rates are not negative.
	if v := view.MakeTop(&b, &a); v.Queues[0].RxPPS != 0 {
		t.Errorf("after a restart: %+v", v.Queues[0])
	}
}

func TestMonitorDrops(t *testing.T) {
	a, b := snapshot(10, 0, 1, 0, "RTS"), snapshot(11, 0, 4, 0, "RTS")
	seen := map[string]uint64{}
	if list := newDrops(&a, seen); len(list) != 0 {
		t.Errorf("the first look tells old drops: %+v", list)
	}
	if list := newDrops(&b, seen); len(list) != 1 || list[0].Cause != "checksum" ||
		list[0].Frames != 3 || list[0].Time != b.Time {
		t.Errorf("%+v", list)
	}
}

func TestStatusOfDrops(t *testing.T) {
	s := snapshot(10, 100, 7, 0, "RTS")
	s.Devices[0].Partial = 5
	var out strings.Builder
	if err := writeStatus(&out, &s.Status); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"xdp, native, copy, transmit xdp, MTU 1500, 1 queue, 100 frames in", "dropped 7: checksum",
		"dropped 5: no TCP checksum (xwarp explain",
		"xwarp doctor --interface eth0"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %q:\n%s", want, out.String())
		}
	}
}

func TestParseQueues(t *testing.T) {
	for text, want := range map[string]string{"0": "[0]", "0-3": "[0 1 2 3]", "0,2-3": "[0 2 3]",
		"": "[]", "3-1": "", "0-99999": "", "x": ""} {
		q, err := parseQueues(text)
		if got := fmt.Sprint(q); (err == nil) != (want != "") || err == nil && got != want {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
}
