package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"xwarp/engine/daemon/client"
)

// output is the log of a daemon.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestService runs the daemon as a systemd service from start to stop, with good and bad reloads in between. A second
// daemon must fail and say only that another one runs.
func TestService(t *testing.T) {
	dir := t.TempDir()
	socket, file := filepath.Join(dir, "s"), filepath.Join(dir, "xwarp.toml")
	const nic = "[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n"
	text := fmt.Sprintf("[daemon]\nsocket = %q\ndrop_rights = false\nlog_format = \"json\"\n",
		socket)
	write(t, file, text+nic)
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"),
		Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", filepath.Join(dir, "notify"))
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", fmt.Sprint(os.Getpid()))
	heard := func(want string) {
		t.Helper()
		manager.SetReadDeadline(time.Now().Add(20 * time.Second))
		b := make([]byte, 1024)
		for {
			n, err := manager.Read(b)
			if err != nil {
				t.Fatalf("waiting for %q: %v", want, err)
			}
			if strings.Contains(string(b[:n]), want) {
				return
			}
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var log output
	status := make(chan int, 1)
	go func() {
		status <- run(ctx, []string{"--config", file, "--set", "limits.pds=1"}, &log, &log)
	}()
	heard("READY=1")
	heard("WATCHDOG=1")
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if _, err := dev.AllocPD(); err != nil {
		t.Fatal(err)
	}
	if _, err := dev.AllocPD(); err == nil {
		t.Error("a limit from the command line does not count")
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	reload := func(text string) {
		t.Helper()
		write(t, file, text)
		if err := self.Signal(hangUp); err != nil {
			t.Fatal(err)
		}
		heard("RELOADING=1\nMONOTONIC_USEC=")
		heard("READY=1")
	}
	reload(text + nic + "[[peer]]\nprefix = \"192.0.2.0/24\"\nallow = false\n")
	reload(text + nic + "[exports]\n")
	reload(text + nic + "[[export]]\nname = \"far\"\nlisten = \"192.0.2.1:7174\"\nsize = \"1MiB\"\n")
	var second output // a second xwarpd, started by hand; its export would fail, too
	if got := run(ctx, []string{"--config", file}, &second, &second); got != exitFailed {
		t.Errorf("a second daemon: exit status %d", got)
	}
	if lines := strings.Split(strings.TrimSpace(second.String()), "\n"); len(lines) != 1 ||
		!strings.Contains(lines[0], "another xwarpd serves it") {
		t.Errorf("a second daemon does not only say that another runs:\n%s", second.String())
	}
	stop()
	heard("STOPPING=1")
	if got := <-status; got != exitOK {
		t.Errorf("exit status %d", got)
	}
	if n := strings.Count(log.String(), `"msg":"reload incomplete: everything but what the error names was applied",`+
		`"error":"export far: `); n != 1 {
		t.Errorf("a failure is in the log %d times:\n%s", n, log.String())
	}
	_, end, _ := strings.Cut(log.String(), `"msg":"stopping"`)
	if strings.Contains(end, "ERROR") || strings.Contains(end, "WARN") ||
		strings.Contains(log.String(), "closed network connection") {
		t.Errorf("the end looks like a failure:\n%s", log.String())
	}
	for _, want := range []string{`"msg":"configuration reloaded"`,
		`unknown key \"exports\": did you mean \"export\"?`, `"msg":"stopping"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, log.String())
		}
	}
}

func TestExitStatus(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.toml")
	write(t, bad, "[daemon]\nlog_levle = \"info\"\n")
	good := filepath.Join(t.TempDir(), "good.toml")
	write(t, good, "[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n")
	empty := filepath.Join(t.TempDir(), "empty.toml")
	write(t, empty, "")
	for _, tc := range []struct {
		args   string
		status int
		want   string
	}{
		{"--help", exitOK, "xwarp config default"},
		{"--version", exitOK, "xwarpd "},
		{"--colour", exitUsage, "colour"},
		{"start", exitUsage, "unexpected argument"},
		{"--config " + bad, exitConfig,
			`bad.toml:2: unknown key "daemon.log_levle": did you mean "daemon.log_level"?`},
		{"--config /no/such", exitConfig, "xwarp config default > /no/such"},
		{"--check --config " + empty, exitConfig, "no [[interface]] configured"},
		{"--check --config " + good, exitOK, ""},
		{"--check --set http.listen=0.0.0.0:29479 --config " + good, exitOK,
			`xwarpd: warning: http.listen = "0.0.0.0:29479": metrics are exposed`},
		{"--config " + empty, exitConfig, "no [[interface]] configured"},
	} {
		var log output
		if got := run(t.Context(), strings.Fields(tc.args), &log, &log); got != tc.status ||
			!strings.Contains(log.String(), tc.want) {
			t.Errorf("xwarpd %s: status %d, want %d; it says %q, want %q", tc.args, got, tc.status,
				log.String(), tc.want)
		}
	}
}
