package tcp

import "xwarp/tcp/tick"

// Limits, sizes and times of this package. A limit that prevents an attack names it.
const (
	// MaxOffer limits the ranges that Input offers of one segment; the peer retransmits the rest. Only a crafted
	// segment overlaps many kept ranges.
	MaxOffer = 4

	// MaxHoles limits the ranges kept beyond the first hole, so that the search and the insertion for each segment are
	// bounded, even if a peer sends every other byte (SegmentSmack).
	MaxHoles = 1024

	// MaxBacklog limits the half-open connections of a Listener, and so the memory that a SYN flood can occupy.
	MaxBacklog = 65536

	// maxPendingAcks limits the queued acknowledgements; further ones are merged into the last.
	maxPendingAcks = 32

	// maxDelaySkip limits the number of acknowledgements that do not wait after an unsuccessful wait; see ackDelay.
	maxDelaySkip = 256

	// pushWait limits how long an acknowledgement of bytes that ended with PSH waits for data that carries it, or for
	// further segments that it covers: programs in one rack answer sooner. pushReplies is the number of consecutive
	// acknowledgements that data must have carried before one waits.
	pushWait    = 100 * tick.Microsecond
	pushReplies = 3

	// maxWindow is the largest window that the scaling of RFC 7323 can announce.
	maxWindow = 1 << 30

	// minMTU and maxMTU limit Config.MTU: the minimum of RFC 791, and the largest 16-bit length.
	minMTU = 68
	maxMTU = 65535
	// floorMTU4 and floorMTU6 are the defaults of Config.MinPathMTU (RFC 1191's table; RFC 8200, 5): a forged ICMP
	// message cannot lower the path MTU further and make every segment tiny.
	floorMTU4 = 552
	floorMTU6 = 1280

	// defaultMSS4 and defaultMSS6 are the MSS of a peer whose SYN has no MSS option (RFC 9293, MUST-15). minPeerMSS is
	// the minimum that is used for an announced MSS: RFC 9293, 3.7.1 has none, but one byte per frame is an attack.
	defaultMSS4 = 536
	defaultMSS6 = 1220
	minPeerMSS  = 48

	// challengePause is the least time between two challenge ACKs of one connection (RFC 5961, 7).
	challengePause = 500 * tick.Millisecond

	// probeAnswerPause is the least time between two answers to keepalive or window probes on one connection. Peers do
	// not probe more often than once per RTO. An attacker who forges probes gets at most ten answers a second from each
	// connection.
	probeAnswerPause = 100 * tick.Millisecond

	// UTOMin and UTOMax limit a user timeout that is adopted from the peer (RFC 5482, 3.1: L_LIMIT and U_LIMIT).
	UTOMin = 100 * tick.Second
	UTOMax = 30 * tick.Minute

	// pawsIdle is how long TS.Recent stays valid without a segment (RFC 7323, 5.5).
	pawsIdle = 24 * 24 * 60 * tick.Minute

	// persistMin is the minimum pause before the first window probe. When that probe is due, a stream also fills a
	// window that is less than half of the largest (the override timeout of RFC 9293, 3.8.6.2.1: 0.1 to 1 s).
	persistMin = 200 * tick.Millisecond

	// smallWindowProbes is the number of consecutive window probes whose answers announce an open window that is too
	// small for a record, before the record is cut.
	smallWindowProbes = 4

	// blackHoleAfter is the number of timeouts of one full-sized segment after which the path MTU is lowered (RFC 4821,
	// 7.7).
	blackHoleAfter = 2
	// blackHoleProven is that number if packets of the same size were acknowledged before: then loss is more likely
	// than a changed path.
	blackHoleProven = 4
	// blackHoleWait is the time without an acknowledgement after which the size of a segment is blamed, even if the RTO
	// with back-off is longer. Linux retransmits about as long before it suspects the path.
	blackHoleWait = 3 * tick.Second
	// mtuProbeAgain is the pause after a lost MTU probe. RFC 4821, 7.7 has 10 minutes after a search, and a minute
	// during one.
	mtuProbeAgain = tick.Minute
	// mtuResolution ends a search: the remaining interval is smaller than that.
	mtuResolution = 64
	// maxMTUProbeRecords limits the records that are added to one path MTU probe.
	maxMTUProbeRecords = 16
)
