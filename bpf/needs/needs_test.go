package needs

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// recorder records the decision of skipOrFail. Skipf and Fatalf do not return, as in a real test.
type recorder struct {
	testing.TB
	skipped, failed bool
}

type stop struct{}

func (r *recorder) Helper()               {}
func (r *recorder) Skipf(string, ...any)  { r.skipped = true; panic(stop{}) }
func (r *recorder) Fatalf(string, ...any) { r.failed = true; panic(stop{}) }

func decide(err error, absent ...error) (r recorder) {
	defer func() {
		if p := recover(); p != nil && p != (stop{}) {
			panic(p)
		}
	}()
	skipOrFail(&r, "thing", err, absent...)
	return r
}

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		name            string
		err             error
		skipped, failed bool
	}{
		{"works", nil, false, false},
		{"absent", fmt.Errorf("probe: %w", unix.EAFNOSUPPORT), true, false},
		{"no right", unix.EPERM, false, true},
		{"something else", unix.ENOMEM, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := decide(c.err, unix.EAFNOSUPPORT)
			if r.skipped != c.skipped || r.failed != c.failed {
				t.Errorf("skipped %v failed %v, want %v %v", r.skipped, r.failed, c.skipped,
					c.failed)
			}
		})
	}
}

// TestHere fails on a machine where the privileged tests of the other packages cannot run.
func TestHere(t *testing.T) {
	for name, need := range map[string]func(testing.TB){"xdp": XDP, "xsk": XSK, "netns": NetNS} {
		t.Run(name, func(t *testing.T) { need(t) })
	}
}
