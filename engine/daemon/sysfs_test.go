package daemon

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"xwarp/engine/daemon/control"
)

// TestSysfsFollows adds, changes and removes devices. The files must match the current devices, and be readable by all
// users with any umask.
func TestSysfsFollows(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	socket := filepath.Join(t.TempDir(), "s")
	dir := control.SysfsPath(socket)
	if err := os.MkdirAll(filepath.Join(dir, "iwarp/xwarp_old"), 0o755); err != nil {
		t.Fatal(err)
	}
	tree, err := openSysfs(socket)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []map[string]string{
		{"iwarp/a/ports/1/state": "4: ACTIVE", "iwarp/a/node_type": "4: RNIC"},
		{"iwarp/a/ports/1/state": "1: DOWN", "iwarp/a/node_type": "4: RNIC"},
		{"iwarp/b/node_type": "4: RNIC", "iwarp/b/device": "/sys/devices/b"},
		{"iwarp/b/node_type": "4: RNIC", "iwarp/b/device": "/sys/devices/c"},
		{"iwarp/b/node_type": "4: RNIC"},
		{},
	} {
		if err := tree.write(want); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			mode := fs.FileMode(0o644)
			switch {
			case e.IsDir():
				mode = 0o755
			case e.Type() == fs.ModeSymlink:
				mode = 0o777
				got[name], _ = os.Readlink(filepath.Join(dir, name))
			}
			if st, err := e.Info(); err != nil || st.Mode().Perm() != mode {
				t.Errorf("%s: %v, %v, want mode %v", name, st.Mode(), err, mode)
			}
			if strings.HasPrefix(name, "iwarp/a") && want["iwarp/a/node_type"] == "" {
				t.Errorf("%s remains of a removed device", name)
			}
			if e.Type().IsRegular() {
				b, _ := os.ReadFile(filepath.Join(dir, name))
				got[name] = string(b)
			}
			return err
		})
		for name, text := range want {
			if text[0] != '/' {
				want[name] += "\n"
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("files %v, want %v", got, want)
		}
	}
	tree.close()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Error(err)
	}
	if err := tree.write(map[string]string{"late": ""}); err != nil {
		t.Error(err)
	}
}
