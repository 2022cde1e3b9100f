package control

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Memory is a memfd and its mapping.
type Memory struct {
	Fd    int // -1: not owned by this Memory, as after TakeFd
	Mem   []byte
	payer Payer // is charged for the mapping; nil: none
}

// WholePages returns n rounded up to whole pages, in bytes.
func WholePages(n, page uint64) uint64 { return (n + page - 1) / page * page }

// NewMemory creates n bytes of zeroed shared memory, rounded up to whole pages, which cannot be resized.
func NewMemory(name string, n int) (*Memory, error) {
	n = int(WholePages(uint64(n), uint64(os.Getpagesize())))
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	err = unix.Ftruncate(fd, int64(n))
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
			unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	var mem []byte
	if err == nil {
		mem, err = unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("%d bytes of shared memory: %w", n, err)
	}
	return &Memory{Fd: fd, Mem: mem}, nil
}

// Holds reports whether an address is in the memory.
func (m *Memory) Holds(addr uintptr) bool {
	return addr-uintptr(unsafe.Pointer(unsafe.SliceData(m.Mem))) < uintptr(len(m.Mem))
}

// TakeFd passes the descriptor to the caller and keeps the mapping.
func (m *Memory) TakeFd() int {
	fd := m.Fd
	m.Fd = -1
	return fd
}

// Close frees the memory, which must not be used any more.
func (m *Memory) Close() error {
	if m.Fd >= 0 {
		unix.Close(m.Fd)
		m.Fd = -1
	}
	if m.Mem == nil {
		return nil
	}
	err := unix.Munmap(m.Mem)
	m.Mem = nil
	if m.payer != nil {
		m.payer.ReleaseMapping()
	}
	return err
}
