package ring

import "time"

// offer decides how many receive chunks the kernel has. The kernel takes chunks from the fill ring in the order in
// which they came there, so all chunks in that ring are written in turn. 4,096 chunks of 4 KiB are more than the L2
// cache of a processor holds: each copy of a frame misses it, and so does each read. Therefore the kernel gets few
// chunks while frames flow, and Refill gives it those that were released last. The other chunks are a reserve.
//
// On a veth, 512 chunks instead of 4,096 brought 16 to 25 % more throughput in every transmit mode on an Intel Xeon
// with 2 MiB of L2 cache. They made no difference on an AMD EPYC with 32 MiB of L3 cache for two processors. Chunks of
// 2 KiB instead of 4 KiB brought 3 to 4 % on that EPYC.
//
// The number of chunks that the kernel has, target, doubles when one Refill finds more than half of them in use. It
// rises to all chunks when the fill ring has run empty, because frames may have been dropped then. It halves after a
// calm time in which at most a quarter was in use. The length of a calm time is counted in offered chunks. An empty
// fill ring that raises target makes the next calm time four times as long, and each calm time that passes makes the
// next one half as long. So a worker that often loses its processor, for longer than the few chunks last, soon offers
// all chunks all the time.
//
// The shortest calm time is a few milliseconds of a fast flow. If it were long, a worker that loses its processor for
// half a millisecond a few times a second would use all chunks nearly always: with a calm time of 2^18 chunks the
// throughput was 0.85 times as high on that Xeon.
//
// A socket that has received nothing for a while is idle and offers all chunks, so that a burst finds the whole
// reserve. Package ring has no clock: Recv counts calls that found nothing, and Wait first sleeps for offerSettle only.
// A socket that receives nothing in that sleep is idle.
//
// Zero-copy sockets always offer all chunks, because their driver takes as many as its own ring has entries.
type offer struct {
	all      uint32 // chunks for reception
	target   uint32 // chunks that the kernel has while frames flow
	offered  uint32 // chunks that the kernel had after the last Refill
	most     uint32 // maximum of chunks in use at a Refill, since the calm time began
	calm     uint32 // chunks offered since the calm time began
	quiet    uint32 // calls of Recv in a row that found nothing; a Wait counts quietWait times
	patience uint32 // length of the calm time in offered chunks, from offerCalm to offerCalmMax
	grown    uint64 // times that target rose
}

const (
	// offerLeast is the first and the smallest target: 1 MiB of small chunks, 2 MiB of large ones.
	offerLeast = 512
	// offerCalm chunks last 10 ms for frames of 1,514 bytes at 10 Gbit/s, offerCalmMax chunks a minute and a half.
	offerCalm    = 1 << 13
	offerCalmMax = 1 << 26
	// quietRecvs is the number of calls of Recv without a packet that make a socket idle. They take a spinning worker
	// about a millisecond.
	quietRecvs  = 1 << 14
	quietWait   = quietRecvs / 16
	offerSettle = time.Millisecond
)

func newOffer(all uint32) offer {
	return offer{all: all, target: min(all, offerLeast), patience: offerCalm}
}

// adjust updates the target at a Refill. left is the number of chunks in the fill ring, which the kernel has not used
// yet.
func (o *offer) adjust(left uint32) {
	used := o.offered - min(left, o.offered)
	switch {
	case left == 0 && used > 0:
		if o.grow(o.all) {
			o.patience = min(4*o.patience, offerCalmMax)
		}
		return
	case used > o.target/2:
		o.grow(min(2*o.target, o.all))
		return
	}
	o.most = max(o.most, used)
	if o.calm < o.patience {
		return
	}
	o.patience = max(o.patience/2, offerCalm)
	if o.most <= o.target/4 {
		o.target = max(o.target/2, min(offerLeast, o.all))
	}
	o.most, o.calm = 0, 0
}

// grow raises the target, and reports whether it was lower.
func (o *offer) grow(target uint32) bool {
	rises := target > o.target
	if rises {
		o.target = target
		o.grown++
	}
	o.most, o.calm = 0, 0
	return rises
}

// addQuiet counts n more calls that found nothing, and reports whether they made the socket idle.
func (o *offer) addQuiet(n uint32) bool {
	before := o.quiet
	o.quiet = min(before+n, quietRecvs)
	return before < quietRecvs && o.isIdle()
}

// isIdle reports whether the socket has received nothing for a while.
func (o *offer) isIdle() bool { return o.quiet == quietRecvs }
