package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// changesOf returns the possible changes of a source file, also as texts of the form "line: before -> after".
func changesOf(t *testing.T, source string) (list []string, changes []*change) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"x.go": source, "go.mod": "module x\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	changes, err := enumerate(dir, []string{"."})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		list = append(list, fmt.Sprintf("%d: %s -> %s", c.line, c.before, c.after))
	}
	return list, changes
}

const source = `package x

const most = 1 << 4

var bad error

func f(a, b int, s string) (n int, err error) {
	if a < b && s+s != "x" {
		return 7, bad
	}
	for ; a == b; a++ {
		n += a - 2
	}
	return n, nil
}

func g(a int, ok bool) (int, bool) { return a, !ok }
`

func TestChanges(t *testing.T) {
	got, _ := changesOf(t, source)
	want := []string{"3: << -> >>", "3: 1 -> 2", "3: 4 -> 5",
		"8: a < b && s+s != \"x\" -> !(a < b && s+s != \"x\")", "8: && -> ||", "8: < -> <=",
		"8: < -> >=", "9: bad -> nil", "11: == -> !=", "11: ++ -> --", "12: += -> -=",
		"12: - -> +", "12: 2 -> 3", "14: n -> (n) + 1", "17: a -> (a) + 1", "17: !ok -> !(!ok)"}
	slices.Sort(got)
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestShuffled checks that an edit elsewhere in the file does not alter the order of the other changes, and that the
// seed does.
func TestShuffled(t *testing.T) {
	keys := func(source string, seed uint64) (keys []string) {
		_, changes := changesOf(t, source)
		for _, c := range shuffled(changes, seed) {
			if c.function == "f" {
				keys = append(keys, c.key())
			}
		}
		return keys
	}
	changed := strings.Replace(source, "const most = 1 << 4\n", "var more, most = 2 << 5, 1\n", 1)
	if d := cmp.Diff(keys(source, 1), keys(changed, 1)); d != "" {
		t.Error(d)
	}
	if cmp.Equal(keys(source, 1), keys(source, 2)) {
		t.Error("the seed changes nothing")
	}
}

// TestEquivalent checks that readEquivalent accepts only entries that have a reason and occur once. An entry for a
// package with changes must be one of these changes; entries for other packages are ignored.
func TestEquivalent(t *testing.T) {
	_, changes := changesOf(t, source)
	key := changes[0].key()
	for text, want := range map[string]string{
		"# nothing\n":                         "",
		key + "\n\tit is\n\tequal here\n":     "",
		key + "\n":                            "no reason given",
		key + "\n\twhy\n" + key + "\n\twhy\n": "duplicate entry",
		filepath.Dir(changes[0].file) + "/x.go: f: if a > b: 4: > -> <\n\twhy\n": "no longer a " +
			"possible change",
		"another/x.go: f: if a > b: 4: > -> <\n\twhy\n": "",
	} {
		path := filepath.Join(t.TempDir(), "list")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		reasons, err := readEquivalent(path, changes)
		if want == "" && err != nil || want != "" && (err == nil ||
			!strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if strings.Contains(text, "equal here") && reasons[key] != "it is equal here" {
			t.Errorf("the reason is %q", reasons[key])
		}
	}
}

// TestListIsCurrent checks that every entry of equivalent.txt is a possible change of the current code.
func TestListIsCurrent(t *testing.T) {
	t.Chdir("../..")
	changes, err := enumerate(".", protocols)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readEquivalent(listPath, changes); err != nil {
		t.Errorf("%v\nUpdate the entry if its reason still holds, otherwise remove it.", err)
	}
}

// TestSaid checks how parseOutcome classifies outputs. A timeout, or tests that did not run, must not count as a failed
// test, because a busy machine may be the cause.
func TestSaid(t *testing.T) {
	for out, want := range map[string]struct {
		result outcome
		by     string
	}{
		"ok  \tx/y\t1.0s\n    --- FAIL: TestA/b (0.0s)\nFAIL\nFAIL\tx/z\t1.0s\n": {failed,
			"TestA/b"},
		"panic: index out of range\n\ngoroutine 1\nFAIL\tx/z\t1.0s\n": {failed,
			"panic: index out of range"},
		"signal: killed\nFAIL\tx/z\t300.0s\n": {failed, "signal: killed"},
		"# x/z\nz.go:1:1: no\nFAIL\tx/z [build failed]\nFAIL\n": {noBuild,
			"FAIL\tx/z [build failed]"},
		"panic: test timed out after 1s\nFAIL\tx/z\t1.0s\n": {undecided, "wall-clock timeout"},
		"no space left on device\n": {undecided,
			"go test: no space left on device"},
		"": {undecided, "go test: "},
	} {
		if result, by := parseOutcome(out); result != want.result || by != want.by {
			t.Errorf("%q: %d, %q; want %d, %q", out, result, by, want.result, want.by)
		}
	}
}
