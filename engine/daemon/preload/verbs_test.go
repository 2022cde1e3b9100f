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
	args := append([]string{"-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-o", path,
		filepath.Join("testdata", name+".c"), "-libverbs", "-lrdmacm"}, flags...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestOwnProgram runs what no program of Debian's asks for: testdata/verbs.c says what it checks.
func TestOwnProgram(t *testing.T) {
	a, b := pair(t)
	path := own(t, "verbs")
	for _, name := range []string{"srq", "access", "extended", "local", "resize"} {
		t.Run(name, func(t *testing.T) {
			x := exchange{path + " " + name + " s " + b.addr, path + " " + name + " c @",
				"all is well", "all is well"}
			x.run(t, a, b)
		})
	}
}
