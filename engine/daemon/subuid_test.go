package daemon

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSubordinateUIDs: a subordinate UID belongs to the owner that the current content of the file names. If that is
// root or unknown, it belongs to the first UID of its range. Other UIDs belong to themselves.
func TestSubordinateUIDs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "subuid")
	p := subordinateUIDs{file: file}
	want := func(uid, owner uint32) {
		t.Helper()
		if got := p.ownerOf(uid); got != owner {
			t.Errorf("%d belongs to %d, want %d", uid, got, owner)
		}
	}
	want(100_000, 100_000) // no file
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("nobody:100000:65536\n1001:200000:10\nroot:300000:65536\n# no line\nno-such-user:400000:5\n" +
		"nobody:x:3\nnobody:4294967290:65536\n0:500000:9\nnobody:0:1\n")
	want(99_999, 99_999)
	want(100_000, 65534)
	want(165_535, 65534)
	want(165_536, 165_536)
	want(200_009, 1001)
	want(300_123, 300_000) // a container of root does not count as root
	want(400_004, 400_000)
	want(500_008, 500_000)
	want(4_294_967_295, 65534)
	want(0, 0)
	want(65534, 65534)
	write("1002:100000:65536\n")
	want(100_000, 1002)
	want(200_009, 200_009)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	want(100_000, 100_000)
}
