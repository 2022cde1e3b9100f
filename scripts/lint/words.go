package main

import (
	"fmt"
	"go/ast"
	"go/types"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// idioms matches phrases that a reader has to read twice, because they lack a noun, negate twice or are out of use. The
// text should say instead what happens to which thing.
var idioms = regexp.MustCompile(`(?i)\b(so many|tells? of|whom|nobody's|what is so|is made when|` +
	`as it was|hears of|is told of|octets?|(cannot|can) be had|in vain|of before|anew|to mend|mended|` +
	`has no business)\b`)

// quotesRFC matches a line that says that it quotes an RFC. Such a line is not checked.
var quotesRFC = regexp.MustCompile(`(?i)\bquotes RFC \d+`)

// quoted matches names that this project did not choose and that are therefore allowed: a media type, and tshark's name
// of an algorithm.
var quoted = regexp.MustCompile(`octet-stream|16 octet ICV`)

// worded matches the names of files whose words are checked. unworded matches exceptions: texts by others, and the
// source of this rule.
var (
	worded   = regexp.MustCompile(`(\.(go|c|h|toml|md|txt|txtar|sh|js|html|yaml|service)|/Makefile|^Makefile)$`)
	unworded = regexp.MustCompile(`^(scripts/(lint|package/notices)/|LICENSE)`)
)

// checkWords returns a fault for each line of the repository's files that has one of idioms, and for each long sentence
// in Markdown. The results of measurements in bench/results may have long sentences.
func checkWords(root string) (faults []string, err error) {
	names, err := listFiles(root)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !worded.MatchString(name) || unworded.MatchString(name) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // the file was removed, but git still lists it because that is not committed yet
		} else if err != nil {
			return nil, err
		}
		faults = append(faults, findIdioms(name, string(text))...)
		if strings.HasSuffix(name, ".md") && !strings.HasPrefix(name, "bench/results/") {
			faults = append(faults, findLongSentences(name, string(text))...)
		}
	}
	return faults, nil
}

// listFiles returns the files of the repository at root that git does not ignore: those that match a pattern of git
// ls-files, or all without patterns.
func listFiles(root string, patterns ...string) ([]string, error) {
	cmd := exec.Command("git", append([]string{"ls-files", "-coz", "--exclude-standard", "--"},
		patterns...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 }), nil
}

func findIdioms(name, text string) (faults []string) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		if quotesRFC.MatchString(line) {
			continue
		}
		if strings.HasSuffix(name, ".md") {
			line = inlineCode.ReplaceAllString(line, "")
		}
		line = quoted.ReplaceAllString(line, "")
		if m := idioms.FindString(line); m != "" {
			faults = append(faults, fmt.Sprintf("%s:%d: avoid %q: say plainly what "+
				"happens to which thing", name, n, m))
		}
	}
	return faults
}

// maxReceivers is the maximum number of types that may have a method of the same name. A name on more types is usually
// a verb without an object, which does not say what the method does.
const maxReceivers = 8

// goNames are method names that any number of types may have, also in lower case: names that have one meaning in Go's
// standard library, and accessors of counters.
var goNames = strings.Fields("Accept Add Close Do Err Error Get Init Len Next Read Reset Set Start String Unwrap Wait " +
	"Write Counters Stats")

// countMethods adds the receiver type of each method of p to methods[name of the method].
func countMethods(p pkg, methods map[string][]string) error {
	_, err := inspect(p, func(n ast.Node) string {
		if m, ok := n.(*ast.FuncDecl); ok && m.Recv != nil {
			methods[m.Name.Name] = append(methods[m.Name.Name],
				p.ImportPath+"."+strings.TrimPrefix(receiverType(m), "*"))
		}
		return ""
	})
	return err
}

// receiverType returns the type of a method's receiver, such as "*T", without type parameters.
func receiverType(m *ast.FuncDecl) string {
	of, _, _ := strings.Cut(types.ExprString(m.Recv.List[0].Type), "[")
	return of
}

// overloaded returns a fault for each method name that more than maxReceivers types have. types has the receiver types
// by method name.
func overloaded(types map[string][]string) (faults []string) {
	for _, name := range slices.Sorted(maps.Keys(types)) {
		same := func(g string) bool { return strings.EqualFold(g, name) }
		if n := len(types[name]); n > maxReceivers && !slices.ContainsFunc(goNames, same) {
			faults = append(faults, fmt.Sprintf(
				"method %s is on %d types, at most %d: name what it "+
					"does to which object (%s)", name, n, maxReceivers, strings.Join(types[name],
					", ")))
		}
	}
	return faults
}
