package table

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
)

func TestTable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "drivers.json")
	first, err := Load(file, "kernel 7")
	if err != nil {
		t.Fatal(err)
	}
	first.Set("igb", "one", CellOf("12 / 15 MiB/s", nil))
	first.Set("igb", "two", CellOf("", fmt.Errorf("%w: no zero-copy", ErrNotOffered)))
	first.Set("igb", "three", CellOf("", nil))
	if err := first.Save(file); err != nil {
		t.Fatal(err)
	}
	tab, err := Load(file, "kernel 7")
	if err != nil {
		t.Fatal(err)
	}
	tab.Set("igb", "three", CellOf("", errors.Join(errors.New("a|b"), errors.New("c"))))
	tab.Set("e1000e", "one", CellOf("", nil))
	text := tab.Markdown([]string{"igb", "never tried", "e1000e"}, []string{"one", "two", "three"})
	want := `| | igb | e1000e |
|---|---|---|
| one | ok 12 / 15 MiB/s | ok |
| two | not offered: no zero-copy |  |
| three | FAILED: a\|b; c |  |
`
	if text != want {
		t.Errorf("the table is\n%s\nwant\n%s", text, want)
	}
	if n := tab.Failed(); n != 1 {
		t.Errorf("%d failed, want 1", n)
	}
	if tab, err = Load(file, "kernel 8"); err != nil || len(tab.Columns) != 0 {
		t.Errorf("a table of another kernel counts: %v, %v", tab.Columns, err)
	}
}
