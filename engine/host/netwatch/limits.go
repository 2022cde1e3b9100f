package netwatch

import "time"

// Limits, with their reasons.
const (
	// DefaultBuffer has room for some 6,000 changes: a link with a thousand neighbours may flap a few times while its
	// follower is busy. The kernel allocates memory only for pending changes.
	DefaultBuffer = 8 << 20
	// maxMessage is the maximum length of a datagram of changes; the kernel's have a page or two.
	maxMessage = 64 << 10
	// maxDrain limits the datagrams read before everything is reread, so that a flood of changes cannot delay rereading
	// forever.
	maxDrain = 1 << 16
	// listPause is the minimum interval of rereading everything because changes were lost, so that a flood of changes,
	// such as spoofed ARP, does not occupy a CPU. Messages that Options.Relist names come from administrators of this
	// host, and wait for Options.Settle only.
	listPause = 100 * time.Millisecond
	// firstPause and maxPause are the first and the longest interval between attempts to reread everything or to reopen
	// the socket. Each interval is twice the previous one.
	firstPause = 20 * time.Millisecond
	maxPause   = 2 * time.Second
	// sayAgain is the minimum interval of log lines about lost changes.
	sayAgain = time.Minute
)
