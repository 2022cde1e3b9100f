package control

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Mapper maps memory shared with programs: memfds, and files on tmpfs and hugetlbfs. The kernel alone serves these, so
// no access waits for a disk or another program.
//
// This process must never be the first to touch a page: the kernel charges the page to the control group of the process
// that does, for as long as the file exists. Otherwise a program that registers memory with holes, or punches holes
// later, could fill the control group of the daemon, despite the program's limits, until the kernel kills the daemon.
// So every mapping belongs to a userfaultfd: an access to a missing page raises SIGBUS, like an access beyond the end
// of a truncated file, and the engine survives both. Memory sealed against writing cannot belong to a userfaultfd. Its
// seals prevent that pages go missing, and must include F_SEAL_SHRINK.
type Mapper struct {
	fd  int
	err error // why Mapper cannot map; nil: it can
}

// Payer is charged for each mapping made for it, until its Memory is closed.
type Payer interface {
	ReserveMapping() error // an error refuses the mapping
	ReleaseMapping()
}

// From include/uapi/linux/userfaultfd.h.
const (
	uffdUserModeOnly = 1 // needs no privileges
	uffdioAPI        = 0xc018aa3f
	uffdioRegister   = 0xc020aa00
	uffdAPIVersion   = 0xaa
	uffdMissingShmem = 1 << 5
	uffdSigbus       = 1 << 7
	uffdModeMissing  = 1
	frozen           = unix.F_SEAL_WRITE | unix.F_SEAL_FUTURE_WRITE // either one prevents punching holes
	// populateStep is the number of bytes that one system call populates. The call holds a kernel lock that allocating
	// memory for this process's heap also needs.
	populateStep = 4 << 20
)

// NewMapper creates a Mapper. Without userfaultfd it maps nothing, and Err says why.
func NewMapper() *Mapper {
	fd, _, e := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|uffdUserModeOnly, 0, 0)
	if e != 0 {
		return &Mapper{fd: -1, err: fmt.Errorf("userfaultfd: %w (the kernel needs "+
			"CONFIG_USERFAULTFD, and the seccomp filter must allow the call)", e)}
	}
	m := &Mapper{fd: int(fd)}
	api := struct{ api, features, ioctls uint64 }{uffdAPIVersion, uffdMissingShmem | uffdSigbus, 0}
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, fd, uffdioAPI,
		uintptr(unsafe.Pointer(&api))); e != 0 {
		m.err = fmt.Errorf("UFFDIO_API: %w", e)
	}
	return m
}

// NewMemory creates n bytes of memory, rounded up to whole pages, for rings or doorbells, and charges the mapping to
// the payer. The program must touch each page first: the kernel then charges the page to the program, which may keep
// it. An access of this process to a missing page raises SIGBUS, which is a panic with debug.SetPanicOnFault.
func (m *Mapper) NewMemory(payer Payer, name string, n int) (*Memory, error) {
	if m.err != nil {
		return nil, fmt.Errorf("cannot guard shared memory: %w", m.err)
	}
	return charged(payer, func() (*Memory, error) {
		r, err := NewMemory(name, n)
		if err != nil {
			return nil, err
		}
		if err := m.guard(r.Mem); err != nil {
			r.Close()
			return nil, err
		}
		return r, nil
	})
}

// charged calls open to create a mapping, and charges it to the payer until it is closed.
func charged(payer Payer, open func() (*Memory, error)) (*Memory, error) {
	if err := payer.ReserveMapping(); err != nil {
		return nil, err
	}
	r, err := open()
	if err != nil {
		payer.ReleaseMapping()
		return nil, err
	}
	r.payer = payer
	return r, nil
}

// Err returns why no memory can be mapped, or nil.
func (m *Mapper) Err() error { return m.err }

// Close ends the use of m. Its mappings remain, but are no longer guarded: an access to a missing page allocates it.
func (m *Mapper) Close() {
	if m.fd >= 0 {
		unix.Close(m.fd)
	}
	m.fd, m.err = -1, unix.EBADF
}

// Map maps length bytes at offset of a file, and charges the mapping to the payer. mem is these bytes. They are part of
// mapping, which has whole pages; the caller closes mapping. write makes mem writable. Map fails if a page is missing.
func (m *Mapper) Map(payer Payer, fd int, offset, length uint64, write bool) (mapping *Memory,
	mem []byte, err error) {
	if m.err != nil {
		return nil, nil, fmt.Errorf("cannot guard the memory of a program: %w", m.err)
	}
	file, err := checkForeign(fd, offset, length)
	if err != nil {
		return nil, nil, err
	}
	slack := offset % file.page
	mapping, err = charged(payer, func() (*Memory, error) {
		whole := WholePages(slack+length, file.page)
		all, err := m.mapForeign(fd, file.seals, int64(offset-slack), whole, write)
		return &Memory{Fd: -1, Mem: all}, err
	})
	if err != nil {
		return nil, nil, err
	}
	return mapping, mapping.Mem[slack:][:length:length], nil
}

