package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "drivers.json")
	first, err := loadTable(file, "kernel 7")
	if err != nil {
		t.Fatal(err)
	}
	first.set("igb", "one", cellOf("12 / 15 MiB/s", nil))
	first.set("igb", "two", cellOf("", fmt.Errorf("%w: no zero-copy", errNotOffered)))
	first.set("igb", "three", cellOf("", nil))
	if err := first.save(file); err != nil {
		t.Fatal(err)
	}
	tab, err := loadTable(file, "kernel 7")
	if err != nil {
		t.Fatal(err)
	}
	tab.set("igb", "three", cellOf("", errors.Join(errors.New("a|b"), errors.New("c"))))
	tab.set("e1000e", "one", cellOf("", nil))
	text := tab.markdown([]string{"igb", "never tried", "e1000e"}, []string{"one", "two", "three"})
	want := `| | igb | e1000e |
|---|---|---|
| one | ok 12 / 15 MiB/s | ok |
| two | not offered: no zero-copy |  |
| three | FAILED: a\|b; c |  |
`
	if !strings.HasSuffix(text, want) || !strings.Contains(text, "kernel 7") {
		t.Errorf("the table is\n%s\nwant at its end\n%s", text, want)
	}
	if n := tab.failed(); n != 1 {
		t.Errorf("%d failed, want 1", n)
	}
	if tab, err = loadTable(file, "kernel 8"); err != nil || len(tab.Columns) != 0 {
		t.Errorf("a table of another kernel counts: %v, %v", tab.Columns, err)
	}
}

// What the engine says of a mode that is not there is told from every other error.
func TestRefusal(t *testing.T) {
	const refused = "xwarp serve: xdp device eth0: queue 0: ring: eth0 queue 0: operation not supported: the driver has no zero-copy mode (ring mode auto copies instead)\n"
	err := refusal("some line\n"+refused, nil)
	if !errors.Is(err, errNotOffered) || !strings.HasSuffix(err.Error(), "not offered: operation not supported: the driver has no zero-copy mode") {
		t.Errorf("a refusal is %v", err)
	}
	if err := refusal("xwarp put: connection refused", nil); errors.Is(err, errNotOffered) {
		t.Errorf("a failure is %v", err)
	}
}

// A mode that the driver is known to have must not be refused.
func TestExpect(t *testing.T) {
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
		if cell := cellOf("", r.expect(c.mode, c.mtu, no)); cell.Failed != c.failed {
			t.Errorf("%s: %+v", c.name, cell)
		}
	}
}

// A fault of the driver is not xwarp's failure, but only in the rows that it explains.
func TestBlame(t *testing.T) {
	k := kind{fault: "it forgets", faultRows: regexp.MustCompile("link down")}
	reset := errors.New("reset by the peer")
	got := []cell{
		cellOf("", k.blame("link down for 2 s", reset)), cellOf("", k.blame("soak", reset)),
		cellOf("", kind{}.blame("link down for 2 s", reset)), cellOf("", k.blame("link down", nil)),
	}
	want := []cell{{Text: "no: it forgets: reset by the peer"}, {"FAILED: reset by the peer", true},
		{"FAILED: reset by the peer", true}, {Text: "ok"}}
	if !slices.Equal(got, want) {
		t.Errorf("cells are %v, want %v", got, want)
	}
}
