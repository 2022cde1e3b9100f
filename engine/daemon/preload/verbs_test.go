package preload_test

import (
	"os"
	"os/exec"
	"path/filepath"
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

// TestOwnPrograms runs what no program of Debian's asks for: testdata has the programs, which say what they check.
func TestOwnPrograms(t *testing.T) {
	a, b := pair(t)
	for name, tests := range map[string][]string{
		"verbs":  {"srq", "access", "extended", "local", "resize"},
		"memory": {"stack", "silent", "early", "holes", "moved", "again", "fresh"},
		"rights": {"window", "unbound", "less", "ended"},
	} {
		path := own(t, name)
		for _, test := range tests {
			t.Run(test, func(t *testing.T) {
				x := exchange{path + " " + test + " s " + b.addr, path + " " + test + " c @",
					"all is well", "all is well"}
				x.run(t, a, b)
			})
		}
	}
}
