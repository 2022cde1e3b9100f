package daemon_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"xwarp/engine/daemon"
	"xwarp/engine/daemon/config"
)

// TestDropRights: a daemon that has dropped all capabilities but CAP_NET_ADMIN and CAP_IPC_LOCK still serves programs,
// with new connections.
func TestDropRights(t *testing.T) {
	tn := hosts(t)
	path, socket := writeConfig(t, ethTable)
	d := start(t, "/proc/self/exe", 0, "daemon", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(),
		tn.A.Fd()), path)
	if got := d.line(); got != "ready" {
		t.Fatalf("daemon: %q", got)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		// Only bits 12 and 14, CAP_NET_ADMIN and CAP_IPC_LOCK. Programs with cgo, which -race needs, cannot drop the
		// others on all threads.
		if strings.HasPrefix(line, "CapPrm:") &&
			strings.TrimSpace(line[7:]) != "0000000000005000" && !usesCgo {
			t.Errorf("capabilities of the daemon: %s", line)
		}
	}
	at := netip.AddrPortFrom(tn.B.Addr4.Addr(), 7174)
	responder(t, embedded(t, tn.B.Do), at, 2)
	exe := publicExe(t)
	for range 2 {
		c := start(t, exe, nobody, "transfer", socket, at.String())
		if got := c.line(); got != "done" {
			t.Fatalf("program: %q", got)
		}
		c.Wait()
	}
}

// TestDropRightsWithCgo: with cgo there are threads that the runtime does not know. DropRights must then fail instead
// of dropping capabilities on some threads only.
func TestDropRightsWithCgo(t *testing.T) {
	if !usesCgo {
		return // DropRights would drop the capabilities of this test
	}
	if err := daemon.DropRights(&config.Config{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("with cgo: %v", err)
	}
}
