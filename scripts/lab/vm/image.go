package vm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// errNotBuilt is wrapped by errors about missing images: the build script has not run or has not finished.
var errNotBuilt = errors.New("the lab is not built: run scripts/lab/build.sh (or make lab; for the newest kernel scripts/lab/drivers/build.sh, for others scripts/lab/kernels/build.sh), as root")

// newest is the suffix of the image files for machines with Options.Newest.
const newest = "-newest"

// Dir returns the directory of the images: $LAB_DIR, or build/lab in the repository that contains the working
// directory.
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

// built returns the directory of the images if those with the suffix are complete. Otherwise its error wraps
// errNotBuilt, which names the build script.
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

// Newest returns as text the versions of the kernel and the emulator of machines with Options.Newest.
func Newest() (string, error) {
	dir, err := built(newest)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(dir, "READY"+newest))
	return strings.TrimSpace(string(text)), err
}

// KernelOf returns the version and the processor of a kernel that scripts/lab/kernels/build.sh has built, by its name
// there.
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

// Need ends the test if the images are not built. The test then fails with LAB=1 in the environment, and is skipped
// otherwise.
func Need(t testing.TB) {
	t.Helper()
	need(t, "")
}

// NeedNewest is like Need, but for the images of machines with Options.Newest.
func NeedNewest(t testing.TB) {
	t.Helper()
	need(t, newest)
}

func need(t testing.TB, suffix string) {
	t.Helper()
	_, err := built(suffix)
	if err != nil && !errors.Is(err, errNotBuilt) {
		t.Fatal(err)
	}
	endUnlessBuilt(t, err)
}

// endUnlessBuilt ends the test if err says that something of the lab is not built. The test then fails with LAB=1 in
// the environment, and is skipped otherwise.
func endUnlessBuilt(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case os.Getenv("LAB") == "1":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}

// Sid returns the root file system of Debian sid, which scripts/lab/sid/build.sh makes. It ends the test as Need does
// if there is none.
func Sid(t testing.TB) string {
	t.Helper()
	lab, err := Dir()
	if err != nil {
		t.Fatal(err)
	}
	version, err := os.ReadFile(filepath.Join(lab, "READY-sid"))
	if err != nil {
		err = fmt.Errorf("the root of Debian sid is not built: "+
			"run scripts/lab/sid/build.sh (or make lab): %w", err)
	}
	endUnlessBuilt(t, err)
	t.Logf("rdma-core %s", version)
	return filepath.Join(lab, "sid")
}
