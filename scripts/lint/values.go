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
	set := token.NewFileSet()
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil,
			parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if why := process(n); why != "" {
				at := set.Position(n.Pos())
				faults = append(faults, fmt.Sprintf("%s:%d: %s in a protocol package",
					filepath.Join(p.ImportPath, name), at.Line, why))
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
