package main

import (
	"go/ast"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// maxForgotten is the greatest share of the processor time of a compiler profile that may be in functions which no
// longer exist. The compiler does not know that it should inline their successors.
const maxForgotten = 0.05

// profiled matches a line of go tool pprof -top with a function of this module: its own time, and its name.
var profiled = regexp.MustCompile(`(?m)^ *(\S+s?) .* (xwarp/\S+?)(?: \(inline\))?$`)

// instance matches what a profile adds to the name of a generic function or type.
var instance = regexp.MustCompile(`\[go\.shape.*\](\)|$)`)

// closureOf matches what the compiler appends to the name of a function for the functions inside it.
var closureOf = regexp.MustCompile(`\.(func\d+|deferwrap\d+|gowrap\d+|\d+)$`)

// TestProfilesAreCurrent checks that the functions in the compiler profiles exist under these names.
func TestProfilesAreCurrent(t *testing.T) {
	exists := declared(t)
	for _, file := range []string{"cmd/xwarp/default.pgo", "cmd/xwarpd/default.pgo"} {
		out, err := exec.Command("go", "tool", "pprof", "-top", "-nodecount=10000",
			"-nodefraction=0", "../../"+file).Output()
		if err != nil {
			t.Fatal(err)
		}
		var all, lost time.Duration
		var names []string
		for _, m := range profiled.FindAllStringSubmatch(string(out), -1) {
			own, err := time.ParseDuration(m[1])
			if m[1] != "0" && err != nil {
				t.Fatalf("%q: %v", m[0], err)
			}
			name := instance.ReplaceAllString(m[2], "$1")
			for closureOf.MatchString(name) {
				name = closureOf.ReplaceAllString(name, "")
			}
			all += own
			if !exists[name] {
				lost += own
				names = append(names, name)
			}
		}
		if all == 0 {
			t.Fatalf("%s has no function of this module", file)
		}
		if share := float64(lost) / float64(all); share > maxForgotten {
			t.Errorf("%s: %.0f %% of its time is in functions that no longer exist; run make pgo: %s",
				file, 100*share, strings.Join(names, ", "))
		}
	}
}

// declared returns the functions of this module, named as in a profile.
func declared(t *testing.T) map[string]bool {
	packages, err := list("../..")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, p := range packages {
		_, err := inspect(p, func(n ast.Node) string {
			if f, ok := n.(*ast.FuncDecl); ok {
				names[p.ImportPath+"."+receiver(f)+f.Name.Name] = true
			}
			return ""
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}

// receiver returns the receiver of a function as a profile names it: "T." or "(*T).", or "" if there is none.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	of := receiverType(f)
	if strings.HasPrefix(of, "*") {
		return "(" + of + ")."
	}
	return of + "."
}
