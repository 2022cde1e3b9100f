package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// repository is the root of the repository.
const repository = "../.."

// goTestFlags are the flags of go test itself that commands of this project use.
var goTestFlags = strings.Fields("bench benchtime c count coverpkg coverprofile cpuprofile exec fuzz fuzzminimizetime " +
	"fuzztime json o p race run short skip timeout v")

var (
	joined        = regexp.MustCompile(`\\\n\s*`)
	variable      = regexp.MustCompile(`(?m)^([A-Z_]+) +\?= (.*)$`)
	reference     = regexp.MustCompile(`\$\(([A-Z_]+)\)`)
	goTest        = regexp.MustCompile("(?:\\$\\(GO\\)|\\bgo) test ([^\n`]*)")
	word          = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)
	group         = regexp.MustCompile(`\(([^()]*)\)\??`)
	function      = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example|Benchmark)\w*)\(`)
	flagOfTest    = regexp.MustCompile(`flag\.\w+\((?:&\w+, )?"([\w.]+)"`)
	testName      = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`)
	shellVariable = regexp.MustCompile(`\$[A-Za-z{(]`)
	makeTarget    = regexp.MustCompile("(?m)(?:`|^    )make ([a-z][a-z-]*)")
)

// tests are the names of the test functions of some packages, and of the flags that these packages define.
type tests struct{ functions, flags []string }

// testsOf returns the tests of the package in dir, or of all packages in and below dir if all.
func testsOf(t *testing.T, dir string, all bool) (v tests) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != dir && (!all || d.Name()[0] == '.' || d.Name() == "build") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range function.FindAllStringSubmatch(string(text), -1) {
			v.functions = append(v.functions, m[1])
		}
		for _, m := range flagOfTest.FindAllStringSubmatch(string(text), -1) {
			v.flags = append(v.flags, m[1])
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return v
}

// alternatives splits a pattern of go test at each |, also inside groups, and removes what selects subtests.
func alternatives(pattern string) (all []string) {
	if at := group.FindStringSubmatchIndex(pattern); at != nil {
		for _, a := range strings.Split(pattern[at[2]:at[3]], "|") {
			all = append(all, alternatives(pattern[:at[0]]+a+pattern[at[1]:])...)
		}
		return all
	}
	pattern, _, _ = strings.Cut(pattern, "/")
	return strings.Split(pattern, "|")
}

// unmatched returns a message for each alternative of a pattern that matches none of tests.
func unmatched(pattern string, tests []string) (wrong []string) {
	for _, a := range alternatives(pattern) {
		r, err := regexp.Compile(a)
		if err != nil || a != "^$" && !slices.ContainsFunc(tests, r.MatchString) {
			wrong = append(wrong, "no test matches "+a+" of "+pattern)
		}
	}
	return wrong
}

// wrongWords returns a message for each pattern and each flag in the words of a go test command that match nothing in
// the packages of that command. in returns the tests of a package, or of a tree if all.
func wrongWords(words []string, in func(dir string, all bool) tests) (wrong []string) {
	var have tests
	var patterns, flags []string
	everywhere := in(".", true).functions // -skip is shared by commands for several packages
	for i, w := range words {
		w = strings.Trim(w, `'"`)
		after := ""
		if i+1 < len(words) {
			after = strings.Trim(words[i+1], `'"`)
		}
		switch dir, isPath := strings.CutPrefix(w, "./"); {
		case isPath && (i == 0 || words[i-1] != "-o"):
			dir, all := strings.CutSuffix(dir, "...")
			v := in(strings.TrimSuffix(dir, "/"), all)
			have.functions = append(have.functions, v.functions...)
			have.flags = append(have.flags, v.flags...)
		case w == "-run":
			patterns = append(patterns, after)
		case w == "-skip":
			wrong = append(wrong, unmatched(after, everywhere)...)
		case strings.HasPrefix(w, "-"):
			flags = append(flags, w[1:])
		}
	}
	for _, p := range patterns {
		wrong = append(wrong, unmatched(p, have.functions)...)
	}
	for _, f := range flags {
		name, _, _ := strings.Cut(f, "=")
		if !slices.Contains(goTestFlags, name) && !slices.Contains(have.flags, name) {
			wrong = append(wrong, "no flag -"+name)
		}
	}
	return wrong
}

// commands returns the words of each go test command in a text, with references to variables of the Makefile replaced.
func commands(text, makefile string) (all [][]string) {
	values := map[string]string{}
	for _, m := range variable.FindAllStringSubmatch(joined.ReplaceAllString(makefile, ""), -1) {
		values[m[1]] = m[2]
	}
	text = joined.ReplaceAllString(text, " ")
	for _, m := range goTest.FindAllStringSubmatch(text, -1) {
		line := reference.ReplaceAllStringFunc(m[1], func(s string) string {
			return values[s[2:len(s)-1]]
		})
		line = strings.ReplaceAll(line, "$$", "$")
		all = append(all, word.FindAllString(line, -1))
	}
	return all
}

// TestCommands checks the go test commands of the Makefile, the CI, the scripts and the manuals. Each alternative of
// -run must match a test of the command's packages, and each of -skip some test. Each flag must be one of go test or of
// these packages. Otherwise a command could pass without running anything.
func TestCommands(t *testing.T) {
	makefile := read(t, "Makefile")
	known := map[string]tests{}
	in := func(dir string, all bool) tests {
		v, ok := known[dir]
		if !ok {
			v = testsOf(t, filepath.Join(repository, dir), all)
			known[dir] = v
		}
		return v
	}
	checked := 0
	for _, name := range documents(t, "Makefile", ".ci/run", "*.sh", "*.md") {
		for _, words := range commands(read(t, name), makefile) {
			if slices.ContainsFunc(words, shellVariable.MatchString) {
				continue
			}
			for _, w := range wrongWords(words, in) {
				t.Errorf("%s: go test %s: %s", name, strings.Join(words, " "), w)
			}
			checked++
		}
	}
	if checked < 20 {
		t.Errorf("only %d commands were found", checked)
	}
	for _, bad := range []string{"-run '^TestNoSuch$' ./tcp", "-run 'AccECN|NoSuchName' ./tcp",
		"-no-flag 3 ./tcp"} {
		if len(wrongWords(word.FindAllString(bad, -1), in)) != 1 {
			t.Errorf("%s is accepted", bad)
		}
	}
}

// TestNames checks that the tests and the targets of make that manuals name exist.
func TestNames(t *testing.T) {
	all := testsOf(t, repository, true).functions
	makefile := read(t, "Makefile")
	for _, name := range documents(t, "Makefile", "*.md") {
		if strings.HasSuffix(name, "CHANGELOG.md") || strings.HasPrefix(name, "bench/results/") {
			continue // may name tests and targets that were removed since
		}
		text := read(t, name)
		for _, test := range testName.FindAllString(text, -1) {
			if test != "TestX" && !slices.Contains(all, test) {
				t.Errorf("%s: there is no %s", name, test)
			}
		}
		for _, m := range makeTarget.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s: there is no target %s", name, m[1])
			}
		}
	}
}

// documents returns the files of the repository that match one of the patterns, which are those of git ls-files.
func documents(t *testing.T, patterns ...string) []string {
	t.Helper()
	names, err := listFiles(repository, patterns...)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(name string) bool {
		_, err := os.Stat(filepath.Join(repository, name))
		return err != nil // the file was removed, but git still lists it because that is not committed yet
	})
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
