package doctor

import (
	"slices"
	"strconv"

	"xwarp/bpf"
	"xwarp/engine/host/ethtool"
	"xwarp/engine/host/ntuple"
	"xwarp/engine/plain"
)

var channelCheck = check{
	name: "channels", nic: true,
	why: "frames of xwarp connections that arrive on a receive queue without a worker are " +
		"dropped",
	look: func(e *env) finding {
		n := e.receiveQueues()
		most := slices.Max(e.opt.Queues)
		switch {
		case most >= n:
			return fail("cannot serve queue %d: %s has %s", most, e.name(),
				plain.Count(n, "queue")).
				advise("%s", ethtool.QueuesCommand(e.name(), most+1))
		case n > len(e.opt.Queues) && e.opt.Steer != "":
			return fine("%d of %d receive queues served (see flow-steering)", len(e.opt.Queues), n)
		case n > len(e.opt.Queues):
			return warn("only %[2]d of %[1]d receive queues served", n, len(e.opt.Queues)).
				advise("%s; or serve all: remove queues from the [[interface]] table",
					ethtool.QueuesCommand(e.name(), most+1))
		}
		return fine("%d of %d receive queues served", len(e.opt.Queues), n)
	},
	want: func(e *env) (settings, error) {
		return settings{"queues": strconv.Itoa(slices.Max(e.opt.Queues) + 1)}, nil
	},
	get: func(e *env, _ string) (string, error) {
		c, err := ethtool.ReadChannels(e.name())
		return strconv.Itoa(c.Queues()), err
	},
	put: putNumber(ethtool.SetQueues),
}

// receiveQueues returns the number of receive queues of the interface.
func (e *env) receiveQueues() int {
	return ethtool.ReceiveQueues(e.nic.Attrs().Index, e.name(), bpf.DefaultMaxQueues)
}

var rssCheck = check{
	name: "rss", nic: true,
	why: "the device distributes connections over the queues in its RSS table; all of them must be served",
	look: func(e *env) finding {
		table := ntuple.Table(ntuple.Interface(e.name()))
		if table == nil {
			return fine("%s has no RSS table", e.name())
		}
		slices.Sort(table)
		lost := slices.DeleteFunc(slices.Compact(table), func(q uint32) bool {
			return slices.Contains(e.opt.Queues, int(q))
		})
		if len(lost) > 0 && e.steered() {
			return fine("n-tuple rules steer xwarp connections, independent of the RSS table")
		}
		if len(lost) > 0 {
			return warn("the RSS table includes queues %v, which are not served", lost).
				advise("ethtool -X %s equal %d", e.name(), slices.Max(e.opt.Queues)+1)
		}
		return fine("all queues in the RSS table are served")
	},
}
