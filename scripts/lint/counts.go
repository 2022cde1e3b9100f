package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
)

// counting matches the packages whose texts users read: a count of one must not have a plural noun.
var counting = regexp.MustCompile(`^xwarp/(cmd|bench/demo|engine/(daemon|transfer|xdp|sockets|host))(/|$)`)

// plurals matches a count in a format with a noun in the plural. A limit may have it: "at most %d files".
var plurals = regexp.MustCompile(`%d (addresses|allocations|collections|connections|copies|devices|directories|` +
	`errors|events|exports|files|frames|hosts|interfaces|lines|messages|packets|peers|policies|programs|queues|regions|` +
	`requests|rounds|segments|sessions|SAs|sources|tenants|times|users)\b`)

// limits matches the words before a limit.
var limits = regexp.MustCompile(`(at most|more than|up to|of|to) %d \w+$`)

// checkCounts returns the formats of p with a count of a noun in the plural.
func checkCounts(p pkg) (faults []string, err error) {
	if !counting.MatchString(p.ImportPath) {
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
			if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING {
				if what := countedPlural(s.Value); what != "" {
					at := set.Position(s.Pos())
					faults = append(faults, fmt.Sprintf("%s:%d: %q is wrong for one: use "+
						"plain.Count", filepath.Join(p.ImportPath, name), at.Line, what))
				}
			}
			return true
		})
	}
	return faults, nil
}

// countedPlural returns the first count of format with a noun in the plural that is not a limit, or "".
func countedPlural(format string) string {
	for _, at := range plurals.FindAllStringIndex(format, -1) {
		if !limits.MatchString(format[:at[1]]) {
			return strings.TrimSpace(format[at[0]:at[1]])
		}
	}
	return ""
}
