package transfer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"os"

	"github.com/cespare/xxhash/v2"

	"xwarp/engine/host/staging"
	"xwarp/engine/verbs"
)

// buffer is the server's memory for one client. The client writes the data to store into it, and reads fetched data
// from it.
type buffer struct {
	mr    verbs.MR // BufferLen bytes
	batch staging.Batch
	dirs  staging.Dirs // of the files of the batch
}

// makeBuffer sends the location of the buffer to the client. The first call creates the buffer.
func (c *copying) makeBuffer() error {
	if c.buffer == nil {
		mr, err := c.l.end.Buffer(BufferLen, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead)
		if err != nil {
			return err
		}
		c.buffer = &buffer{mr: mr, dirs: staging.Dirs{}}
	}
	return c.l.postMessage(&Message{Type: TypeRegion, Length: BufferLen, STag: c.buffer.mr.STag()})
}

// step returns the part of the buffer that m, a StoreBytes or FetchBytes, names. It fails unless a file is open for
// storing or fetching, as m requires, and m names at most stepLen bytes of it.
func (c *copying) step(m *Message) ([]byte, error) {
	if m.Length > stepLen {
		return nil, refuse(CodeProtocol, "a %v of %d bytes, and %d are the most", m.Type, m.Length,
			stepLen)
	}
	if err := c.checkRange(m); err != nil {
		return nil, err
	}
	if (m.Type == TypeStoreBytes) != (c.file.store != nil) {
		return nil, refuse(CodeProtocol, "a %v for %s, which is open for a %s", m.Type, c.file.path,
			c.file.op)
	}
	return c.inBuffer(m.Place, m.Length)
}

// inBuffer returns n bytes of the buffer, from offset at on.
func (c *copying) inBuffer(at, n uint64) ([]byte, error) {
	if c.buffer == nil || n > BufferLen || at > BufferLen-n {
		return nil, refuse(CodeProtocol, "%d bytes at %d of a buffer of %d, or without one", n, at,
			BufferLen)
	}
	return c.buffer.mr.Bytes()[at:][:n], nil
}

// checkRange fails unless m names bytes of the open file.
func (c *copying) checkRange(m *Message) error {
	if o := c.file; o == nil || m.Offset > o.length || m.Length > o.length-m.Offset {
		return refuse(CodeProtocol, "a %v of %d bytes at %d that are no part of an open file",
			m.Type, m.Length, m.Offset)
	}
	return nil
}

// storeBytes writes bytes of the buffer to the open file. At the end of a stream they make the file longer.
func (c *copying) storeBytes(m *Message) error {
	if o := c.file; o != nil && o.store != nil && o.store.isStream() {
		if err := o.grow(m); err != nil {
			return c.answerFile(nil, err)
		}
	}
	b, err := c.step(m)
	if err != nil {
		return err
	}
	if check := xxhash.Sum64(b); check != m.Check {
		return refuse(CodeSum, "XXH64 of bytes %d to %d of %s is %x here, and the client says %x",
			m.Offset, m.Offset+m.Length, c.file.path, check, m.Check)
	}
	p := c.file.store
	err = writeAt(p.file.File, b, int64(m.Offset), p.attr.Flags&FlagSparse != 0)
	return c.answerFile(&Message{Type: TypeBytes, Offset: m.Offset, Length: m.Length}, err)
}

// grow makes a stream longer if m continues it. After an error it returns the same error: the client may have sent
// further requests before it learned of it.
func (o *opened) grow(m *Message) error {
	if o.err != nil || m.Offset != o.length {
		return o.err
	}
	err := o.store.grow(m.Length)
	if err == nil {
		o.length += m.Length
	}
	return err
}

// fetchBytes reads bytes of the open file into the buffer.
func (c *copying) fetchBytes(m *Message) error {
	b, err := c.step(m)
	if err != nil {
		return err
	}
	err = readWhole(c.file.file(), b, m.Offset, c.file.path)
	return c.answerFile(&Message{Type: TypeBytes, Offset: m.Offset, Length: m.Length,
		Check: xxhash.Sum64(b)}, err)
}

// answerFile sends m, or err if it is not nil. The first error of the open file is reported when the file is closed.
func (c *copying) answerFile(m *Message, err error) error {
	c.file.err = cmp.Or(c.file.err, err)
	return c.answer(m, err)
}

// readWhole reads len(b) bytes of a file from offset off on. If the file is shorter, the error is sent to the client.
func readWhole(f *os.File, b []byte, off uint64, name string) error {
	_, err := f.ReadAt(b, int64(off))
	if errors.Is(err, io.EOF) {
		err = refuse(CodeFile, "%s was cut short meanwhile", name)
	}
	return err
}

// sum sends the SHA-256 of a range of the file.
func (c *copying) sum(ctx context.Context, m *Message) error {
	err := c.checkRange(m)
	if err == nil && m.Length > maxSum {
		err = refuse(CodeProtocol, "a Sum of %d bytes, and %d are the most", m.Length, maxSum)
	}
	if err != nil {
		return err
	}
	ctx, stop := c.l.untilClosed(ctx)
	defer stop()
	h, b := sha256.New(), make([]byte, min(hashChunk, m.Length))
	for off, end := m.Offset, m.Offset+m.Length; off < end && err == nil; off += uint64(len(b)) {
		b = b[:min(uint64(len(b)), end-off)]
		if err = readWhole(c.file.file(), b, off, c.file.path); err != nil {
			return c.answerFile(nil, err)
		}
		err = c.s.hashPart(ctx, h, b)
	}
	if err != nil {
		return err
	}
	return c.l.postMessage(&Message{Type: TypeSum, Offset: m.Offset, Length: m.Length,
		Sum: Sum(h.Sum(nil))})
}

// hashPart adds at most hashChunk bytes to h. Clients take turns on one CPU.
func (s *Server) hashPart(ctx context.Context, h hash.Hash, b []byte) error {
	if s.hashing.Acquire(ctx, 1) != nil {
		return context.Cause(ctx)
	}
	defer s.hashing.Release(1)
	h.Write(b)
	return nil
}
