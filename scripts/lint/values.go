package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
)

// checkValues returns a fault for each goroutine, channel or select in p, if p is a protocol package.
func checkValues(p pkg) (faults []string, err error) {
	if r, ok := findLayer(p.ImportPath); !ok || !r.values {
		return nil, nil
	}
	return inspect(p, func(n ast.Node) string {
		if why := concurrencyConstruct(n); why != "" {
			return why + " in a protocol package"
		}
		return ""
	})
}

// inspect calls judge with each syntax node of the files of p, except tests and generated files. It returns each
// non-empty result with the place of the node.
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

// concurrencyConstruct returns the name of the concurrency construct that n is, "" if n is none.
func concurrencyConstruct(n ast.Node) string {
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
