package main

import (
	"context"
	"fmt"
	"time"

	"xwarp/engine"
	"xwarp/engine/verbs"
)

// watchChecksums looks for segments without a TCP checksum, which a kernel at the other end of a veth pair
// sends, and tells once what to do about it. It returns when it told, or when ctx is done.
func watchChecksums(ctx context.Context, d verbs.Device, tell func(string)) {
	dev, ok := d.(*engine.Device)
	if !ok { // a daemon tells its own operator
		return
	}
	t := time.NewTicker(200 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		s, err := dev.Stats()
		if err != nil {
			return
		}
		n := uint64(0)
		for _, q := range s.Queues {
			n += q.Stack.DropPartialSum
		}
		if n > 0 {
			tell(fmt.Sprintf("%d segments arrived on %s without a TCP checksum and were dropped. "+
				"The peer's kernel leaves the checksum to a "+
				"network card, and a veth pair has none. Remedy, on the peer's end of the veth "+
				"pair: ethtool -K <dev> tx off",
				n, dev.Transport().Interface))
			return
		}
	}
}
