package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestLongTestsAreListed compares the functions in test files that call needs.Long or testing.Short with the list of
// LONG.md. A helper that calls them is reported too, because the tests that use it would be skipped without being
// listed.
func TestLongTestsAreListed(t *testing.T) {
	text, err := os.ReadFile("../LONG.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed, found []string
	row := regexp.MustCompile("(?m)^\\| `(\\S+)` \\| (Test[^|]+) \\|")
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		for _, name := range strings.Fields(strings.ReplaceAll(m[2], ",", "")) {
			listed = append(listed, m[1]+" "+name)
		}
	}
	if err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel("../..", filepath.Dir(path))
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && runsLess(f) {
				found = append(found, dir+" "+f.Name.Name)
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if !slices.Contains(listed, f) {
			t.Errorf("scripts/LONG.md does not list %s", f)
		}
	}
	for _, l := range listed {
		if !slices.Contains(found, l) {
			t.Errorf("scripts/LONG.md lists %s, which does not call needs.Long or testing.Short", l)
		}
	}
}

// runsLess reports whether a function calls needs.Long or testing.Short.
func runsLess(f *ast.FuncDecl) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			x, _ := s.X.(*ast.Ident)
			found = found || x != nil && (x.Name == "needs" && s.Sel.Name == "Long" ||
				x.Name == "testing" && s.Sel.Name == "Short")
		}
		return true
	})
	return found
}
