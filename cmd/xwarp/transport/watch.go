package transport

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"xwarp/bpf"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
)

// watchEvery is how often counters are looked at.
const watchEvery = 200 * time.Millisecond

// Watch reports frames that the device dropped for reasons that a user can remove. It reports once segments without a
// TCP checksum, which a kernel at the other end of a veth pair sends; and frames on receive queues that are not served,
// with their number, each time that it has doubled. It returns when ctx is done. The daemon reports the drops of its
// devices itself.
func Watch(ctx context.Context, d verbs.Device, tell func(string)) {
	dev, ok := d.(*xdp.Device)
	if !ok {
		return
	}
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	sums, seen := false, uint64(0)
	next := map[int]uint64{} // by queue: when to tell again
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
		if n := withoutSum(&s); n > 0 && !sums {
			sums = true
			tell(fmt.Sprintf("%d segments arrived on %s without a TCP checksum and were dropped. The "+
				"peer's kernel leaves the checksum to a network card, and a veth pair has none. Remedy, on "+
				"the peer's end of the veth pair: ethtool -K <dev> tx off", n,
				dev.Transport().Interface))
		}
		if s.Steering[bpf.DropNoSocket] == seen {
			continue
		}
		seen = s.Steering[bpf.DropNoSocket]
		lost, err := dev.Unowned()
		if err != nil {
			return
		}
		for _, q := range slices.Sorted(maps.Keys(lost)) {
			if n := lost[q]; n >= max(next[q], 1) {
				next[q] = 2 * n
				tell(fmt.Sprintf("%d frames for us arrived on receive queue %d of %s, which is not served, "+
					"and were dropped: their connections stall. Remedy: --queues with that queue or without "+
					"any, or keep connections off it: ethtool -X %[3]s", n, q,
					dev.Transport().Interface))
			}
		}
	}
}

func withoutSum(s *xdp.Stats) (n uint64) {
	for _, q := range s.Queues {
		n += q.Stack.DropPartialSum
	}
	return n
}
