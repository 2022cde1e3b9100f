package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var code = regexp.MustCompile("`([^`]+)`")

// TestRecipes checks each step of the recipes in CONTRIBUTING.md: the files that it names must exist, and these files
// must contain the other names and the tests in the step.
func TestRecipes(t *testing.T) {
	text, err := os.ReadFile("../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Recipes\n")
	section, _, _ = strings.Cut(section, "\n## ")
	recipes, steps := 0, 0
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "Add ") {
			recipes++
		}
		if !strings.HasPrefix(line, "- ") {
			continue
		}
		steps++
		var names []string
		content := ""
		for _, m := range code.FindAllStringSubmatch(line, -1) {
			if !strings.Contains(m[1], "/") {
				names = append(names, m[1])
				continue
			}
			path := filepath.Join("../..", m[1])
			info, err := os.Stat(path)
			if err != nil {
				t.Errorf("%s%v", line, err)
			} else if !info.IsDir() {
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				content += string(b)
			}
		}
		for _, name := range names {
			if strings.HasPrefix(name, "Test") {
				name = "func " + name + "("
			}
			if !strings.Contains(content, strings.TrimPrefix(name, "interface.")) {
				t.Errorf("%sthere is no %q in these files", line, name)
			}
		}
	}
	if recipes != 6 || steps < 4*recipes {
		t.Errorf("%d recipes of %d steps", recipes, steps)
	}
}
