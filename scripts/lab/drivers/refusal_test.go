package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"xwarp/scripts/lab/table"
)

// TestWrapNotOffered checks that wrapNotOffered recognizes the engine's message about a missing ring mode, and no other
// error.
func TestWrapNotOffered(t *testing.T) {
	const refused = "xwarp serve: xdp device eth0: queue 0: ring: eth0 queue 0: operation not supported: the driver has no zero-copy mode (ring mode auto copies instead)\n"
	err := wrapNotOffered(errors.New("some line\n" + refused))
	if !errors.Is(err, errNotOffered) || !strings.HasSuffix(err.Error(), "not offered: operation not supported: the driver has no zero-copy mode") {
		t.Errorf("a refusal is %v", err)
	}
	err = wrapNotOffered(errors.New("xwarp cp: connection refused"))
	if errors.Is(err, errNotOffered) {
		t.Errorf("a failure is %v", err)
	}
}

// TestRequireMode checks that the refusal of a mode is a failure if and only if the driver is known to have the mode.
func TestRequireMode(t *testing.T) {
	no := fmt.Errorf("%w: no zero-copy", errNotOffered)
	for _, c := range []struct {
		name   string
		kind   kind
		mode   string
		mtu    int
		failed bool
	}{
		{"has none", kind{}, "zero-copy", 1500, false},
		{"has it", kind{zeroCopy: true}, "zero-copy", 1500, true},
		{"not for jumbo frames", kind{zeroCopy: true}, "zero-copy", 9000, false},
		{"everybody copies", kind{}, "copy", 1500, true},
	} {
		r := rig{kind: c.kind}
		if got := table.CellOf("", r.requireMode(c.mode, c.mtu, no)); got.Failed != c.failed {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// TestBlame checks that a known bug of a driver excuses an error, but only in the rows that it explains and with its
// error text.
func TestBlame(t *testing.T) {
	k := kind{fault: "it forgets", faultRows: regexp.MustCompile("link down"),
		faultSign: regexp.MustCompile("reset")}
	reset := errors.New("reset by the peer")
	got := []table.Cell{
		table.CellOf("", k.blame("link down for 2 s", reset)),
		table.CellOf("", k.blame("soak", reset)),
		table.CellOf("", kind{}.blame("link down for 2 s", reset)),
		table.CellOf("", k.blame("link down", errors.New("no answer"))),
		table.CellOf("", k.blame("link down", nil)),
	}
	failed := table.Cell{Text: "FAILED: reset by the peer", Failed: true}
	want := []table.Cell{{Text: "no: it forgets: reset by the peer"}, failed, failed,
		{Text: "FAILED: no answer", Failed: true}, {Text: "ok"}}
	if !slices.Equal(got, want) {
		t.Errorf("cells are %v, want %v", got, want)
	}
}
