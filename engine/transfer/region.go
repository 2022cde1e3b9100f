package transfer

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Region is the memory that a server exports, and what is known about its content. Its fields are the server's, under
// its locks.
type Region struct {
	mem  []byte
	file *os.File // nil for anonymous memory

	length int64 // of the content
	filled bool  // there is content, perhaps of length 0
	sum    Sum   // of mem[:sumLen]
	sumLen int64 // -1: not known
}

// NewRegion makes a region of n octets of zeroed memory without content.
func NewRegion(n int64) (*Region, error) {
	if n <= 0 || n > MaxRegion {
		return nil, fmt.Errorf("a region of %d octets: it must have 1 to %d", n, int64(MaxRegion))
	}
	m, err := mapAnonymous(n)
	if err != nil {
		return nil, err
	}
	return &Region{mem: m, sumLen: -1}, nil
}

// OpenRegion maps a file, which it makes when it is not there. With n 0 the region is as long as the file. A file
// shorter than n is lengthened while the region is open; Close gives it the length of its content.
func OpenRegion(name string, n int64) (r *Region, err error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	r = &Region{file: f, sumLen: -1}
	if err := r.mapFile(n); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

func (r *Region) mapFile(n int64) error {
	fd := int(r.file.Fd())
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("another process has locked the file, perhaps another xwarp serve: %w", err)
	}
	st, err := r.file.Stat()
	if err != nil {
		return err
	}
	r.length, r.filled = st.Size(), st.Size() > 0
	if n == 0 {
		n = r.length
	}
	switch {
	case !st.Mode().IsRegular():
		return errors.New("is no regular file, so it cannot be a region")
	case n == 0:
		return errors.New("is empty: say with --size how large the region shall be")
	case n < r.length:
		return fmt.Errorf("has %d octets and would not fit a region of %d: a larger --size, or none", r.length, n)
	case n > MaxRegion:
		return fmt.Errorf("a region of %d octets is above %d", n, int64(MaxRegion))
	}
	// With all blocks there, no write into the mapping can fail for want of disk.
	err = unix.Fallocate(fd, 0, 0, n)
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = r.file.Truncate(n)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%d octets of disk: %w", n, err), r.file.Truncate(r.length))
	}
	r.mem, err = unix.Mmap(fd, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return errors.Join(fmt.Errorf("mapping %d octets: %w", n, err), r.file.Truncate(r.length))
	}
	return nil
}

// Size returns the octets that the region can hold.
func (r *Region) Size() int64 { return int64(len(r.mem)) }

// Length returns the octets of its content.
func (r *Region) Length() int64 { return r.length }

// checksum returns the SHA-256 of the first n octets, remembered from the last time when possible.
func (r *Region) checksum(n int64) Sum {
	if n != r.sumLen {
		r.sum, r.sumLen = sha256.Sum256(r.mem[:n]), n
	}
	return r.sum
}

// commit makes content, whose SHA-256 is sum, the region's content.
func (r *Region) commit(content []byte, sum Sum) {
	copy(r.mem, content)
	r.length, r.filled, r.sum, r.sumLen = int64(len(content)), true, sum, int64(len(content))
}

// sync returns when the content of a file is on the disk.
func (r *Region) sync() error {
	if r.file == nil {
		return nil
	}
	if err := unix.Msync(r.mem, unix.MS_SYNC); err != nil {
		return fmt.Errorf("writing %s to disk: %w", r.file.Name(), err)
	}
	return nil
}

// Close unmaps the region. A file gets the length of its content. No transfer may be under way.
func (r *Region) Close() error {
	if r.mem == nil {
		return nil
	}
	err := unix.Munmap(r.mem)
	r.mem = nil
	if r.file != nil {
		err = errors.Join(err, r.file.Truncate(r.length), r.file.Close())
	}
	return err
}

// mapAnonymous returns n octets of zeroed memory that take room when they are touched, for unix.Munmap.
func mapAnonymous(n int64) ([]byte, error) {
	m, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("%d octets of memory: %w", n, err)
	}
	return m, nil
}
