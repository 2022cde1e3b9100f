package vm

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// golden is a file of testdata with expected observations: the name of each case, followed by its indented observation.
type golden struct {
	want map[string]string // the observations in the file by case
	seen strings.Builder   // the content of the file by what was observed now
}

// check runs one case and compares its observation with the file. run waits until siw has been quiet for the given
// time. On a busy machine that may be too short, so a case that differs is repeated with a longer time.
func (g *golden) check(t *testing.T, file, name string, run func(quiet time.Duration) string) {
	t.Helper()
	if g.want == nil && !*update {
		g.load(t, file)
	}
	got := run(quiet)
	for patience := 2 * quiet; !*update && got != g.want[name] &&
		patience <= 4*quiet; patience *= 2 {
		t.Logf("%s: again with more patience", name)
		got = run(patience)
	}
	if d := cmp.Diff(strings.Split(g.want[name], "\n"), strings.Split(got, "\n")); d != "" &&
		!*update {
		t.Errorf("%s: siw's answer differs from testdata/%s (-update rewrites it):\n%s",
			name, file, d)
	}
	g.seen.WriteString(name + "\n" + got)
}

func (g *golden) load(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile("../testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	g.want = map[string]string{}
	name := ""
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, " ") {
			name = strings.TrimSpace(line)
			continue
		}
		g.want[name] += line
	}
}

// done writes the observations to the file if -update is given and the test has not failed.
func (g *golden) done(t *testing.T, file string) {
	t.Helper()
	if *update && !t.Failed() {
		if err := os.WriteFile("../testdata/"+file, []byte(g.seen.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
