package transfer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"xwarp/engine/host/staging"
	"xwarp/engine/verbs"
)

// stage is the memory to which a put writes: as long as the region, with allocated bytes, of which the ready ones are
// writable. It is anonymous memory, or the mapping of a file that will replace the region's, so that nothing is copied.
type stage struct {
	region    *Region
	who       netip.Prefix
	byteCount int64
	ready     int64
	mem       []byte
	file      *staging.File // nil for memory
}

// stage waits until there is room for the bytes of a client's put. A file gets the first of them at once.
func (s *Server) stage(ctx context.Context, l *link, who netip.Prefix, byteCount, first int64) (
	*stage, error) {
	r := s.cfg.Region
	ctx, stop := l.untilClosed(ctx)
	defer stop()
	if r.Err() != nil {
		return nil, errLost
	}
	if err := r.reserve(ctx, who, byteCount); err != nil {
		return nil, err
	}
	st, err := r.stage(who, byteCount, first)
	if err != nil {
		r.unreserve(who, byteCount)
		return nil, refuse(CodeInternal, "no room to take %d bytes; the content is what it "+
			"was: %v", byteCount, err)
	}
	return st, nil
}

func (r *Region) stage(who netip.Prefix, byteCount, first int64) (*stage, error) {
	st := &stage{region: r, who: who, byteCount: byteCount, ready: first}
	var err error
	if r.disk == nil {
		st.ready = byteCount
		st.mem, err = mapAnonymous(r.size, byteCount)
		return st, err
	}
	if st.file, err = r.disk.create(first); err != nil {
		return nil, err
	}
	st.mem, err = mapFile(st.file.File, first, r.size, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return nil, errors.Join(err, st.file.Drop())
	}
	return st, nil
}

// extend doubles the writable bytes of a put of unknown length. No STag may name st.
func (st *stage) extend() error {
	more := min(st.byteCount, 2*st.ready)
	err := st.file.Allocate(more)
	if err == nil {
		err = mapAt(st.mem, more, int(st.file.Fd()), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_SHARED)
	}
	if err != nil {
		return refuse(CodeInternal, "the content is what it was: %v", err)
	}
	st.ready = more
	return nil
}

// grant lets the client write to the ready bytes.
func (st *stage) grant(l *link) (exposed *registration, err error) {
	m := Message{Type: TypeRegion, Length: uint64(st.ready), Content: uint64(st.byteCount)}
	if st.ready > 0 {
		if exposed, err = l.expose(st.mem[:st.ready], verbs.RemoteWrite, st.drop); err != nil {
			return nil, err
		}
		m.STag = exposed.mr.STag()
	}
	return exposed, l.postMessage(&m)
}

// drop frees the memory, once no STag names it. It may be called again.
func (st *stage) drop() error {
	if st.mem == nil {
		return nil
	}
	err := unix.Munmap(st.mem)
	st.mem = nil
	if st.file != nil {
		err = errors.Join(err, st.file.Drop())
	}
	st.region.unreserve(st.who, st.byteCount)
	return err
}

// content returns the first length bytes of st as a content, which is no longer writable. st still owns the memory.
func (st *stage) content(length int64) (*content, error) {
	kept, all := pages(length), pages(st.ready)
	if st.file == nil {
		var err error
		if kept < all {
			err = unix.Madvise(st.mem[kept:st.ready], unix.MADV_DONTNEED)
		}
		return filled(st.mem, length, nil), err
	}
	err := st.file.Truncate(length)
	if err == nil && kept < all {
		err = mapAt(st.mem[kept:], all-kept, -1, unix.PROT_READ, anonymous)
	}
	if err == nil && length > 0 {
		err = unix.Mprotect(st.mem[:length], unix.PROT_READ)
	}
	return filled(st.mem, length, st.file.File), err
}

// filled is newContent for the bytes of a client's put.
func filled(mem []byte, length int64, file *os.File) *content {
	c := newContent(mem, length, file)
	c.filled = true
	return c
}

// pages returns n rounded up to whole pages.
func pages(n int64) int64 {
	page := int64(os.Getpagesize())
	return (n + page - 1) / page * page
}

// anonymous memory is allocated when it is written to
const anonymous = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_NORESERVE

// mapAnonymous returns n bytes of zeroed memory, of which the first writable ones can be written to.
func mapAnonymous(n, writable int64) ([]byte, error) {
	m, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ, anonymous)
	if err == nil && writable > 0 {
		if err = unix.Mprotect(m[:writable], unix.PROT_READ|unix.PROT_WRITE); err != nil {
			err = errors.Join(err, unix.Munmap(m))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%d bytes of memory: %w", n, err)
	}
	return m, nil
}

// mapFile returns size bytes of memory: the first n from f, the others zero.
func mapFile(f *os.File, n, size int64, prot int) ([]byte, error) {
	m, err := mapAnonymous(size, 0)
	if err != nil || n == 0 {
		return m, err
	}
	if err := mapAt(m, n, int(f.Fd()), prot, unix.MAP_SHARED); err != nil {
		return nil, errors.Join(fmt.Errorf("mapping %d bytes of %s: %w", n, f.Name(), err),
			unix.Munmap(m))
	}
	return m, nil
}

// mapAt maps n bytes over the start of m.
func mapAt(m []byte, n int64, fd, prot, flags int) error {
	at := unsafe.Pointer(&m[0])
	_, err := unix.MmapPtr(fd, 0, at, uintptr(n), prot, flags|unix.MAP_FIXED)
	return err
}
