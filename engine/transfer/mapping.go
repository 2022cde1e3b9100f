package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"xwarp/ddp/rdmap"
	"xwarp/engine/host/fault"
	"xwarp/engine/verbs"
)

// mapping is a file of this host's, whose bytes go from the page cache to the wire.
type mapping struct {
	c       *Client
	name    string
	mem     []byte
	exposed *registration // nil: the device takes only memory of its own, so that the client's buffers are between
}

// mapFile maps the first n bytes of f, of which there must be some, for c to read.
func (c *Client) mapFile(f *os.File, n int64) (*mapping, error) {
	mem, err := unix.Mmap(int(f.Fd()), 0, int(n), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes of %s: %w", n, f.Name(), err)
	}
	m := &mapping{c: c, name: f.Name(), mem: mem}
	m.exposed, err = c.registerMemory(mem, 0, func() error { return unix.Munmap(mem) })
	if err != nil && !errors.Is(err, verbs.ErrNotShared) {
		return nil, errors.Join(err, unix.Munmap(mem))
	}
	return m, nil
}

// mapInput maps r when it is a whole file of length bytes. A nil mapping is none.
func (c *Client) mapInput(r io.Reader, length int64) (*mapping, error) {
	f, ok := r.(*os.File)
	if !ok || length <= 0 {
		return nil, nil
	}
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() || st.Size() != length {
		return nil, err
	}
	if at, err := f.Seek(0, io.SeekCurrent); err != nil || at != 0 {
		return nil, err
	}
	return c.mapFile(f, length)
}

// close gives the mapping back, once nothing is under way.
func (m *mapping) close() error {
	if m == nil {
		return nil
	}
	if err := m.c.deregisterNow(m.exposed); err != nil {
		return err // the link has it
	}
	return unix.Munmap(m.mem)
}

// touch runs f, which accesses the mapping.
func (m *mapping) touch(f func()) error {
	if err := fault.Touch(f); err != nil {
		return fmt.Errorf("%s was shortened meanwhile, or its disk failed", m.name)
	}
	return nil
}

// postChunk writes total bytes of a mapping to the server, and adds them to the SHA-256.
func (w *window) postChunk(ctx context.Context) error {
	for w.moved < w.total {
		for !w.full() && w.asked < w.total {
			b := w.local.mem[w.asked:][:min(chunk, w.total-w.asked)]
			err := w.local.touch(func() {
				w.sum.Write(b)
				if w.local.exposed == nil {
					copy(w.buffer(w.posted), b)
				}
			})
			if err == nil {
				err = w.post(rdmap.WRWrite, len(b))
			}
			if err != nil {
				return err
			}
		}
		if _, err := w.next(ctx); err != nil {
			return err
		}
	}
	return nil
}
