package libxwarpverbs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"xwarp/bpf/needs"
)

// TestThreads runs a program with many threads under the thread sanitizer.
func TestThreads(t *testing.T) {
	needs.Long(t)
	a, b := pair(t)
	lib := library(t, "-fsanitize=thread")
	// The sanitizer needs fixed parts of the address space.
	line := "setarch -R " + own(t, "threads", "-fsanitize=thread") + " threads "
	for _, e := range []*end{a, b} {
		e.library, e.env = lib, []string{tsanOptions(t, lib)}
	}
	x := exchange{line + "s " + b.addr, line + "c @", "all is well", "all is well"}
	x.run(t, a, b)
}

// tsanOptions returns the setting of the environment with which ThreadSanitizer ends a program at the first race. lib
// is the path of the library. One kind of report is wrong: the library unmaps memory by libc's own munmap, which the
// sanitizer does not see. If read_maps then gets its buffer at the same address, it seems to race with the former
// owner.
func tsanOptions(t *testing.T, lib string) string {
	t.Helper()
	wrong := filepath.Join(filepath.Dir(lib), "suppressions")
	if err := os.WriteFile(wrong, []byte("race:^read_maps$\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return "TSAN_OPTIONS=halt_on_error=1 suppressions=" + wrong
}

// TestListenersComeAndGo runs a program that closes listeners while peers connect to them, under each sanitizer. The
// library pauses after each unlock, so that other threads can change data that it still uses.
func TestListenersComeAndGo(t *testing.T) {
	needs.Long(t)
	pause, err := filepath.Abs("testdata/pause.h")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"address", "thread"} {
		t.Run(kind, func(t *testing.T) {
			a, b := pair(t)
			flag := "-fsanitize=" + kind
			lib := library(t, flag, "-include", pause)
			a.start(t, own(t, "listeners")+" c @", b)
			b.library = sanitizer(t, kind) + ":" + lib
			b.env = []string{"ASAN_OPTIONS=detect_leaks=0", tsanOptions(t, lib)}
			x := b.start(t, "setarch -R "+own(t, "listeners", flag)+" s "+b.addr, a)
			if out := x.wait(t); !strings.Contains(out, "all is well") {
				t.Errorf("the server:\n%s", out)
			}
		})
	}
}
