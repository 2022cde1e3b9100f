package install

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"xwarp/bpf/needs"
)

// TestPackageIsReproducible checks that the package has the same bytes if it is built in another folder, with another
// umask, time zone and locale, and from sources that only their owner may read.
func TestPackageIsReproducible(t *testing.T) {
	needs.Long(t)
	if *debFlag != "" {
		t.Skip("-deb names a package that was built elsewhere")
	}
	first, err := build()
	if err != nil {
		t.Fatal(err)
	}
	tree, dir := filepath.Join(t.TempDir(), "elsewhere"), t.TempDir()
	c := exec.Command("sh", "-ec", `umask 027; mkdir "$1"
		tar -C ../.. --exclude=./build -cf - . | tar -C "$1" -xf -
		chmod -R go-rwx "$1"; cd "$1"; scripts/package/build.sh 0.0.1 "$2"`, "sh", tree, dir)
	c.Env = append(os.Environ(), "FORMATS=deb", "TZ=Pacific/Kiritimati", "LC_ALL=C.UTF-8")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	second := filepath.Join(dir, filepath.Base(first))
	var bytesOf, contents [2][]byte
	for i, deb := range []string{first, second} {
		if bytesOf[i], err = os.ReadFile(deb); err != nil {
			t.Fatal(err)
		}
		if contents[i], err = exec.Command("dpkg-deb", "--contents", deb).Output(); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(bytesOf[0], bytesOf[1]) {
		t.Errorf("the packages differ:\n%s\n%s", contents[0], contents[1])
	}
}
