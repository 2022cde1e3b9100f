package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestRepository checks that command reqs finds no fault in this repository: every requirement has its code and its
// tests, or a reason for having none, and the table is up to date.
func TestRepository(t *testing.T) {
	faults, err := run("../..", false)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		t.Error(f)
	}
}

func TestParse(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"# nothing\n\nrfc1-1-1 | MUST | p.F | text", ""},
		{"rfc1-1.2-1 | MUST NOT | n/a | text | why", ""},
		{"rfc1-1-1 | MUST | p.F", "line 1: want id"},
		{"\nrfc1 | MUST | p.F | text", "line 2: \"rfc1\" is not a requirement id"},
		{"rfc1-1-1 | SHALL | p.F | text", "not a level"},
		{"rfc1-1-1 | MUST | p.F | text\nrfc1-1-1 | MUST | p.F | text",
			"line 2: duplicate id rfc1-1-1"},
		{"rfc1-1-1 | MUST | open | text", "a reason is required"},
		{"rfc1-1-1 | MUST | p.F | text | why", "a reason is required"},
	} {
		_, err := parse(strings.NewReader(tc.text))
		if got := ""; err != nil {
			got = err.Error()
			if tc.want == "" || !strings.Contains(got, tc.want) {
				t.Errorf("%q: %v, want %q", tc.text, err, tc.want)
			}
		} else if tc.want != "" {
			t.Errorf("%q is accepted, want %q", tc.text, tc.want)
		}
	}
}

