package daemon_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"xwarp/engine/budget"
	"xwarp/engine/daemon"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
)

const tenantNIC = "[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n[[user]]\nname = \"tenants\"\n" +
	"sessions = 1\n"

// TestTenants: only its own limit of sessions applies to a tenant, even if others have taken all that daemon.clients
// allows. It sees no programs of others. It may not capture, although its UID and group are those of root and of
// daemon.capture_group.
func TestTenants(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tenants")
	d, socket := kernelKeys(t, "clients = 1\ncapture_group = \"0\"\n", fmt.Sprintf(
		"[[user]]\nname = \"tenants\"\nsessions = 1\n[tenants]\ncount = 2\ndirectory = %q\n", dir))
	open := func(path string) (*client.Device, error) {
		dev, err := client.Open(path)
		if err == nil {
			t.Cleanup(func() { dev.Close() })
		}
		return dev, err
	}
	var first *client.Device
	for _, path := range []string{socket, control.TenantPath(dir, "tenant-0"),
		control.TenantPath(dir, "tenant-1")} {
		dev, err := open(path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		first = dev
	}
	if _, err := open(control.TenantPath(dir, "tenant-1")); err == nil ||
		!strings.Contains(err.Error(), "tenant-1 has 1 of at most 1 sessions") {
		t.Errorf("a second program of a tenant: %v", err)
	}
	s, err := first.Snapshot(t.Context())
	if err != nil || len(s.Sessions) != 1 || s.Sessions[0].Tenant != "tenant-1" || s.Tenants != 2 {
		t.Errorf("a tenant sees %+v, %v", s, err)
	}
	if _, err := first.Capture(t.Context(), control.CaptureArgs{}); err == nil {
		t.Error("a tenant may capture, for its users are members of a group of the host's")
	}
	if n := len(d.Snapshot().Users) / int(budget.Kinds); n != 3 {
		t.Errorf("the operator sees %d accounts", n)
	}
}

// TestTenantDirectory: the directory is closed to others, even if it existed before. A directory that belongs to
// another user is refused.
func TestTenantDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tenants")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	text := tenantNIC + fmt.Sprintf("[tenants]\ncount = 1\ndirectory = %q\n", dir)
	for range 2 { // the second daemon uses the directory of the first
		cfg, _ := load(t, text)
		d, err := daemon.New(cfg, daemon.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]os.FileMode{dir: 0o700, dir + "/tenant-0": 0o755,
			dir + "/tenant-0/control.sock": 0o666} {
			if st, err := os.Stat(path); err != nil || st.Mode().Perm() != want {
				t.Errorf("%s: %v, %v", path, st, err)
			}
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cfg, _ := load(t, text)
	if d, err := daemon.New(cfg, daemon.Options{}); err == nil ||
		!strings.Contains(err.Error(), "belongs to user 65534") {
		t.Errorf("the directory of another user: %v", err)
		if err == nil {
			d.Close()
		}
	}
}
