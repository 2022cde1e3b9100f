package preload_test

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// own builds a program of testdata.
func own(t testing.TB, name string, flags ...string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	args := append([]string{"-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror",
		"-Wno-unused-function", "-o", path, filepath.Join("testdata", name+".c"),
		"-libverbs", "-lrdmacm"}, flags...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// ownPrograms are programs of testdata, which say what they check, with the names of their tests.
var ownPrograms = map[string][]string{
	"cm":     {"request", "queues", "depth", "unbound"},
	"verbs":  {"srq", "access", "extended", "local", "resize"},
	"memory": {"stack", "silent", "early", "holes", "moved", "again", "fresh"},
	"rights": {"window", "unbound", "less", "ended"},
}

// ownTests runs the tests of one of ownPrograms.
func ownTests(t *testing.T, a, b *end, name string) {
	path := own(t, name)
	for _, test := range ownPrograms[name] {
		t.Run(test, func(t *testing.T) {
			x := exchange{path + " " + test + " s " + b.addr, path + " " + test + " c @",
				"all is well", "all is well"}
			x.run(t, a, b)
		})
	}
}

// TestOwnPrograms runs what no program of Debian's asks for.
func TestOwnPrograms(t *testing.T) {
	a, b := pair(t)
	for name := range ownPrograms {
		ownTests(t, a, b, name)
	}
}

// TestInode has a program fork while it maps a file whose inode number is that of the registered memory's.
func TestInode(t *testing.T) {
	program := own(t, "inode")
	file := filepath.Join(scratch(t), "file")
	if out, err := exec.Command(program, file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestAbsent has a program resolve the address of a host that is not there.
func TestAbsent(t *testing.T) {
	a, b := pair(t)
	line := own(t, "absent") + " " + netip.MustParseAddr(b.addr).Next().String()
	if out := a.start(t, line, b).wait(t); !strings.Contains(out, "all is well") {
		t.Error(out)
	}
}
