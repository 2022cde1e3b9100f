// Command lint checks the rules of this project that no general tool checks: imports between layers, line width,
// wording, method names on too many types, no goroutines or channels in protocol packages, and the files at the top
// level of the repository. Width and wording apply to test files too.
//
// Run it in the repository: go run ./scripts/lint
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

func main() {
	faults, err := lint(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "lint:", err)
		os.Exit(2)
	}
	for _, f := range faults {
		fmt.Println(f)
	}
	if len(faults) > 0 {
		os.Exit(1)
	}
}

// lint checks all rules in the repository at root and returns the faults.
func lint(root string) (faults []string, err error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(topLevel, e.Name()) {
			faults = append(faults, fmt.Sprintf("%s: not allowed at the top level; see topLevel in scripts/lint/rules.go", e.Name()))
		}
	}
	packages, err := list(root)
	if err != nil {
		return nil, err
	}
	words, err := checkWords(root)
	if err != nil {
		return nil, err
	}
	faults = append(faults, words...)
	faults = append(faults, unusedRules(packages)...)
	methods := map[string][]string{}
	for _, p := range packages {
		if err := countMethods(p, methods); err != nil {
			return nil, err
		}
		faults = append(faults, checkImports(p)...)
		for _, check := range []func(pkg) ([]string, error){checkValues, checkWidth, checkCounts} {
			found, err := check(p)
			if err != nil {
				return nil, err
			}
			faults = append(faults, found...)
		}
	}
	return append(faults, overloaded(methods)...), nil
}

// list returns the packages of the module at root.
func list(root string) (packages []pkg, err error) {
	cmd := exec.Command("go", "list", "-pgo=off",
		"-json=ImportPath,Dir,GoFiles,TestGoFiles,XTestGoFiles,Imports,Deps", "./...")
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p pkg
		if err := d.Decode(&p); err != nil {
			return nil, fmt.Errorf("reading go list: %w", err)
		}
		packages = append(packages, p)
	}
	return packages, nil
}
