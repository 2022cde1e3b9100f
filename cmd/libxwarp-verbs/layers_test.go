package libxwarpverbs_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestHeadersIncludeLowerLayers checks the includes of the library: each source file includes one header, that of its
// layer, and each header those of lower layers. No source file except refuse.c may declare functions or variables of
// another file itself.
func TestHeadersIncludeLowerLayers(t *testing.T) {
	lower := map[string][]string{
		"layout.h":  nil,
		"base.h":    {"layout.h"},
		"memory.h":  {"base.h"},
		"session.h": {"base.h"},
		"flags.h":   {"base.h"},
		"objects.h": {"flags.h", "memory.h", "session.h"},
		"cm.h":      {"objects.h"},
	}
	include := regexp.MustCompile(`(?m)^#include "(.*)"`)
	foreign := regexp.MustCompile(`(?m)^(?:extern .*|[a-z][^=\n{]*\bxw_\w+\([^\n{]*\);)$`)
	files, err := filepath.Glob("lib/*.[ch]")
	if err != nil || len(files) < 20 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range include.FindAllSubmatch(text, -1) {
			got = append(got, string(m[1]))
		}
		name := filepath.Base(path)
		if name == "refuse.c" { // defines names with other types than their headers
			continue
		}
		if filepath.Ext(name) == ".c" {
			if _, known := lower[slices.Concat(got, []string{""})[0]]; len(got) != 1 || !known {
				t.Errorf("%s includes %q, want the header of its layer alone", name, got)
			}
			if m := foreign.Find(text); m != nil {
				t.Errorf("%s declares what a header must: %s", name, m)
			}
			continue
		}
		if want, known := lower[name]; !known || !slices.Equal(got, want) {
			t.Errorf("%s includes %q, want %q", name, got, want)
		}
	}
}

// TestFilesFormNoCircle checks that no file of the library needs a file that needs it, except those of rdma_cm, and
// those of the memory of regions. A layer gets calls from below by struct layer.
func TestFilesFormNoCircle(t *testing.T) {
	comment := regexp.MustCompile(`(?s)/\*.*?\*/|"[^"\n]*"`)
	defined := regexp.MustCompile(`(?m)^(?:EXPORT )?\w[^=;\n(]*\b((?:xw|ibv|rdma)_\w+)\([^;{]*\)(?:\n| )\{`)
	used := regexp.MustCompile(`\b(?:xw|ibv|rdma)_\w+`)
	paths, err := filepath.Glob("lib/*.c")
	if err != nil {
		t.Fatal(err)
	}
	texts, home := map[string]string{}, map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(path)
		texts[name] = comment.ReplaceAllString(string(text), "")
		for _, m := range defined.FindAllStringSubmatch(texts[name], -1) {
			home[m[1]] = name
		}
	}
	if len(home) < 200 || home["xw_session_open"] != "session.c" ||
		home["rdma_listen"] != "cmlisten.c" {
		t.Fatal("definitions:", home)
	}
	needs := map[string]map[string]bool{} // file: the files that it needs, directly or not
	for name, text := range texts {
		needs[name] = map[string]bool{}
		for _, f := range used.FindAllString(text, -1) {
			if home[f] != "" {
				needs[name][home[f]] = true
			}
		}
	}
	for range texts {
		for _, all := range needs {
			for other := range maps.Clone(all) {
				maps.Copy(all, needs[other])
			}
		}
	}
	for a := range texts {
		for b := range needs[a] {
			family := strings.HasPrefix(a, "cm") && strings.HasPrefix(b, "cm") ||
				strings.HasPrefix(a, "mem") && strings.HasPrefix(b, "mem")
			if a < b && needs[b][a] && !family {
				t.Errorf("%s and %s need each other", a, b)
			}
		}
	}
}

// TestForkedChildHasNewLocks checks that the source initializes each static mutex and condition a second time, for the
// child of a fork, in which the thread that holds it does not exist. memory.c is an exception: the fork itself holds
// its lock.
func TestForkedChildHasNewLocks(t *testing.T) {
	static := regexp.MustCompile(`(\w+) = PTHREAD_(MUTEX|COND)_INITIALIZER;`)
	files, err := filepath.Glob("lib/*.c")
	if err != nil {
		t.Fatal(err)
	}
	texts, all, found := map[string]string{}, "", 0
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = string(text)
		all += string(text)
	}
	delete(texts, "lib/memory.c")
	for path, text := range texts {
		for _, m := range static.FindAllStringSubmatch(text, -1) {
			found++
			if strings.HasPrefix(m[1], "xw_") { // a lock that several files use
				text = all
			}
			again := "pthread_" + strings.ToLower(m[2]) + "_init(&" + m[1] + ","
			if !strings.Contains(text, again) {
				t.Errorf("%s: no %s", path, again)
			}
		}
	}
	if found < 7 {
		t.Errorf("found only %d locks", found)
	}
}
