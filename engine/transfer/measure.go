package transfer

import (
	"context"
	"fmt"
	"time"

	"xwarp/ddp"
	"xwarp/engine/verbs"
)

// Measure writes to the server's buffer, or reads from it, for a duration, and returns the number of bytes and the time
// until the last of them. It uses no file.
func (c *Client) Measure(ctx context.Context, op verbs.WROp, d time.Duration) (n int64,
	took time.Duration, err error) {
	buffer, err := c.askBuffer(ctx)
	if err != nil {
		return 0, 0, err
	}
	moving, stop := c.untilClosed(ctx)
	defer stop()
	begin := time.Now()
	for posted, done := 0, 0; ; done++ {
		for ; posted-done < steps && time.Since(begin) < d; posted++ {
			at := posted % steps * stepLen
			err := c.post(&verbs.SendWR{ID: uint64(posted), Op: op, Flags: verbs.Signaled,
				SGL:        []verbs.SGE{c.memory.SGE(at, stepLen)},
				RemoteSTag: buffer.STag, RemoteTO: ddp.TO(at)})
			if err != nil {
				return n, time.Since(begin), c.reason(ctx, err)
			}
		}
		if done == posted {
			return n, time.Since(begin), nil
		}
		if _, err := c.end.Wait(moving, c.end.SendCQ); err != nil {
			err = c.reason(ctx, fmt.Errorf("%w: %w", err, errCut))
			return n, time.Since(begin), err
		}
		n += stepLen
	}
}
