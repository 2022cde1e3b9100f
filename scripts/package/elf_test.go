package install

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os/exec"
	"testing"

	"xwarp/bpf/needs"
)

// TestObjectsAreHardened checks the ELF headers of each program and library in the package. For example, a library
// without a stack header makes the stack of its programs executable, and newer versions of glibc refuse to load it.
func TestObjectsAreHardened(t *testing.T) {
	needs.Long(t)
	deb, err := build()
	if err != nil {
		t.Fatal(err)
	}
	files, err := exec.Command("dpkg-deb", "--fsys-tarfile", deb).Output()
	if err != nil {
		t.Fatal(err)
	}
	objects := 0
	for r := tar.NewReader(bytes.NewReader(files)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.HasPrefix(content, []byte(elf.ELFMAG)) {
			objects++
			t.Run(h.Name, func(t *testing.T) { checkHeaders(t, content) })
		}
	}
	if objects < 4 {
		t.Errorf("the package has %d programs and libraries, want xwarp, xwarpd and two libraries", objects)
	}
}

func checkHeaders(t *testing.T, content []byte) {
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	has := map[elf.ProgType]bool{}
	for _, p := range f.Progs {
		has[p.Type] = true
		if p.Type == elf.PT_GNU_STACK && p.Flags&elf.PF_X != 0 {
			t.Error("the stack is executable")
		}
		if p.Type == elf.PT_LOAD && p.Flags&(elf.PF_W|elf.PF_X) == elf.PF_W|elf.PF_X {
			t.Errorf("the segment at %#x is writable and executable", p.Vaddr)
		}
	}
	if !has[elf.PT_GNU_STACK] {
		t.Error("no PT_GNU_STACK header: the stack is executable")
	}
	if !has[elf.PT_DYNAMIC] {
		return
	}
	if !has[elf.PT_GNU_RELRO] {
		t.Error("no PT_GNU_RELRO header: relocated pointers stay writable")
	}
	flags := func(tag elf.DynTag) uint64 {
		list, err := f.DynValue(tag)
		if err != nil || len(list) == 0 {
			return 0
		}
		return list[0]
	}
	now := flags(elf.DT_FLAGS)&uint64(elf.DF_BIND_NOW) != 0 ||
		flags(elf.DT_FLAGS_1)&uint64(elf.DF_1_NOW) != 0
	if !now {
		t.Error("functions are bound lazily: their table stays writable")
	}
	if list, _ := f.DynValue(elf.DT_TEXTREL); len(list) > 0 ||
		flags(elf.DT_FLAGS)&uint64(elf.DF_TEXTREL) != 0 {
		t.Error("relocations change the code")
	}
}
