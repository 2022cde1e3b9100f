package libxwarpverbs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRsockets runs rsockets programs of librdmacm, and a TCP program over rsockets by librspreload.so.
func TestRsockets(t *testing.T) {
	a, b := pair(t)
	size := []string{"-S 64 -C 300", "-S 100000 -C 100", "-S 64 -C 1 -I 50"}
	for _, program := range []string{"rstream", "riostream"} {
		for _, s := range size {
			t.Run(program+" "+s, func(t *testing.T) {
				line := program + " -T v " + s // verify
				x := exchange{line, line + " -s @", `custom +\d`, `custom +\d`}
				x.run(t, a, b)
			})
		}
	}
	t.Run("rcopy", func(t *testing.T) {
		d := scratch(t)
		from, to := filepath.Join(d, "from"), filepath.Join(d, "to")
		if err := os.WriteFile(from, counted(3_000_000), 0o644); err != nil {
			t.Fatal(err)
		}
		server := b.start(t, "rcopy", a)
		b.listening(t, server)
		a.start(t, fmt.Sprintf("rcopy %s @:%s", from, to), b).wait(t)
		b.until(t, server, "has the file", func() bool { return holds(to, 3_000_000) })
	})
	t.Run("curl", func(t *testing.T) {
		all, err := filepath.Glob("/usr/lib/*/rsocket/librspreload.so")
		if err != nil || len(all) == 0 {
			t.Fatalf("no librspreload.so (librdmacm1 has it): %v", err)
		}
		to := filepath.Join(scratch(t), "to")
		with := func(e *end) string { return "env LD_PRELOAD=" + e.library + ":" + all[0] + " " }
		serve := fmt.Sprintf("%s %s 8000 3000000", own(t, "httpserver"), b.addr)
		s := b.start(t, with(b)+serve, a)
		b.listening(t, s)
		a.start(t, with(a)+"curl -sS -o "+to+" http://@:8000/", b).wait(t)
		if out := s.wait(t); !strings.Contains(out, "all is well") {
			t.Error(out)
		}
		if !holds(to, 3_000_000) {
			t.Error("what came is not what was sent")
		}
	})
}

// counted returns the content that httpserver sends.
func counted(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i % 251)
	}
	return b
}

func holds(path string, n int) bool {
	b, err := os.ReadFile(path)
	return err == nil && string(b) == string(counted(n))
}
