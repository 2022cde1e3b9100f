package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Undo writes only the files of its check, even if the state file lists others.
func TestUndoOwnFilesOnly(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	for check, file := range map[string]string{
		"hugepages": "/sys/.." + victim,
		"ports":     "/proc/sys/../.." + victim,
		"busy-poll": hugeDir + "nr_hugepages", // a setting, but another check's
		"rss":       victim,
	} {
		state := filepath.Join(t.TempDir(), "dir", "state.json")
		if err := appendRecord(state, record{Check: check, Interface: "lo",
			Before: settings{file: "0"}}); err != nil {
			t.Fatal(err)
		}
		u, err := Undo(state)
		if err != nil || len(u) != 1 ||
			!strings.Contains(u[0].Error, "not a file that this check changes") &&
				!strings.Contains(u[0].Error, "has no fix") {
			t.Errorf("%s with %s: %+v, %v", check, file, u, err)
		}
	}
	if _, err := os.Stat(victim); err == nil {
		t.Error("the file was written")
	}
}

// A file that is not a kernel setting is neither written nor created.
func TestWriteSetting(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := writeSetting(name, "1"); !os.IsNotExist(err) {
		t.Errorf("a file that is not there: %v", err)
	}
	os.WriteFile(name, nil, 0o600)
	if err := writeSetting(name, "1"); err == nil ||
		!strings.Contains(err.Error(), "not a kernel setting") {
		t.Errorf("a file on the disk: %v", err)
	}
}

// Root neither reads from nor writes to a directory that another user can write to.
func TestStateOfAnotherUser(t *testing.T) {
	dir := t.TempDir()
	state := filepath.Join(dir, "state.json")
	os.WriteFile(state, []byte(`[{"check":"ports","before":{}}]`), 0o644)
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Fatalf("this test needs root: %v", err)
	}
	if u, err := Undo(state); err == nil || len(u) != 0 ||
		!strings.Contains(err.Error(), "owned by user 65534") {
		t.Errorf("Undo: %+v, %v", u, err)
	}
	if err := appendRecord(state, record{Check: "x"}); err == nil {
		t.Error("written")
	}
	if DefaultState == "/var/lib/xwarp" || strings.HasPrefix(DefaultState, "/var/lib/xwarp/") {
		t.Error("the default lies in the daemon's own directory")
	}
}
