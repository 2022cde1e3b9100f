package transfer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"xwarp/engine/host/fault"
)

// content is data that stays constant while gets read it. A put replaces the content; its readers keep the old one.
type content struct {
	mem    []byte // as long as the region; the bytes after length are undefined
	length int64
	filled bool     // it was put, perhaps with length 0, or read from the file
	file   *os.File // file mapped at the start of mem; nil: all of it is anonymous

	// guarded by Region.mu
	holders int // gets, and the region while this is its content

	freed   chan struct{}   // closed by free
	revoked context.Context // done when the memory is needed
	revoke  context.CancelCauseFunc

	mu      sync.Mutex
	digests map[int64]*digest // by length
}

func newContent(mem []byte, length int64, file *os.File) *content {
	c := &content{
		mem: mem, length: length, file: file, holders: 1,
		freed: make(chan struct{}), digests: map[int64]*digest{},
	}
	c.revoked, c.revoke = context.WithCancelCause(context.Background())
	return c
}

var errReplaced = refuse(CodeYield, "the content was replaced while it was read, and its memory "+
	"is needed for the next one: get it again")

// digest is the SHA-256 of the first bytes of a content, once done is closed. ok is false if it was not completed.
type digest struct {
	done chan struct{}
	ok   bool
	sum  Sum
}

// know records the SHA-256 of all of c.
func (c *content) know(sum Sum) {
	d := &digest{done: make(chan struct{}), ok: true, sum: sum}
	close(d.done)
	c.digests[c.length] = d
}

// intact fails if the file was truncated, which makes its bytes inaccessible.
func (c *content) intact() error {
	if c.file == nil {
		return nil
	}
	st, err := c.file.Stat()
	if err == nil && st.Size() < c.length {
		err = fmt.Errorf("%s has %d bytes, had %d: it was truncated by another process",
			c.file.Name(), st.Size(), c.length)
	}
	return err
}

// free frees the memory and the file.
func (c *content) free() error {
	defer close(c.freed)
	err := unix.Munmap(c.mem)
	if c.file != nil {
		err = errors.Join(err, c.file.Close())
	}
	return err
}

// checksum returns the SHA-256 of the first n bytes. One caller computes it, with hash; others that need the same wait
// for it.
func (c *content) checksum(ctx context.Context, n int64, hash func(context.Context, []byte) (Sum,
	error)) (sum Sum, err error) {
	for {
		d, known := c.digest(n)
		if !known {
			d.sum, err = hash(ctx, c.mem[:n])
			c.settle(n, d, err)
			return d.sum, err
		}
		select {
		case <-d.done:
			if d.ok {
				return d.sum, nil
			}
		case <-ctx.Done():
			return sum, context.Cause(ctx)
		}
	}
}

// digest returns the digest of a length. If it is not known yet, the caller must compute and settle it.
func (c *content) digest(n int64) (d *digest, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d, known = c.digests[n]; known {
		return d, true
	}
	for old, o := range c.digests {
		if len(c.digests) < maxDigests {
			break
		}
		if o.ok && old != c.length {
			delete(c.digests, old)
		}
	}
	d = &digest{done: make(chan struct{})}
	c.digests[n] = d
	return d, false
}

func (c *content) settle(n int64, d *digest, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.ok = err == nil; !d.ok {
		delete(c.digests, n)
	}
	close(d.done)
}

// hash computes a SHA-256. Clients take turns on one CPU, chunk by chunk.
func (s *Server) hash(ctx context.Context, b []byte) (sum Sum, err error) {
	h := sha256.New()
	for len(b) > 0 {
		n := min(hashChunk, len(b))
		if err := s.hashPart(ctx, h, b[:n]); err != nil {
			return sum, err
		}
		b = b[n:]
	}
	return Sum(h.Sum(nil)), nil
}

// hashPart adds at most hashChunk bytes to h.
func (s *Server) hashPart(ctx context.Context, h hash.Hash, b []byte) error {
	if s.hashing.Acquire(ctx, 1) != nil {
		return context.Cause(ctx)
	}
	defer s.hashing.Release(1)
	return fault.Touch(func() { h.Write(b) }) // b may be the mapping of a region's file
}
