package tcp

import "xwarp/tcp/tick"

// The limits of this package, each with the attack or exhaustion that it prevents.
const (
	// MaxOffer bounds the gaps that one segment fills; the peer retransmits the rest. A segment that overlaps many kept
	// pieces is crafted.
	MaxOffer = 4

	// MaxHoles bounds the pieces kept beyond the first gap, so that a peer that sends every other byte
	// (SegmentSmack) costs a bounded search and a bounded move for each segment.
	MaxHoles = 1024

	// MaxBacklog bounds a Listener's half-open connections, the memory that a SYN flood can take.
	MaxBacklog = 65536

	// maxPendingAcks bounds the acknowledgements due after one batch; further ones are merged into the last.
	maxPendingAcks = 32

	// maxDelaySkip bounds the number of acknowledgements that do not wait after a wait without success.
	maxDelaySkip = 256

	// pushWait bounds the wait of an acknowledgement of bytes that ended with PSH, for bytes that may carry it and for
	// segments that it may cover: programs of one rack answer in less. pushReplies is how many in a row have to be
	// carried before one waits.
	pushWait    = 100 * tick.Microsecond
	pushReplies = 3

	// maxWindow is the largest window that 7323's scaling can announce.
	maxWindow = 1 << 30

	// minMTU and maxMTU bound Config.MTU: RFC 791's minimum, and the largest 16-bit length.
	minMTU = 68
	maxMTU = 65535
	// floorMTU4 and floorMTU6: no ICMP message lowers a path MTU below these (RFC 1191's table, RFC 8200, 5), so that
	// a forged one cannot make every segment tiny.
	floorMTU4 = 552
	floorMTU6 = 1280

	// defaultMSS4 and defaultMSS6 are a peer's MSS when its SYN names none (RFC 9293, MUST-15); minPeerMSS stops a
	// peer that announces an MSS of a few bytes (RFC 9293, 3.7.1 lets it; 1 byte per frame is an attack).
	defaultMSS4 = 536
	defaultMSS6 = 1220
	minPeerMSS  = 48

	// challengePause is the least time between two challenge ACKs of one connection (RFC 5961, 7).
	challengePause = 500 * tick.Millisecond

	// probeAnswerPause is the least time between two answers to keepalive or window probes of one connection:
	// peers probe no faster than an RTO, and an attacker who forges probes for all connections gets no more
	// than ten answers a second from each.
	probeAnswerPause = 100 * tick.Millisecond

	// UTOMin and UTOMax bound a user timeout adopted from the peer (RFC 5482, 3.1: L_LIMIT and U_LIMIT).
	UTOMin = 100 * tick.Second
	UTOMax = 30 * tick.Minute

	// pawsIdle is how long TS.Recent stays valid without a segment (RFC 7323, 5.5).
	pawsIdle = 24 * 24 * 60 * tick.Minute

	// persistMin is the first pause before a zero-window probe when the RTO is shorter; after it a stream
	// also fills a window that is less than half of the largest (the override timeout of RFC 9293, 3.8.6.2.1:
	// 0.1 to 1 s).
	persistMin = 200 * tick.Millisecond

	// smallWindowProbes is how many probes find the window open, but too small for a record, before the record is cut.
	smallWindowProbes = 4

	// blackHoleAfter is how many timeouts of one full-sized segment make the path MTU suspect (RFC 4821, 7.7).
	blackHoleAfter = 2
	// blackHoleProven is how many when packets of that size were acknowledged before: then it is more often
	// plain loss than a path that changed.
	blackHoleProven = 4
	// blackHoleWait is how long a segment of suspicious size waits for its acknowledgement where back-off has
	// made the RTO longer than that: as long as Linux retransmits before it suspects the path.
	blackHoleWait = 3 * tick.Second
	// mtuProbeAgain is the pause after a lost MTU probe (RFC 4821, 7.7: 10 minutes for a search that ended; a
	// minute while it goes on).
	mtuProbeAgain = tick.Minute
	// mtuResolution ends a search.
	mtuResolution = 64
	// maxMTUProbeRecords bounds the records in one path MTU probe.
	maxMTUProbeRecords = 16
)
