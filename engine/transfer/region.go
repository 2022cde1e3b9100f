package transfer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
)

// Region is the memory exported by a server: one content at a time, and room for the next ones. It may be used by
// several goroutines.
type Region struct {
	size int64
	disk *disk // nil for anonymous memory

	mu   sync.Mutex
	now  *content
	past []*content // replaced but still being read; oldest first
	room room

	lost context.Context // done when the region fails
	fail context.CancelCauseFunc
}

func makeRegion(n int64, first *content) *Region {
	r := &Region{
		size: n, now: first,
		room: room{all: roomFactor * n, share: n, owned: map[netip.Prefix]int64{}},
	}
	r.lost, r.fail = context.WithCancelCause(context.Background())
	return r
}

// NewRegion creates a region of n bytes of zeroed memory without content.
func NewRegion(n int64) (*Region, error) {
	if n <= 0 || n > MaxRegion {
		return nil, fmt.Errorf("region of %d bytes: must be 1 to %d", n, int64(MaxRegion))
	}
	m, err := mapAnonymous(n, 0)
	if err != nil {
		return nil, err
	}
	return makeRegion(n, newContent(m, 0, nil)), nil
}

// Size returns the capacity of the region in bytes.
func (r *Region) Size() int64 { return r.size }

// Length returns the length of its content in bytes.
func (r *Region) Length() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now.length
}

var errLost = refuse(CodeInternal, "the server's region failed: its file was truncated, or its disk failed")

// lose marks the region as failed because its memory is inaccessible, for the given cause. It returns the error for
// clients.
func (r *Region) lose(cause error) error {
	r.fail(cause)
	return errLost
}

// Failed returns a channel that is closed when the content is inaccessible, such as after truncation of its file; Err
// says more. The region is then unusable and must be reopened.
func (r *Region) Failed() <-chan struct{} { return r.lost.Done() }

// Err returns why the region failed, or nil.
func (r *Region) Err() error { return context.Cause(r.lost) }

// hold returns the content, which stays unchanged until release. It fails if the file was truncated.
func (r *Region) hold() (*content, error) {
	r.mu.Lock()
	c := r.now
	c.holders++
	r.mu.Unlock()
	if err := c.intact(); err != nil {
		return nil, errors.Join(r.lose(err), r.releaseMemory(c))
	}
	return c, nil
}

func (r *Region) releaseMemory(c *content) error {
	r.mu.Lock()
	c.holders--
	gone := c.holders == 0
	r.mu.Unlock()
	if !gone {
		return nil
	}
	err := c.free() // which may take long
	r.mu.Lock()
	if i := slices.Index(r.past, c); i >= 0 {
		r.past = slices.Delete(r.past, i, i+1)
		r.room.used -= c.length
		r.settle()
	}
	r.mu.Unlock()
	return err
}

// commit makes the first length bytes of st the content, atomically. sum is their SHA-256. The region then owns st. If
// it fails, the content is unchanged.
func (r *Region) commit(st *stage, length int64, sum Sum) error {
	c, err := st.content(length)
	if err != nil {
		return errors.Join(err, st.drop())
	}
	c.know(sum)
	if r.disk == nil {
		return r.replace(st, c)
	}
	return r.disk.store(r, st, c, sum)
}

// replace makes c, which was st, the content.
func (r *Region) replace(st *stage, c *content) error {
	st.mem = nil
	r.mu.Lock()
	old := r.now
	r.now = c
	r.room.refund(st.who, st.byteCount)
	if old.holders > 1 {
		r.past = append(r.past, old)
		r.room.used += old.length
	}
	r.settle()
	r.mu.Unlock()
	return r.releaseMemory(old)
}

// Close frees the region's memory. No transfer may be in progress.
func (r *Region) Close() error {
	r.mu.Lock()
	c := r.now
	r.now = nil
	r.mu.Unlock()
	if c == nil {
		return nil
	}
	err := r.releaseMemory(c)
	if c.holders > 0 || len(r.past) > 0 {
		err = errors.Join(err, errors.New("the region is still reached by a peer: it stays mapped"))
	}
	if r.disk != nil {
		err = errors.Join(err, r.disk.close())
	}
	return err
}
