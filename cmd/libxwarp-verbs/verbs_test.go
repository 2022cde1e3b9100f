package libxwarpverbs_test

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"xwarp/bpf/needs"
	"xwarp/engine/daemon/config"
)

// own builds a program of testdata and returns its path.
func own(t testing.TB, name string, flags ...string) string {
	t.Helper()
	return build(t, name, flags, func(path string) *exec.Cmd {
		return exec.Command("gcc", append([]string{"-std=gnu11", "-g", "-O1", "-Wall", "-Wextra",
			"-Werror", "-Wno-unused-function", "-o", path, filepath.Join("testdata", name+".c"),
			"-libverbs", "-lrdmacm"}, flags...)...)
	})
}

// ownPrograms are programs of testdata with the names of their tests. Each prints "all is well" at the end.
var ownPrograms = map[string][]string{
	"cm":    {"request", "queues", "depth", "unbound", "ports"},
	"verbs": {"srq", "access", "extended", "local", "resize"},
	"memory": {"stack", "silent", "early", "holes", "moved", "again", "fresh", "shared",
		"cut"},
	"rights": {"window", "unbound", "less", "ended"},
}

// ownTests runs the tests of one of ownPrograms.
func ownTests(t *testing.T, a, b *end, name string) {
	path := own(t, name)
	for _, test := range ownPrograms[name] {
		t.Run(test, func(t *testing.T) { ownTest(t, a, b, path, test) })
	}
}

func ownTest(t *testing.T, a, b *end, path, test string) {
	x := exchange{path + " " + test + " s " + b.addr, path + " " + test + " c @", "all is well",
		"all is well"}
	x.run(t, a, b)
}

// TestOwnPrograms tests functions that no program of Debian uses.
func TestOwnPrograms(t *testing.T) {
	a, b := pair(t)
	for name := range ownPrograms {
		ownTests(t, a, b, name)
	}
}

// TestHugePages registers huge pages that are shared between processes.
func TestHugePages(t *testing.T) {
	a, b := pair(t)
	needs.HugePages(t, 4)
	ownTest(t, a, b, own(t, "memory"), "huge")
}

// TestInode runs a program that forks while it maps a file with the same inode number as the arena of registered
// memory.
func TestInode(t *testing.T) {
	program := own(t, "inode", "lib/memfd.c", "lib/shared.c", "lib/json.c")
	file := filepath.Join(scratch(t), "file")
	if out, err := exec.Command(program, file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestAbsent runs a program that resolves the address of an absent host: that must fail after its timeout and not
// earlier.
func TestAbsent(t *testing.T) {
	a, b := pair(t)
	line := own(t, "absent") + " " + netip.MustParseAddr(b.addr).Next().String()
	if out := a.start(t, line, b).wait(t); !strings.Contains(out, "all is well") {
		t.Error(out)
	}
}

// TestDlopen runs programs that load the libraries by dlopen: a C program, which also opens a plugin with
// RTLD_DEEPBIND, and Debian's Python with ctypes.
func TestDlopen(t *testing.T) {
	a, b := pair(t)
	const library = "libelsewhere.so"
	elsewhere := scratch(t)
	build := exec.Command("gcc", "-shared", "-x", "c", "/dev/null", "-o",
		filepath.Join(elsewhere, library))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	program := filepath.Join(elsewhere, "dlopen")
	build = exec.Command("gcc", "-Wall", "-Werror", "-Wl,-rpath,$ORIGIN,--enable-new-dtags", // RUNPATH
		"testdata/dlopen.c", "-o", program)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	plugin := own(t, "dlopen", "-DPLUGIN", "-shared", "-fPIC")
	line := program + " " + library + " " + plugin
	if out := a.start(t, line, b).wait(t); !strings.Contains(out, "all is well") {
		t.Error(out)
	}
	out := a.start(t, python+" "+script(t, "ctypes_devices.py"), b).wait(t)
	if !strings.Contains(out, "devices: ['xwarp_eth0']") {
		t.Error(out)
	}
}

// TestLimits checks that a device reports the limits of its user, and that the library prints once why more is
// refused.
func TestLimits(t *testing.T) {
	a, b := pair(t)
	path := filepath.Join(filepath.Dir(a.socket), "xwarp.toml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, "[limits]\nmemory = \"1MiB\"\nmrs = 5\n"...)
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Source{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.daemon.ApplyConfig(cfg); err != nil {
		t.Fatal(err)
	}
	out := a.start(t, own(t, "limits")+" 1048576 5", b).wait(t)
	for _, want := range []string{
		"all is well", "region of 1048577 bytes refused: the limit of this user is 1048576 (raise limits.memory",
		"xwarpd refused reg_mr: user 65534 has 1.00 MiB of at most 1.00 MiB memory",
	} {
		if strings.Count(out, want) != 1 {
			t.Errorf("%q is not there once in:\n%s", want, out)
		}
	}
}
