package libxwarpverbs_test

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// export is a function of the library, with its version in rdma-core.
type export struct{ version, name string }

// exports reads the linker's list of versions.
func exports(t *testing.T) (list []export) {
	t.Helper()
	text, err := os.ReadFile("lib/exports.map")
	if err != nil {
		t.Fatal(err)
	}
	version := ""
	line := regexp.MustCompile(`(?m)^([A-Z]+_[0-9.]+) \{|^\t(\w+);$`)
	for _, m := range line.FindAllStringSubmatch(string(text), -1) {
		if m[1] != "" {
			version = m[1]
		} else {
			list = append(list, export{version, m[2]})
		}
	}
	return list
}

// symbols returns the functions of an object and their versions.
func symbols(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	functions := map[string]string{}
	for _, s := range list {
		if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			functions[s.Name] = s.Version
		}
	}
	return functions
}

// TestLibraryHasAllVersions compares the library with its list of versions, and with rdma-core of this host: the
// library must replace each function that takes one of its objects. testdata/left.txt lists the functions that it
// leaves to rdma-core: those that take no object, and rsockets.
func TestLibraryHasAllVersions(t *testing.T) {
	pair(t)
	ours := symbols(t, library(t))
	for _, e := range exports(t) {
		if ours[e.name] != e.version {
			t.Errorf("%s has version %q, want %s", e.name, ours[e.name], e.version)
		}
	}
	text, err := os.ReadFile("testdata/left.txt")
	if err != nil {
		t.Fatal(err)
	}
	left := strings.Fields(string(text))
	for _, library := range []string{"libibverbs.so", "librdmacm.so"} {
		path, err := exec.Command("gcc", "-print-file-name="+library).Output()
		if err != nil {
			t.Fatal(err)
		}
		for name, version := range symbols(t, strings.TrimSpace(string(path))) {
			_, known := ours[name]
			known = known || slices.Contains(left, name) || strings.Contains(version, "PRIVATE")
			if !known {
				t.Errorf("rdma-core has %s of version %s, the library has not", name, version)
			}
		}
	}
}

// TestNewerFunctions runs a program with functions of newer versions of rdma-core, over imitated libraries of a future
// version (testdata/tomorrow.c).
func TestNewerFunctions(t *testing.T) {
	names, known := "-DNAMES=", exports(t)
	var words []string
	for _, e := range known {
		names += fmt.Sprintf("X(%s) ", e.name)
		words = append(words, e.version, e.name)
	}
	versions, err := os.ReadFile("lib/exports.map")
	if err != nil {
		t.Fatal(err)
	}
	scratch := scratch(t)
	script := filepath.Join(scratch, "map")
	tomorrow := []byte("\nIBVERBS_1.99 { global: ibv_*_tomorrow; };\n" +
		"RDMACM_1.99 { global: rdma_*_tomorrow; };\n")
	if err := os.WriteFile(script, append(versions, tomorrow...), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, library := range []string{"libibverbs.so", "librdmacm.so"} {
		path := filepath.Join(scratch, library+".1")
		out, err := exec.Command("gcc", "-shared", "-fPIC", "-O2", "-o", path,
			"testdata/tomorrow.c", names, "-Wl,-soname,"+library+".1",
			"-Wl,--version-script="+script).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	program := own(t, "newer", "-Wno-strict-prototypes")
	for _, style := range []string{"iwarp", "roce"} {
		t.Run(style, func(t *testing.T) {
			a, _ := pair(t)
			a.env = append(a.env, "XWARP_STYLE="+style, "LD_LIBRARY_PATH="+scratch)
			p := a.startWords(t, slices.Concat([]string{program}, words), a)
			if out := p.wait(t); !strings.Contains(out, "all is well") {
				t.Error(out)
			}
		})
	}
}
