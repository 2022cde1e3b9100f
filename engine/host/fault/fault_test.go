package fault

import (
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"xwarp/tcp/checksum"
)

// TestTouch truncates a mapped file and accesses the missing part: with Go's copy, and with this program's own
// assembly.
func TestTouch(t *testing.T) {
	page := os.Getpagesize()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(int64(4 * page)); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, 4*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	if err := f.Truncate(int64(page)); err != nil {
		t.Fatal(err)
	}
	heap := make([]byte, 2*page)
	for name, touch := range map[string]func(){
		"copy to":    func() { copy(mem[2*page:], heap) },
		"copy from":  func() { copy(heap, mem[2*page:]) },
		"CopySum":    func() { checksum.CopySum(heap, mem[2*page:], 0, 0, 64) },
		"CopySum to": func() { checksum.CopySum(mem[2*page:], heap, 0, 0, 64) },
		"CRC":        func() { checksum.CRC(0, mem[2*page:]) },
		"CopyMarked": func() { checksum.CopyMarked(heap, mem[2*page:], 4, 0, 0, 0, 64) },
		"one byte":   func() { mem[3*page] = 1 },
		"clear":      func() { clear(mem[2*page:]) },
		"SHA-256":    func() { sha256.Sum256(mem[page/2:]) },
	} {
		var gone *Error
		if err := Touch(touch); !errors.As(err, &gone) {
			t.Errorf("%s: %v", name, err)
		} else if off := gone.Addr - uintptr(unsafe.Pointer(&mem[0])); off < uintptr(page) ||
			off >= uintptr(len(mem)) {
			t.Errorf("%s: at byte %d of the mapping", name, off)
		}
	}
	if err := Touch(func() { copy(heap, mem[:page]) }); err != nil {
		t.Errorf("the page that is left: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("another panic did not go on")
		}
	}()
	Touch(func() { panic("a defect") })
}
