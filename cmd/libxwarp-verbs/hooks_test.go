package libxwarpverbs_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// verbsName matches functions of rdma-core.
var verbsName = regexp.MustCompile(`^_?(ibv|rdma)_`)

// TestLibcFunctionsCallTheNext calls each function of libc that the library replaces, beside another library that
// replaces all of them too: programs have memory hooks, allocators and tracers of this kind.
func TestLibcFunctionsCallTheNext(t *testing.T) {
	a, _ := pair(t)
	var names strings.Builder
	for name := range symbols(t, library(t)) {
		if !verbsName.MatchString(name) {
			fmt.Fprintf(&names, "X(%s) ", name)
		}
	}
	define := "-DNAMES=" + names.String()
	other := own(t, "next", "-DLIBRARY", "-shared", "-fPIC", "-fno-builtin", define)
	program := own(t, "next", define)
	for name, order := range map[string]string{
		"before the other": library(t) + ":" + other, "after the other": other + ":" + library(t),
	} {
		t.Run(name, func(t *testing.T) {
			e := *a
			e.library = order
			if out := e.start(t, program, a).wait(t); !strings.Contains(out, "all is well") {
				t.Error(out)
			}
		})
	}
}

// TestRegistrationCaches runs a program that learns of unmapped memory as libfabric and UCX do.
func TestRegistrationCaches(t *testing.T) {
	a, _ := pair(t)
	program := own(t, "hooks")
	for _, kind := range []string{"code", "tables"} {
		t.Run(kind, func(t *testing.T) {
			p := a.start(t, program+" "+kind, a)
			if out := p.wait(t); !strings.Contains(out, "all is well") {
				t.Error(out)
			}
		})
	}
}

// TestOpenMPI sends memory that is mapped, sent and unmapped at one address again and again. libfabric, below Open MPI,
// keeps registrations until it learns of the unmapping.
func TestOpenMPI(t *testing.T) {
	path := filepath.Join(dir, "remap")
	out, err := exec.Command("mpicc", "-Wall", "-Wextra", "-Werror", "-o", path,
		"testdata/remap.c").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for style, ranks := range map[string]int{"iwarp": 2, "roce": 4} { // see the README for more
		t.Run(style, func(t *testing.T) {
			a, _ := pair(t)
			a.env = append(a.env, "XWARP_STYLE="+style, "HOME="+scratch(t), "TMPDIR="+scratch(t))
			p := a.start(t, fmt.Sprintf("mpirun --oversubscribe -np %d --mca btl vader,self "+
				"--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include verbs;ofi_rxm "+
				"--mca osc ^ucx %s", ranks, path), a)
			if out := p.wait(t); strings.Count(out, "all is well") != ranks-1 {
				t.Error(out)
			}
		})
	}
}
