package vm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// errNotBuilt says that scripts/lab/build.sh has not run.
var errNotBuilt = errors.New("the lab is not built: run scripts/lab/build.sh (or make lab; for the newest kernel scripts/lab/drivers/build.sh, for others scripts/lab/kernels/build.sh), as root")

// newest is the suffix of the images for machines with Options.Newest.
const newest = "-newest"

// Dir is where build.sh puts the images: $LAB_DIR, or build/lab in the repository around the working directory.
func Dir() (string, error) {
	if dir := os.Getenv("LAB_DIR"); dir != "" {
		return dir, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "scripts", "lab", "build.sh")); err == nil {
			return filepath.Join(dir, "build", "lab"), nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("not inside the repository; set LAB_DIR to the directory that " +
				"build.sh filled")
		}
		dir = up
	}
}

// built returns the directory of a complete build, or an error that says what to do.
func built(suffix string) (string, error) {
	dir, err := Dir()
	if err != nil {
		return "", err
	}
	for _, name := range []string{"READY" + suffix, "vmlinuz" + suffix, "initrd" + suffix, "root"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("%w: %w", errNotBuilt, err)
		}
	}
	return dir, nil
}

// Newest returns the kernel and the emulator of machines with Options.Newest.
func Newest() (string, error) {
	dir, err := built(newest)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(dir, "READY"+newest))
	return strings.TrimSpace(string(text)), err
}

// KernelOf returns the version and processor of a kernel of scripts/lab/kernels/build.sh.
func KernelOf(name string) (version, arch string, err error) {
	dir, err := built("-" + name)
	if err != nil {
		return "", "", err
	}
	text, err := os.ReadFile(filepath.Join(dir, "READY-"+name))
	if err != nil {
		return "", "", err
	}
	if _, err := fmt.Sscan(string(text), &version, &arch); err != nil {
		return "", "", fmt.Errorf("READY-%s says %q: %w", name, text, err)
	}
	return version, arch, nil
}

// Need ends the test unless the lab is built: it fails with LAB=1 in the environment, and skips otherwise.
func Need(t testing.TB) {
	t.Helper()
	need(t, "")
}

// NeedNewest is Need for machines with Options.Newest.
func NeedNewest(t testing.TB) {
	t.Helper()
	need(t, newest)
}

func need(t testing.TB, suffix string) {
	t.Helper()
	_, err := built(suffix)
	switch {
	case err == nil:
	case os.Getenv("LAB") == "1" || !errors.Is(err, errNotBuilt):
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}
