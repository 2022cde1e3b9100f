package transport

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"xwarp/bpf"
	"xwarp/engine/plain"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
)

// watchEvery is the polling interval of the counters.
const watchEvery = 200 * time.Millisecond

// Watch reports dropped frames whose cause the user can remove, until ctx is done or the counters cannot be read.
// Segments without a TCP checksum, which a peer on this host may send, are reported once. Frames on receive queues that
// are not served are reported each time that their number has doubled. It reports nothing for a device of the daemon,
// which itself reports these drops.
func Watch(ctx context.Context, d verbs.Device, tell func(string)) {
	dev, ok := d.(*xdp.Device)
	if !ok {
		return
	}
	tick := time.Tick(watchEvery)
	sums, seen := false, uint64(0)
	next := map[int]uint64{} // by queue: number of frames at which the next report is due
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		s, err := dev.Stats()
		if err != nil {
			return
		}
		if n := s.PartialSums(); n > 0 && !sums {
			sums = true
			tell(fmt.Sprintf("dropped %s without a TCP checksum on %s: a device below merges segments "+
				"(xwarp doctor --fix), or a peer on this host leaves checksums to hardware (on its interface: "+
				"ethtool -K <dev> tx off)", plain.Count(n, "segment"),
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
				tell(fmt.Sprintf("dropped %s on receive queue %d of %s, which is not served: "+
					"their connections stall. Add the queue to --queues, omit --queues, or keep "+
					"connections off the queue: ethtool -X %[3]s", plain.Count(n, "frame"), q,
					dev.Transport().Interface))
			}
		}
	}
}
