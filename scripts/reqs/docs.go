package main

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// walks are the documents whose names are checked. They name functions, types and fields as package.Type.Method, and
// tests as "directory TestName".
var walks = []string{"engine/README.md", "engine/daemon/README.md",
	"engine/daemon/SECURITY.md"}

var (
	dotted   = regexp.MustCompile(`\b[a-z]+(\.[A-Za-z]\w*)+`)
	testName = regexp.MustCompile(`\b([a-z0-9/]+)\s((?:Test|Fuzz)[A-Z]\w*)`)
)

// fileEndings are the endings by which a word with a dot in such documents is a file and not a name of the code.
var fileEndings = []string{".go", ".md", ".toml", ".txt"}

// checkDoc returns a fault for each name in the document that does not exist in the code, and the faults of its tables.
func checkDoc(root, name string, src *source) (faults []string, err error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		return nil, err
	}
	for _, m := range testName.FindAllStringSubmatch(string(text), -1) {
		if !src.tests[m[1]+" "+m[2]] {
			faults = append(faults, fmt.Sprintf("%s: no test %s in %s", name, m[2], m[1]))
		}
	}
	for i, line := range strings.Split(string(text), "\n") {
		for _, n := range dotted.FindAllString(line, -1) {
			file := slices.ContainsFunc(fileEndings, func(end string) bool {
				return strings.HasSuffix(n, end)
			})
			if !file && !src.names[n] {
				faults = append(faults, fmt.Sprintf("%s:%d: no such name: %s", name, i+1, n))
			}
		}
	}
	return append(faults, checkTables(root, name, string(text))...), nil
}

var (
	quoted = regexp.MustCompile("`([^`]+)`")
	header = regexp.MustCompile("^\\| (package|folder|files of `([^`]+)`) \\|")
)

// checkTables compares the first columns of the document's tables with the repository. A table of packages or folders
// must name existing folders. All such tables of the document together must name each folder beside the document that
// has Go files. A table "files of" must name all Go files of one folder, except tests.
func checkTables(root, doc, text string) (faults []string) {
	beside, tables := path.Dir(doc), 0
	listed := map[string]bool{}
	for block := range strings.SplitSeq(text, "\n\n") {
		m := header.FindStringSubmatch(block)
		if m == nil {
			continue
		}
		tables++
		files := map[string]bool{}
		for _, row := range strings.Split(strings.TrimSpace(block), "\n")[2:] {
			cell := strings.Split(row, "|")[1]
			for _, q := range quoted.FindAllStringSubmatch(cell, -1) {
				switch name := q[1]; {
				case m[2] != "":
					files[name] = true
				case strings.Contains(name, "/"), name == beside:
					listed[name] = true
				default:
					listed[path.Join(beside, name)] = true
				}
			}
		}
		if m[2] != "" {
			faults = append(faults, compare(doc, m[2], files, goFiles(root, m[2]))...)
		}
	}
	for name := range listed {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			faults = append(faults, fmt.Sprintf("%s: no such folder: %s", doc, name))
		}
	}
	if tables == 0 {
		return faults
	}
	entries, _ := os.ReadDir(filepath.Join(root, beside))
	for _, e := range entries {
		folder := path.Join(beside, e.Name())
		isListed := func(name string) bool { return strings.HasPrefix(name+"/", folder+"/") }
		if e.IsDir() && len(goFiles(root, folder)) > 0 &&
			!slices.ContainsFunc(slices.Collect(maps.Keys(listed)), isListed) {
			faults = append(faults, fmt.Sprintf("%s: lacks %s", doc, folder))
		}
	}
	return faults
}

// goFiles returns the names of the Go files in a folder, except tests.
func goFiles(root, folder string) map[string]bool {
	files := map[string]bool{}
	found, _ := filepath.Glob(filepath.Join(root, folder, "*.go"))
	for _, f := range found {
		if !strings.HasSuffix(f, "_test.go") {
			files[filepath.Base(f)] = true
		}
	}
	return files
}

// compare returns a fault for each file that a table names and the folder lacks, and for each file that the table
// lacks.
func compare(doc, folder string, named, found map[string]bool) (faults []string) {
	for f := range named {
		if !found[f] {
			faults = append(faults, fmt.Sprintf("%s: no file %s in %s", doc, f, folder))
		}
	}
	for f := range found {
		if !named[f] {
			faults = append(faults, fmt.Sprintf("%s: lacks %s/%s", doc, folder, f))
		}
	}
	return faults
}
