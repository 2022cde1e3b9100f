package transfer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	"xwarp/ddp/rdmap"
)

// Put replaces the server's content by the bytes of r. length is the number of bytes to read, or -1 if only the end of
// r shows it. If it fails, the server's content is unchanged.
func (c *Client) Put(ctx context.Context, r io.Reader, length int64) (s Summary, err error) {
	m := Message{Type: TypePut, Length: Unknown}
	if length >= 0 {
		m.Length = uint64(length)
	}
	region, err := c.request(ctx, &m)
	if err != nil {
		return s, err
	}
	start := time.Now()
	moving, stop := c.untilClosed(ctx)
	defer stop()
	w := c.window(region, length)
	w.sum = sha256.New()
	if length >= 0 {
		r = io.LimitReader(r, length)
	}
	if err = w.write(moving, r); err != nil {
		return s, c.abandon(c.reason(ctx, err))
	}
	if length >= 0 && w.moved != length {
		return s, c.abandon(fmt.Errorf("the input ended after %d of %d bytes: was it changed "+
			"during the put?", w.moved, length))
	}
	done := Message{Type: TypeDone, Length: uint64(w.moved), Sum: Sum(w.sum.Sum(nil))}
	if err := c.postMessage(&done); err != nil {
		return s, c.reason(ctx, err)
	}
	reply, err := c.expect(ctx, TypeDone)
	if err != nil {
		return s, err
	}
	if reply.Length != done.Length || reply.Sum != done.Sum {
		return s,
			fmt.Errorf("%w: the server confirmed %d bytes with SHA-256 %x, sent %d with %x",
				ErrProtocol, reply.Length, reply.Sum, done.Length, done.Sum)
	}
	return Summary{
		Bytes: w.moved, Content: w.moved, Sum: done.Sum, Took: time.Since(start),
	}, nil
}

// abandon tells the server that the transfer is aborted.
func (c *Client) abandon(err error) error {
	c.postMessage(&Message{Type: TypeError, Code: CodeInternal, Text: err.Error()})
	return err
}

// write moves everything from r, buffer by buffer.
func (w *window) write(ctx context.Context, r io.Reader) error {
	for end := false; !end; {
		for w.full() {
			if _, err := w.next(ctx); err != nil {
				return err
			}
		}
		b := w.buffer(w.posted)
		n, err := w.c.readFull(ctx, r, b)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			end = true
		case ctx.Err() != nil:
			return context.Cause(ctx) // caused by the connection, not by the input
		case err != nil:
			return fmt.Errorf("reading the input: %w", err)
		}
		for int64(n) > int64(w.remote.Length)-w.asked {
			if err := w.extend(ctx); err != nil {
				return err
			}
		}
		if n == 0 {
			break
		}
		w.sum.Write(b[:n])
		if err := w.post(rdmap.WRWrite, n); err != nil {
			return err
		}
	}
	for w.done < w.posted {
		if _, err := w.next(ctx); err != nil {
			return err
		}
	}
	return nil
}

// extend requests more of the server's region. Bytes written to the earlier part arrive before the request.
func (w *window) extend(ctx context.Context) error {
	before := w.remote.Length
	if before >= w.remote.Content {
		return fmt.Errorf("the input has more bytes than the server's region (%d); nothing "+
			"was changed there", before)
	}
	err := w.c.postMessage(&Message{Type: TypePut, Length: Unknown})
	if err == nil {
		w.remote, err = w.c.expect(ctx, TypeRegion)
	}
	if err == nil && w.remote.Length <= before {
		err = fmt.Errorf("%w: %d bytes granted after %d", ErrProtocol, w.remote.Length, before)
	}
	return err
}

// readFull is io.ReadFull that ends with ctx. After that b must not be used, because the reader still has it: the
// memory of this end is kept until it returns.
func (l *link) readFull(ctx context.Context, r io.Reader, b []byte) (int, error) {
	var got struct {
		n   int
		err error
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		got.n, got.err = io.ReadFull(r, b)
	}()
	select {
	case <-done:
		return got.n, got.err
	case <-ctx.Done():
		l.reading = done
		return 0, context.Cause(ctx)
	}
}
