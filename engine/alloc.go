package engine

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Alloc implements verbs.Device.
func (d *Device) Alloc(n int) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("%d octets of memory: %w", n, err)
	}
	return mem, nil
}

// Free implements verbs.Device.
func (d *Device) Free(mem []byte) error { return unix.Munmap(mem) }
