package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// walks are documents that name functions, types and fields, as package.Type.Method, and tests, as directory TestName.
var walks = []string{"engine/README.md", "engine/daemon/README.md",
	"engine/daemon/SECURITY.md"}

var (
	dotted   = regexp.MustCompile(`\b[a-z]+(\.[A-Za-z]\w*)+`)
	testName = regexp.MustCompile(`\b([a-z0-9/]+)\s((?:Test|Fuzz)[A-Z]\w*)`)
)

// fileEndings are what else has a dot in such documents.
var fileEndings = []string{".go", ".md", ".toml", ".txt"}

// checkDoc returns the names in the document that no code has.
func checkDoc(root, name string, src *source) (faults []string, err error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		return nil, err
	}
	for _, m := range testName.FindAllStringSubmatch(string(text), -1) {
		if !src.tests[m[1]+" "+m[2]] {
			faults = append(faults, fmt.Sprintf("%s: there is no test %s in %s", name, m[2], m[1]))
		}
	}
	for i, line := range strings.Split(string(text), "\n") {
		for _, n := range dotted.FindAllString(line, -1) {
			file := slices.ContainsFunc(fileEndings, func(end string) bool {
				return strings.HasSuffix(n, end)
			})
			if !file && !src.names[n] {
				faults = append(faults, fmt.Sprintf("%s:%d: there is no %s", name, i+1, n))
			}
		}
	}
	return faults, nil
}
