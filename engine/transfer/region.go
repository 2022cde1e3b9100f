package transfer

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"
)

// Region is what a server exports: one content at a time, and the memory for the next ones. Several
// goroutines may use it.
type Region struct {
	size int64
	file *os.File // nil for anonymous memory
	disk []byte   // its mapping

	mu   sync.Mutex
	now  *content
	past []*content // replaced, in anonymous memory, and still read; the oldest first
	room room

	storing *semaphore.Weighted // who writes to the file
	stored  *content            // what the file has
	drained chan struct{}       // made by who waits until no get reads stored
	pressed atomic.Bool         // somebody does

	losing sync.Once
	lost   chan struct{}
	why    error
}

func makeRegion(n int64, first *content) *Region {
	return &Region{
		size: n, now: first, storing: semaphore.NewWeighted(1), lost: make(chan struct{}),
		room: room{all: roomFactor * n, share: n, owned: map[netip.Prefix]int64{}},
	}
}

// NewRegion makes a region of n octets of zeroed memory without content.
func NewRegion(n int64) (*Region, error) {
	if n <= 0 || n > MaxRegion {
		return nil, fmt.Errorf("a region of %d octets: it must have 1 to %d", n, int64(MaxRegion))
	}
	m, err := mapAnonymous(n, 0)
	if err != nil {
		return nil, err
	}
	return makeRegion(n, newContent(m, 0)), nil
}

// OpenRegion maps a file, which it makes when it is not there. With n 0 the region is as long as the file. A file
// shorter than n is lengthened while the region is open; Close gives it the length of its content.
func OpenRegion(name string, n int64) (r *Region, err error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	r, err = mapFile(f, n)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, errors.Join(err, f.Close()))
	}
	return r, nil
}

func mapFile(f *os.File, n int64) (*Region, error) {
	fd := int(f.Fd())
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil,
			fmt.Errorf("another process has locked the file, perhaps another xwarp serve: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	length := st.Size()
	if n == 0 {
		n = length
	}
	switch {
	case !st.Mode().IsRegular():
		return nil, errors.New("is no regular file, so it cannot be a region")
	case n == 0:
		return nil, errors.New("is empty: say with --size how large the region shall be")
	case n < length:
		return nil,
			fmt.Errorf("has %d octets and would not fit a region of %d: a larger --size, or none",
				length, n)
	case n > MaxRegion:
		return nil, fmt.Errorf("a region of %d octets is above %d", n, int64(MaxRegion))
	}
	// With all blocks there, no put fails at its end for want of disk.
	err = unix.Fallocate(fd, 0, 0, n)
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = f.Truncate(n)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%d octets of disk: %w", n, err), f.Truncate(length))
	}
	mem, err := unix.Mmap(fd, 0, int(n), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("mapping %d octets: %w", n, err), f.Truncate(length))
	}
	c := newContent(mem, length)
	c.filled, c.inFile = length > 0, true
	r := makeRegion(n, c)
	r.file, r.disk, r.stored = f, mem, c
	return r, nil
}

// Size returns the octets that the region can hold.
func (r *Region) Size() int64 { return r.size }

// Length returns the octets of its content.
func (r *Region) Length() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now.length
}

var errLost = refuse(CodeInternal, "the server's region failed: its file was shortened, or its "+
	"disk failed")

// lose says that the memory of the region cannot be accessed; cause is how that showed. It returns what a client hears.
func (r *Region) lose(cause error) error {
	r.losing.Do(func() {
		r.why = cause
		close(r.lost)
	})
	return errLost
}

// Failed is closed when the memory of the region cannot be accessed, as when its file was shortened; Err says
// more. The region is of no use then, and has to be opened anew.
func (r *Region) Failed() <-chan struct{} { return r.lost }

// Err returns why the region failed, nil while it has not.
func (r *Region) Err() error {
	select {
	case <-r.lost:
		return r.why
	default:
		return nil
	}
}

// hold returns the content, which stays as it is until release.
func (r *Region) hold() *content {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.holders++
	return r.now
}

func (r *Region) release(c *content) error {
	r.mu.Lock()
	c.holders--
	gone := c.holders == 0
	if gone && c.inFile && r.drained != nil {
		close(r.drained)
		r.drained = nil
	}
	r.mu.Unlock()
	if !gone || c.inFile {
		return nil
	}
	err := unix.Munmap(c.mem) // which takes its time
	r.mu.Lock()
	if i := slices.Index(r.past, c); i >= 0 {
		r.past = slices.Delete(r.past, i, i+1)
		r.room.used -= c.length
		r.settle()
	}
	r.mu.Unlock()
	return err
}

// commit makes the first length octets of st the content, at once and whole; their SHA-256 is sum. st's
// memory belongs to the region from then on. It returns when they are in the file too, if there is one.
func (r *Region) commit(st *stage, length int64, sum Sum) error {
	mem, err := st.take(length)
	if err != nil {
		return err
	}
	c := newContent(mem, length)
	c.filled = true
	c.know(sum)
	r.mu.Lock()
	old := r.now
	c.serial = old.serial + 1
	c.holders++ // until it is stored
	r.room.give(st.who, st.octets)
	r.replace(c)
	r.settle()
	r.mu.Unlock()
	err = r.release(old)
	if r.file != nil {
		err = errors.Join(err, r.store(c))
	}
	return errors.Join(err, r.release(c))
}

// replace makes c the content; the caller releases the one of before. r.mu is held.
func (r *Region) replace(c *content) {
	old := r.now
	r.now = c
	if !old.inFile && old.holders > 1 {
		r.past = append(r.past, old)
		r.room.used += old.length
	}
}

// Close unmaps the region. A file gets its content, if the disk did not take it before, and the length of
// that. No transfer may be under way.
func (r *Region) Close() (err error) {
	r.mu.Lock()
	c := r.now
	missing := c != nil && r.file != nil && !c.inFile && r.stored.holders == 0
	r.mu.Unlock()
	if missing {
		err = r.store(c)
	}
	r.mu.Lock()
	c, r.now = r.now, nil
	r.mu.Unlock()
	if c == nil {
		return err
	}
	err = errors.Join(err, r.release(c))
	if r.file == nil {
		return err
	}
	if r.stored.holders > 0 {
		return errors.Join(err, fmt.Errorf("%s is still reached by a peer: it stays mapped",
			r.file.Name()), r.file.Close())
	}
	return errors.Join(err, unix.Munmap(r.disk), r.file.Truncate(r.stored.length), r.file.Close())
}

// mapAnonymous returns n octets of memory that take room when they are written to, which the first writable
// ones can be.
func mapAnonymous(n, writable int64) ([]byte, error) {
	m, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err == nil && writable > 0 {
		if err = unix.Mprotect(m[:writable], unix.PROT_READ|unix.PROT_WRITE); err != nil {
			err = errors.Join(err, unix.Munmap(m))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%d octets of memory: %w", n, err)
	}
	return m, nil
}
