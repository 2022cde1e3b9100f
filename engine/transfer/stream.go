package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
)

// StoreFrom copies r, up to its end, to a file of the server, and returns the number of bytes. The file appears or is
// replaced when it is complete. An incomplete one is removed.
func (c *Client) StoreFrom(ctx context.Context, path string, mode uint16, r io.Reader) (int64,
	error) {
	a := Attr{Kind: KindFile, Flags: FlagStream, Mode: mode}
	f, err := c.Store(ctx, path, a, rand.Uint64(), nil)
	if err != nil {
		return 0, err
	}
	reading, stop := c.untilClosed(ctx)
	defer stop()
	in, end := interruptible(reading, r)
	defer end()
	return (&move{f: f, in: in, n: MaxFile}).whole(ctx)
}

// FetchTo copies a file of the server to w, and returns the number of bytes. Bytes may be written before an error: they
// are the whole file only without one.
func (c *Client) FetchTo(ctx context.Context, path string, w io.Writer) (int64, error) {
	f, err := c.Fetch(ctx, path, nil)
	if err != nil {
		return 0, err
	}
	return (&move{f: f, out: w, n: int64(f.Attr().Length)}).whole(ctx)
}

// whole moves a stream and closes its file.
func (m *move) whole(ctx context.Context) (int64, error) {
	err := m.run(ctx)
	if !m.f.c.Over() {
		err = errors.Join(err, m.f.Close(ctx, err == nil))
	}
	if err != nil {
		return 0, err
	}
	return m.n, nil
}

// readStream fills b from the input. At the end of the input it returns fewer bytes and sets the length of the stream.
func (m *move) readStream(b []byte) (int, error) {
	n, err := io.ReadFull(m.in, b)
	switch {
	case err == io.EOF, err == io.ErrUnexpectedEOF: // ReadFull's own; those of the input are wrapped
		m.n = int64(m.asked)*stepLen + int64(n)
		return n, nil
	case err != nil:
		return 0, err
	}
	return n, nil
}

// interruptible returns a reader of r whose Read fails when ctx is done. Another goroutine reads r, because the read of
// a pipe cannot be interrupted. It ends at the first bytes of r after end was called.
func interruptible(ctx context.Context, r io.Reader) (_ io.Reader, end func()) {
	in, out := io.Pipe()
	go func() {
		_, err := io.CopyBuffer(out, struct{ io.Reader }{r}, make([]byte, stepLen))
		if err != nil {
			err = fmt.Errorf("reading the input: %w", err)
		}
		out.CloseWithError(err)
	}()
	stop := context.AfterFunc(ctx, func() { out.CloseWithError(context.Cause(ctx)) })
	return in, func() {
		stop()
		in.Close()
	}
}
