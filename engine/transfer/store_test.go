package transfer

import (
	"crypto/sha256"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A content that the disk did not take is told, is the content all the same, and gets another chance when the
// region is closed.
func TestDiskFull(t *testing.T) {
	name := filepath.Join(t.TempDir(), "region")
	r, err := OpenRegion(name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	put := func(text string) error {
		who, n := owner(netip.IPv6Loopback()), int64(len(text))
		if err := r.reserve(t.Context(), who, n); err != nil {
			t.Fatal(err)
		}
		mem, err := mapAnonymous(r.Size(), n)
		if err != nil {
			t.Fatal(err)
		}
		copy(mem, text)
		return r.commit(&stage{r, who, n, mem}, n, sha256.Sum256([]byte(text)))
	}
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	file := r.file
	r.file = full
	if err := put("content"); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("put: %v", err)
	}
	if n := r.Length(); n != 7 {
		t.Errorf("the content has %d octets", n)
	}
	r.file = file
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(name); string(b) != "content" || err != nil {
		t.Errorf("the file has %q, %v", b, err)
	}
	if r.room.used != 0 || len(r.past) != 0 {
		t.Errorf("%d octets of room are used, %d contents of before are there", r.room.used,
			len(r.past))
	}
}
