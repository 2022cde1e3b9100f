package install

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestReadmeNamesThePackage checks that the README installs the package from the directory in which build.sh puts it.
func TestReadmeNamesThePackage(t *testing.T) {
	text := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	m := regexp.MustCompile(`(?m)^target=\$\{2:-(\S+)\}$`).FindStringSubmatch(text("build.sh"))
	if m == nil || !strings.Contains(text("build.sh"), `--target "$target/"`) {
		t.Fatal("build.sh puts packages elsewhere")
	}
	if want := "apt-get install ./" + m[1] +
		"/xwarp_*_amd64.deb"; !strings.Contains(text("../../README.md"), want) {
		t.Errorf("the README lacks %q", want)
	}
}