// repository writes a small repository with the given requirements and tests, and returns its directory. The part of
// tests after a line <pkt> becomes a file of packet scripts.
func repository(t *testing.T, requirements, tests string) string {
	t.Helper()
	tests, scripts, _ := strings.Cut(tests, "\n<pkt>\n")
	root := t.TempDir()
	for name, text := range map[string]string{
		"p/testdata/a.pkt":              scripts,
		"scripts/reqs/requirements.txt": requirements,
		tableFile:                       "head\n" + begin + "\n" + end + "\ntail\n",
		"p/p.go": "package p\n\ntype T[X any] struct{}\n\nfunc (t *T[X]) " +
			"M() {}\n\ntype S struct{ f int }\n\nconst C = 1\n",
		"p/p_test.go":      "package p\n" + tests,
		"engine/README.md": "`p.T.M` in p/p.go is called by p.T, and p.C.\n",

		"engine/daemon/README.md":   "p.S.f\n",
		"engine/daemon/SECURITY.md": "shown\n",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestCheck(t *testing.T) {
	const good = "\n// TestA.\n//\n//req:rfc1-1-1\nfunc TestA(t *T) {}\n"
	for _, tc := range []struct{ name, requirements, tests, want string }{
		{"good", "rfc1-1-1 | MUST | p.T.M | text", good, ""},
		{"no test", "rfc1-1-1 | MUST | p.C | text", "\nfunc TestA(t *T) {}\n",
			"no test has //req:rfc1-1-1"},
		{"no code", "rfc1-1-1 | MUST | p.T.N | text", good, "no such code: p.T.N"},
		{"unknown", "rfc1-1-2 | MUST | n/a | text | why", good,
			"which is not in requirements.txt"},
		{"reason and test", "rfc1-1-1 | MUST | open | text | why", good, "remove the reason"},
		{"not at a test", "rfc1-1-1 | MUST | p.C | text", good +
			"\n//req:rfc1-1-1\nfunc helper() {}\n", "belongs in the comment of a test"},
		{"by a script", "rfc1-1-1 | MUST | p.C | text",
			"\n<pkt>\n#req:rfc1-1-1\n# RFC 1: x\nscript a-$b\n\tlisten\n", ""},
		{"by an unknown script", "rfc1-1-1 | MUST | n/a | text | why",
			"\n<pkt>\n#req:rfc1-1-2\nscript a\n", "p a names rfc1-1-2, which"},
		{"not at a script", "rfc1-1-1 | MUST | n/a | text | why",
			"\n<pkt>\n#req:rfc1-1-1\n\nscript a\n", "belongs in the comment of a script"},
		{"twice", "rfc1-1-1 | MUST | p.C | text",
			"\n//req:rfc1-1-1 rfc1-1-1\nfunc TestA(t *T) {}\n", "twice"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := repository(t, tc.requirements, tc.tests)
			faults, err := run(root, true)
			if err != nil {
				t.Fatal(err)
			}
			if tc.want == "" && len(faults) > 0 || tc.want != "" &&
				!slices.ContainsFunc(faults, func(f string) bool {
					return strings.Contains(f, tc.want)
				}) {
				t.Errorf("%q, want %q", faults, tc.want)
			}
		})
	}
}

// TestWalk checks that names of missing code and missing tests in a document are faults.
func TestWalk(t *testing.T) {
	root := repository(t, "rfc1-1-1 | MUST | open | text | why", "")
	text := []byte("first\np.T.M\n  p.T.N of p.go\np TestNone\n")
	if err := os.WriteFile(filepath.Join(root, "engine/README.md"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	faults, err := run(root, true)
	if want := []string{"engine/README.md: no test TestNone in p",
		"engine/README.md:3: no such name: p.T.N"}; err != nil ||
		!slices.Equal(faults, want) {
		t.Errorf("%q, %v; want %q", faults, err, want)
	}
}

// TestTablesOfFiles checks that differences between the tables of a document and the repository are faults.
func TestTablesOfFiles(t *testing.T) {
	root := repository(t, "rfc1-1-1 | MUST | open | text | why", "")
	if err := os.MkdirAll(filepath.Join(root, "engine/a"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"a.go", "b.go", "a_test.go"} {
		file := filepath.Join(root, "engine/a", f)
		if err := os.WriteFile(file, []byte("package a\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const head, sep = "| package | contents |\n", "|---|---|\n"
	const files = head + sep + "| `a` | |\n\n| files of `engine/a` | |\n" + sep
	for _, c := range []struct{ text, want string }{
		{files + "| `a.go`, `b.go` | |\n", ""},
		{head + sep + "| `engine/a`, `b` | |\n", "engine/README.md: no such folder: engine/b"},
		{head + sep + "| `engine` | `a` |\n", "engine/README.md: lacks engine/a"},
		{files + "| `a.go`, `c.go` | `b.go` |\n",
			"engine/README.md: lacks engine/a/b.go; engine/README.md: no file c.go in engine/a"},
	} {
		faults := checkTables(root, "engine/README.md", c.text)
		slices.Sort(faults)
		if got := strings.Join(faults, "; "); got != c.want {
			t.Errorf("%s\n%q, want %q", c.text, got, c.want)
		}
	}
}

// TestStale changes the input of the table and checks that there is a fault until the table is written again.
func TestStale(t *testing.T) {
	root := repository(t, "rfc5044-1-1 | MUST | p.C | a | b", "")
	os.WriteFile(filepath.Join(root, "scripts/reqs/requirements.txt"),
		[]byte("rfc5044-1-1 | MUST | p.C | text"), 0o644)
	os.WriteFile(filepath.Join(root, "p/p_test.go"),
		[]byte("package p\n\n//req:rfc5044-1-1\nfunc TestA(t *T) {}\n"), 0o644)
	if faults, err := run(root, false); err != nil || len(faults) != 1 ||
		!strings.Contains(faults[0], "not up to date") {
		t.Fatalf("%q, %v", faults, err)
	}
	if faults, err := run(root, true); err != nil || len(faults) > 0 {
		t.Fatalf("%q, %v", faults, err)
	}
	if faults, err := run(root, false); err != nil || len(faults) > 0 {
		t.Fatalf("after writing: %q, %v", faults, err)
	}
	text, err := os.ReadFile(filepath.Join(root, tableFile))
	if err != nil || !strings.HasPrefix(string(text), "head\n") ||
		!strings.HasSuffix(string(text), end+"\ntail\n") ||
		!strings.Contains(string(text), "| 1-1 | MUST text | `p.C` | p TestA |") {
		t.Errorf("%v\n%s", err, text)
	}
	os.WriteFile(filepath.Join(root, tableFile), []byte("no marks"), 0o644)
	if faults, err := run(root, true); err != nil || len(faults) != 1 {
		t.Errorf("without marks: %q, %v", faults, err)
	}
}
