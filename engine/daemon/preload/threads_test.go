package preload_test

import "testing"

// TestThreads runs a program with many threads under the sanitizer of threads.
func TestThreads(t *testing.T) {
	a, b := pair(t)
	lib := library(t, "libthreads.so", "-fsanitize=thread")
	// The sanitizer wants fixed places of the address space, which must be free.
	line := "setarch -R " + own(t, "threads", "-fsanitize=thread") + " threads "
	for _, e := range []*end{a, b} {
		e.library, e.env = lib, []string{"TSAN_OPTIONS=halt_on_error=1"}
	}
	x := exchange{line + "s " + b.addr, line + "c @", "all is well", "all is well"}
	x.run(t, a, b)
}