// mapForeign maps length bytes of a program's file, which must be whole pages, and guards them. It fails if one is
// missing.
func (m *Mapper) mapForeign(fd, seals int, offset int64, length uint64, write bool) (mapping []byte,
	err error) {
	prot, advice := unix.PROT_READ, unix.MADV_POPULATE_READ
	if write {
		prot, advice = unix.PROT_READ|unix.PROT_WRITE, unix.MADV_POPULATE_WRITE
	}
	// Without MAP_NORESERVE this process would reserve huge pages for the holes of the file.
	mapping, err = unix.Mmap(fd, offset, int(length), prot, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes at offset %d: %w (the descriptor must be open "+
			"for reading and writing)", length, offset, err)
	}
	if seals&frozen != 0 {
		err = checkWhole(fd, uint64(offset), length)
	} else {
		err = m.guard(mapping)
	}
	for at := 0; err == nil && at < len(mapping); at += populateStep {
		err = unix.Madvise(mapping[at:min(at+populateStep, len(mapping))], advice)
	}
	switch {
	case errors.Is(err, unix.EFAULT):
		err = errHoles
	case err != nil:
		err = fmt.Errorf("%d bytes of memory: %w", length, err)
	}
	if err != nil {
		unix.Munmap(mapping)
		return nil, err
	}
	return mapping, nil
}

var errHoles = errors.New("the memory has holes or was truncated: touch all " +
	"pages before registering a region, e.g. with MADV_POPULATE_WRITE (madvise(2))")

// guard makes an access to a missing page of a mapping raise SIGBUS instead of allocating the page.
func (m *Mapper) guard(mapping []byte) error {
	r := struct{ start, length, mode, ioctls uint64 }{
		uint64(uintptr(unsafe.Pointer(&mapping[0]))), uint64(len(mapping)), uffdModeMissing, 0,
	}
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(m.fd), uffdioRegister,
		uintptr(unsafe.Pointer(&r))); e != 0 {
		return fmt.Errorf(
			"UFFDIO_REGISTER: %w (the descriptor must be open for reading and writing)", e)
	}
	return nil
}

// checkWhole fails if a memfd sealed against writing has a hole. The seal prevents later ones.
func checkWhole(fd int, offset, length uint64) error {
	page := uint64(os.Getpagesize())
	var have unix.Cachestat_t
	if err := unix.Cachestat(uint(fd), &unix.CachestatRange{Off: offset, Len: length}, &have,
		0); err != nil {
		return fmt.Errorf("cachestat: %w", err)
	}
	if (have.Cache+have.Evicted)*page < WholePages(length, page) { // evicted pages are in the swap
		return errHoles
	}
	return nil
}

// foreignFile has the properties of a file that Map needs.
type foreignFile struct {
	seals int
	page  uint64 // the size of its pages
}

// PageSize returns the page size of a memfd, or of a file on tmpfs or hugetlbfs, and an error for any other descriptor.
// It does not block on a program.
func PageSize(fd int) (uint64, error) {
	file, err := statForeign(fd)
	return file.page, err
}

func statForeign(fd int) (foreignFile, error) {
	errKind := errors.New("the memory must be a memfd or a file on tmpfs or hugetlbfs: use " +
		"memfd_create(2) or shm_open(3)")
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil { // first, because any other query about a file served by a program (FUSE) waits for that program
		return foreignFile{}, errKind
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return foreignFile{}, fmt.Errorf("descriptor of the memory: %w", err)
	}
	switch fs.Type {
	case unix.TMPFS_MAGIC:
		return foreignFile{seals, uint64(os.Getpagesize())}, nil
	case unix.HUGETLBFS_MAGIC:
		return foreignFile{seals, uint64(fs.Bsize)}, nil
	}
	return foreignFile{}, errKind
}

func checkForeign(fd int, offset, length uint64) (foreignFile, error) {
	file, err := statForeign(fd)
	if err != nil {
		return file, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return file, fmt.Errorf("descriptor of the memory: %w", err)
	}
	switch {
	case file.seals&frozen != 0 && file.seals&unix.F_SEAL_SHRINK == 0:
		return file, errors.New("a memfd sealed against writing must also have F_SEAL_SHRINK: " +
			"see F_ADD_SEALS in fcntl(2)")
	case length == 0 || length > MaxRegion:
		return file, fmt.Errorf("region of %d bytes: must be 1 to %d", length,
			uint64(MaxRegion))
	case offset > uint64(st.Size) || length > uint64(st.Size)-offset:
		return file, fmt.Errorf("%d bytes at offset %d exceed the file of %d bytes", length, offset,
			st.Size)
	}
	return file, nil
}
