package device

import (
	"context"
	"maps"
	"slices"
	"time"

	"xwarp/bpf"
	"xwarp/engine/host/ethtool"
	"xwarp/engine/xdp"
)

// Watch warns, until ctx is done, of frames for our ports on queues without a worker. Their connections stall until the
// device moves them to another queue, as after a change of its channels. It also warns of segments without a TCP
// checksum, once for each device, and of addresses that two devices have.
func Watch(ctx context.Context, devices func() []*Device) {
	tick := time.Tick(watchEvery)
	seen := map[string]map[int]uint64{} // by device; the counts outlive a device
	total := map[string]uint64{}
	warned := map[string]bool{} // by device: warnPartialSums has warned
	var shared map[sharedAddress]bool
	for {
		list := devices()
		shared = warnShared(list, shared)
		for _, v := range list {
			if v.xdp == nil {
				continue
			}
			s, err := v.xdp.Stats()
			if !warned[v.Name] {
				warned[v.Name] = v.warnPartialSums(&s)
			}
			if now := s.Steering[bpf.DropNoSocket]; err == nil && now > total[v.Name] {
				total[v.Name] = now
				seen[v.Name] = v.warnUnowned(seen[v.Name])
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
	}
}

// warnPartialSums warns of segments dropped because their sender left the checksum to a network card, and none
// completed it. It reports whether there are any.
func (v *Device) warnPartialSums(s *xdp.Stats) bool {
	n := s.PartialSums()
	if n > 0 {
		v.log.Warn("dropping segments without a TCP checksum", "frames", n,
			"next", "xwarp doctor --fix; at a peer on this host: ethtool -K <dev> tx off")
	}
	return n > 0
}

// warnUnowned warns of each queue without a worker that has dropped frames for our ports since the counts before. It
// returns the current counts, by queue.
func (v *Device) warnUnowned(before map[int]uint64) map[int]uint64 {
	now, err := v.xdp.Unowned()
	if err != nil {
		return before
	}
	for _, q := range slices.Sorted(maps.Keys(now)) {
		if n := now[q] - before[q]; n > 0 {
			v.log.Warn("dropping frames for our ports: their receive queue is not served",
				"queue", q, "frames", n,
				"next", "add it to queues in [[interface]] (empty: all) and restart xwarpd, "+
					"or remove the queue: "+v.removeQueuesCommand())
		}
	}
	return now
}

// removeQueuesCommand returns the command that removes the queues without a worker.
func (v *Device) removeQueuesCommand() (command string) {
	n := v.Core.Transport().Queues
	if len(v.Config.Queues) > 0 {
		n = slices.Max(v.Config.Queues) + 1
	}
	v.Core.Do(func() error {
		command = ethtool.QueuesCommand(v.ifname(), n)
		return nil
	})
	return command
}

// watchEvery is the interval of the checks of Watch.
const watchEvery = 5 * time.Second
