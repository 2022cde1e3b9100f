package transfer

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"time"
)

// Get writes the first length bytes of the server's content to dst, or all of it if length is 0. An error may follow
// bytes already written; only without an error are they the server's.
func (c *Client) Get(ctx context.Context, dst io.Writer, length int64) (s Summary, err error) {
	region, err := c.request(ctx, &Message{Type: TypeGet, Length: uint64(length)})
	if err != nil {
		return s, err
	}
	total := int64(region.Length)
	if total < 0 || length > 0 && total != length {
		return s, c.abandon(fmt.Errorf("%w: the server granted %d bytes, want %d",
			ErrProtocol, region.Length, length))
	}
	start := time.Now()
	moving, stop := c.untilClosed(ctx)
	defer stop()
	w := c.window(region, total)
	w.sum = sha256.New()
	err = w.read(moving, func(b []byte) error {
		w.sum.Write(b)
		if _, err := dst.Write(b); err != nil {
			return fmt.Errorf("writing the output: %w", err)
		}
		return nil
	})
	if err != nil {
		return s, c.abandon(c.reason(ctx, err))
	}
	sum := Sum(w.sum.Sum(nil))
	if sum != region.Sum {
		return s, c.abandon(fmt.Errorf("SHA-256 of the received data is %x, the server's is %x: "+
			"do not use the output", sum, region.Sum))
	}
	s = Summary{Bytes: total, Content: int64(region.Content), Sum: sum, Took: time.Since(start)}
	return s, c.postMessage(&Message{Type: TypeDone, Length: region.Length, Sum: sum})
}
