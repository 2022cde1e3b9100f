package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// source has the names in the repository's code to which requirements and documents refer.
type source struct {
	names  map[string]bool     // names outside of tests, as package.Name and package.Type.Method
	tests  map[string]bool     // tests, as "directory TestName"
	proves map[string][]string // the tests that prove a requirement, by its id
	faults []string            // wrong req: lines
}

const annotation = "//req:"

// scan parses every Go file and every packet script of the repository at root.
func scan(root string) (*source, error) {
	s := &source{names: map[string]bool{}, tests: map[string]bool{},
		proves: map[string][]string{}}
	err := filepath.WalkDir(root, func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := e.Name()
		if e.IsDir() && name == "testdata" {
			if err := s.scripts(root, file); err != nil {
				return err
			}
		}
		if e.IsDir() && file != root && (name == "build" || name == "testdata" ||
			strings.HasPrefix(name, ".")) {
			return fs.SkipDir
		}
		if e.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		return s.file(file, filepath.ToSlash(dir))
	})
	return s, err
}

func (s *source) file(file, dir string) error {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	if !strings.HasSuffix(file, "_test.go") {
		s.declare(path.Base(dir), f)
	}
	taken := map[*ast.Comment]bool{}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || !isTest(file, fn) {
			continue
		}
		test := dir + " " + fn.Name.Name
		s.tests[test] = true
		if fn.Doc == nil {
			continue
		}
		for _, c := range fn.Doc.List {
			ids, ok := strings.CutPrefix(c.Text, annotation)
			if !ok {
				continue
			}
			taken[c] = true
			for _, id := range strings.Fields(ids) {
				if slices.Contains(s.proves[id], test) {
					s.faults = append(s.faults, fmt.Sprintf("%v: %s names %s twice",
						fset.Position(c.Pos()), fn.Name.Name, id))
				}
				s.proves[id] = append(s.proves[id], test)
			}
		}
	}
	for _, g := range f.Comments {
		for _, c := range g.List {
			if strings.HasPrefix(c.Text, annotation) && !taken[c] {
				s.faults = append(s.faults,
					fmt.Sprintf("%v: belongs in the comment of a test",
						fset.Position(c.Pos())))
			}
		}
	}
	return nil
}

// scripts adds the requirements that the packet scripts in dir prove. "#req:" lines in the comment above a script name
// them.
func (s *source) scripts(root, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.pkt"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		pkg, err := filepath.Rel(root, filepath.Dir(dir))
		if err != nil {
			return err
		}
		var ids []string
		for i, line := range strings.Split(string(text), "\n") {
			more, ok := strings.CutPrefix(line, "#req:")
			name, isScript := strings.CutPrefix(line, "script ")
			switch {
			case ok:
				ids = append(ids, strings.Fields(more)...)
			case isScript:
				for _, id := range ids {
					s.proves[id] = append(s.proves[id], filepath.ToSlash(pkg)+" "+name)
				}
				ids = nil
			case len(ids) > 0 && !strings.HasPrefix(line, "#"):
				s.faults = append(s.faults, fmt.Sprintf(
					"%s:%d: #req: belongs in the comment of a script", file, i))
				ids = nil
			}
		}
	}
	return nil
}

func isTest(file string, fn *ast.FuncDecl) bool {
	name := fn.Name.Name
	return fn.Recv == nil && strings.HasSuffix(file, "_test.go") &&
		(strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz"))
}

// declare adds the names that a file declares at its top level, and the fields of its structs.
func (s *source) declare(pkg string, f *ast.File) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				of := strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*")
				of, _, _ = strings.Cut(of, "[")
				name = of + "." + name
			}
			s.names[pkg+"."+name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					name := pkg + "." + spec.Name.Name
					s.names[name] = true
					if t, ok := spec.Type.(*ast.StructType); ok {
						for _, f := range t.Fields.List {
							for _, n := range f.Names {
								s.names[name+"."+n.Name] = true
							}
						}
					}
				case *ast.ValueSpec:
					for _, n := range spec.Names {
						s.names[pkg+"."+n.Name] = true
					}
				}
			}
		}
	}
}
