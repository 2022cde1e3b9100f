package control

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Memory is a memfd and its mapping.
type Memory struct {
	Fd  int
	Mem []byte
}

// NewMemory makes zeroed memory that can be shared: n octets that nobody can take away or lengthen.
func NewMemory(name string, n int) (*Memory, error) {
	page := os.Getpagesize()
	n = (n + page - 1) &^ (page - 1)
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	err = unix.Ftruncate(fd, int64(n))
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	var mem []byte
	if err == nil {
		mem, err = unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("%d octets of shared memory: %w", n, err)
	}
	return &Memory{fd, mem}, nil
}

// TakeFd gives the descriptor to the caller; the mapping stays.
func (m *Memory) TakeFd() int {
	fd := m.Fd
	m.Fd = -1
	return fd
}

// Close gives the memory back; nothing may point into it.
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
	return err
}

// MapForeign maps length octets at offset of a memfd that came from somebody else. With write the mapping can be written. It refuses
// what could take pages away from under the mapping: the access would then kill this process with SIGBUS.
func MapForeign(fd int, offset, length uint64, write bool) (mapping, mem []byte, err error) {
	if err := checkForeign(fd, offset, length); err != nil {
		return nil, nil, err
	}
	page := uint64(os.Getpagesize())
	slack := offset % page
	prot, advice := unix.PROT_READ, unix.MADV_POPULATE_READ
	if write {
		prot, advice = unix.PROT_READ|unix.PROT_WRITE, unix.MADV_POPULATE_WRITE
	}
	mapping, err = unix.Mmap(fd, int64(offset-slack), int(length+slack), prot, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("mapping %d octets at %d: %w", length, offset, err)
	}
	// All pages are there before the first transfer; where there is no memory for them, that is an error and not a signal.
	if err := unix.Madvise(mapping, advice); err != nil && !errors.Is(err, unix.EINVAL) {
		unix.Munmap(mapping)
		return nil, nil, fmt.Errorf("%d octets of memory: %w", length, err)
	}
	return mapping, mapping[slack:][:length:length], nil
}

const tmpfsMagic = 0x01021994

func checkForeign(fd int, offset, length uint64) error {
	var fs unix.Statfs_t
	var st unix.Stat_t
	if err := errors.Join(unix.Fstatfs(fd, &fs), unix.Fstat(fd, &st)); err != nil {
		return fmt.Errorf("descriptor of the memory: %w", err)
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	switch {
	case err != nil || fs.Type != tmpfsMagic:
		return errors.New("the memory must be a memfd without MFD_HUGETLB: memfd_create(2)")
	case seals&unix.F_SEAL_SHRINK == 0:
		return errors.New("the memfd must have F_SEAL_SHRINK, so that it cannot be cut off under a transfer: fcntl(2), F_ADD_SEALS")
	case length == 0 || length > MaxRegion:
		return fmt.Errorf("a region of %d octets: it must have 1 to %d", length, uint64(MaxRegion))
	case offset > uint64(st.Size) || length > uint64(st.Size)-offset:
		return fmt.Errorf("%d octets at %d do not lie in a memfd of %d", length, offset, st.Size)
	}
	return nil
}
