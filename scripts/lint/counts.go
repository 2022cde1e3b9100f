package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"strings"
)

// counting matches the import paths of packages whose messages users read. In these a count of one must not have a
// plural noun.
var counting = regexp.MustCompile(`^xwarp/(cmd|bench/demo|engine/(daemon|transfer|xdp|sockets|host))(/|$)`)

// plurals matches a count with a plural noun in a format, such as "%d files".
var plurals = regexp.MustCompile(`%d (addresses|allocations|collections|connections|copies|devices|directories|` +
	`errors|events|exports|files|frames|hosts|interfaces|lines|messages|packets|peers|policies|programs|queues|regions|` +
	`requests|rounds|segments|sessions|SAs|sources|tenants|times|users)\b`)

// limits matches the end of a text with a limit, such as "at most %d files". A limit may have a plural noun.
var limits = regexp.MustCompile(`(at most|more than|up to|of|to) %d \w+$`)

// checkCounts returns a fault for each string in p that has a count with a plural noun.
func checkCounts(p pkg) (faults []string, err error) {
	if !counting.MatchString(p.ImportPath) {
		return nil, nil
	}
	return inspect(p, func(n ast.Node) string {
		if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING {
			if what := countedPlural(s.Value); what != "" {
				return fmt.Sprintf("%q is wrong for one: use plain.Count", what)
			}
		}
		return ""
	})
}

// countedPlural returns the first count with a plural noun in format that is not a limit. It returns "" if there is
// none.
func countedPlural(format string) string {
	for _, at := range plurals.FindAllStringIndex(format, -1) {
		if !limits.MatchString(format[:at[1]]) {
			return strings.TrimSpace(format[at[0]:at[1]])
		}
	}
	return ""
}
