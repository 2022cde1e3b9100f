package engine

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Alloc returns n octets of zeroed, page-aligned memory for regions. A program that takes its memory from
// here, and not from Go's heap, can use a daemon's device in place of this one. It takes room when it is
// touched.
func (d *Device) Alloc(n int) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("%d octets of memory: %w", n, err)
	}
	return mem, nil
}

// Free gives memory back that Alloc returned. No region may be in it any more.
func (d *Device) Free(mem []byte) error { return unix.Munmap(mem) }
