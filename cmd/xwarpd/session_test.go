package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestOperatorSession searches ancestor processes like those of sudo, in a simulated /proc.
func TestOperatorSession(t *testing.T) {
	proc := t.TempDir()
	process := func(pid, parent int, name, environ string) {
		t.Helper()
		dir := filepath.Join(proc, strconv.Itoa(pid))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "stat"), strconv.Itoa(pid)+" ("+name+") S "+
			strconv.Itoa(parent)+" 1 1 0 -1")
		write(t, filepath.Join(dir, "environ"), environ)
	}
	process(1, 0, "systemd", "PATH=/bin\x00")
	process(10, 1, "bash", "TERM=xterm\x00SSH_CONNECTION=192.0.2.9 40000 192.0.2.1 22\x00")
	process(11, 10, "sudo) S 1 (", "PATH=/bin\x00")
	process(12, 11, "xwarpd", "PATH=/bin\x00SUDO_USER=x\x00")
	process(13, 1, "xwarpd", "INVOCATION_ID=0\x00")
	process(14, 10, "xwarpd", "SSH_CONNECTION=fe80::9 40000 fe80::1%eth0 22\x00")
	process(15, 1, "xwarpd", "SSH_CONNECTION=unknown\x00")
	process(16, 16, "circle", "")
	for pid, want := range map[int]string{10: "192.0.2.1", 12: "192.0.2.1", 13: "",
		14: "fe80::1%eth0", 15: "", 16: "", 99: ""} {
		var a netip.Addr
		if want != "" {
			a = netip.MustParseAddr(want)
		}
		if got := operatorSession(proc, pid); got != a {
			t.Errorf("process %d: %v, want %q", pid, got, want)
		}
	}
}

// TestUnconfirmedStatus: a daemon that is not confirmed in time ends with a status after which systemd does not restart
// it.
func TestUnconfirmedStatus(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "xwarp.toml")
	write(t, file, "[daemon]\nsocket = \""+filepath.Join(dir, "s")+"\"\ndrop_rights = "+
		"false\n[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n")
	var log output
	if got := run(t.Context(), []string{"--config", file, "--set", "daemon.confirm=1ms"}, &log,
		&log); got != exitUnconfirmed {
		t.Errorf("status %d\n%s", got, log.String())
	}
	if want := `msg="xwarpd ends" error="not confirmed in time: 1ms"`; !strings.Contains(
		log.String(), want) {
		t.Errorf("the log lacks %s:\n%s", want, log.String())
	}
}

// The unit restarts after each status, except those that a restart cannot fix. It restarts after status 2, that of a
// Go process that panics.
func TestUnitRestarts(t *testing.T) {
	b, err := os.ReadFile("../../scripts/package/xwarpd.service")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("\nRestartPreventExitStatus=%d %d %d\n", exitUsage, exitUnconfirmed,
		exitConfig)
	if exitUsage == 2 || exitConfig == 2 || !strings.Contains(string(b), want) {
		t.Errorf("the unit lacks %q:\n%s", want, b)
	}
}
