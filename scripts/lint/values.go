package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
)

// checkValues returns where non-test files of a protocol package use goroutines, channels or select.
func checkValues(p pkg) (faults []string, err error) {
	if r, ok := findLayer(p.ImportPath); !ok || !r.values {
		return nil, nil
	}
	return inspect(p, func(n ast.Node) string {
		if why := process(n); why != "" {
			return why + " in a protocol package"
		}
		return ""
	})
}

// inspect returns what judge finds in the syntax of the files of p, with the place. Tests and generated files are left
// out.
func inspect(p pkg, judge func(n ast.Node) string) (faults []string, err error) {
	set := token.NewFileSet()
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil,
			parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if ast.IsGenerated(f) {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if fault := judge(n); fault != "" {
				faults = append(faults, fmt.Sprintf("%s:%d: %s", filepath.Join(p.ImportPath, name),
					set.Position(n.Pos()).Line, fault))
			}
			return true
		})
	}
	return faults, nil
}

// process names the concurrency construct of n, empty if n is none.
func process(n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "go statement"
	case *ast.ChanType:
		return "channel"
	case *ast.SendStmt:
		return "channel send"
	case *ast.SelectStmt:
		return "select"
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			return "channel receive"
		}
	}
	return ""
}
