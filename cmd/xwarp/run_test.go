package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"

	"xwarp/cmd/xwarp/doctor"
	"xwarp/engine/daemon/control"
)

// installed copies the test binary, as xwarp, to a new directory, optionally with the library beside it. It returns the
// path of xwarp.
func installed(t *testing.T, library bool) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "xwarp")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	from, err := os.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	if library {
		libraries, err := verbsLibraries()
		if err == nil {
			err = os.CopyFS(dir, libraries)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// verbsLibraries returns the files of the library of xwarp run. It builds them once.
var verbsLibraries = sync.OnceValues(func() (fstest.MapFS, error) {
	dir, err := os.MkdirTemp("", "xwarp-verbs")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	c := exec.Command("../libxwarp-verbs/build.sh", filepath.Join(dir, verbsLibrary))
	if out, err := c.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	files := fstest.MapFS{}
	for _, name := range []string{verbsLibrary, dlopenLibrary} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		files[name] = &fstest.MapFile{Data: b, Mode: 0o755}
	}
	return files, nil
})

// runs runs the command at the path xwarp and returns its output.
func runs(xwarp string, args ...string) (out string, err error) {
	c := exec.Command(xwarp, args...)
	c.Env = append(os.Environ(), asCommand+"=1", "XWARP_SOCKET=/nonexistent", "LD_PRELOAD=")
	b, err := c.CombinedOutput()
	return string(b), err
}

// refusing starts an imitated daemon that refuses each connection because of its protocol version. It returns its
// socket.
func refusing(t *testing.T) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			conn := control.NewSocket(c, control.MaxRequest)
			var q control.Request
			if _, b, _, err := conn.Receive(); err == nil && json.Unmarshal(b, &q) == nil {
				b, _ = json.Marshal(control.Reply{ID: q.ID, Error: &control.Error{
					Code: control.CodeVersion, Text: "this daemon speaks version 1 only",
				}})
				conn.Send(control.KindReply, b)
			}
			conn.Close()
		}
	}()
	return socket
}

// TestRun runs programs that end in all ways: xwarp run must end in the same way.
func TestRun(t *testing.T) {
	xwarp := installed(t, true)
	library := filepath.Join(filepath.Dir(xwarp), verbsLibrary)
	for _, c := range []struct {
		name, args string
		status     int
		signal     syscall.Signal
		want       string
	}{
		{name: "its output", args: "-- sh -c echo$IFS$LD_PRELOAD,$XWARP_DEVICE",
			want: library + ",\n"},
		{name: "its device", args: "--device eth7 -- sh -c echo$IFS$XWARP_DEVICE", want: "eth7\n"},
		{name: "its socket", args: "--socket /s -- sh -c echo$IFS$XWARP_SOCKET", want: "/s\n"},
		{name: "NCCL's library", args: "-- sh -c ls$IFS$NCCL_IBVERBS_LIB",
			want: dlopenLibrary + "\n"},
		{name: "its status", args: "-- sh -c exit$IFS'7'", status: 7},
		{name: "its signal", args: "-- sh -c kill$IFS-TERM$IFS$$", signal: syscall.SIGTERM},
		{name: "status over a private daemon", args: "--local -- sh -c exit$IFS'7'", status: 7},
		{name: "signal over a private daemon", args: "--local -- sh -c kill$IFS-TERM$IFS$$",
			signal: syscall.SIGTERM},
		{name: "two daemons", args: "--local --socket /s -- true", status: exitUsage,
			want: "omit --socket"},
		{name: "not there", args: "-- /nonexistent", status: 127, want: "/nonexistent"},
		{name: "no program", args: "-- /etc/passwd", status: 126, want: "permission denied"},
		{name: "nothing", args: "", status: exitUsage, want: "missing program"},
		{name: "no daemon", args: "-- ibv_devices", want: "is xwarpd running"},
		{name: "another version", args: "--socket " + refusing(t) + " -- ibv_devices",
			want: "this daemon speaks version 1 only"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := runs(xwarp, append([]string{"run"}, strings.Fields(c.args)...)...)
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			var state syscall.WaitStatus
			if exit != nil {
				state = exit.Sys().(syscall.WaitStatus)
			}
			wrong := state.ExitStatus() != c.status
			if c.signal != 0 {
				wrong = !state.Signaled() || state.Signal() != c.signal
			}
			if wrong {
				t.Errorf("it ended with %v\n%s", err, out)
			}
			if !strings.Contains(out, c.want) {
				t.Errorf("no %q in\n%s", c.want, out)
			}
		})
	}
	out, err := runs(installed(t, false), "run", "--", "true")
	if err == nil || !strings.Contains(out, "library not found: tried /") {
		t.Errorf("without a library: %v\n%s", err, out)
	}
}

// TestReplacedDaemon: doctor names a daemon whose program was replaced by an upgrade.
func TestReplacedDaemon(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		l := doctor.Line{Status: doctor.OK, What: "connected"}
		warnReplaced(&l, &control.Snapshot{Status: control.Status{Replaced: replaced}})
		if warned := l.Status == doctor.Warn && strings.Contains(l.What, "previous version") &&
			l.Remedy == "systemctl restart xwarpd"; warned != replaced {
			t.Errorf("replaced %t: %+v", replaced, l)
		}
	}
}

// TestLookRun checks that doctor finds missing requirements of xwarp run.
func TestLookRun(t *testing.T) {
	library := filepath.Join(filepath.Dir(installed(t, true)), verbsLibrary)
	for _, c := range []struct {
		name string
		line doctor.Line
		want doctor.Status
		what string
	}{
		{"library", lookLibrary(library, nil), doctor.OK, "uses version"},
		{"no library", lookLibrary("", errors.New("there is none")), doctor.Warn, "there is none"},
		{"another library", lookLibrary("/proc/self/exe", nil), doctor.Fail, "symbol"},
		{"no daemon", lookDaemon("/nonexistent"), doctor.Warn, "is it running?"},
		{"another daemon", lookDaemon(refusing(t)), doctor.Fail, "version 1 only"},
	} {
		if c.line.Status != c.want || !strings.Contains(c.line.What, c.what) || c.line.Why == "" ||
			c.line.Status != doctor.OK && c.line.Remedy == "" {
			t.Errorf("%s: %+v", c.name, c.line)
		}
	}
}
