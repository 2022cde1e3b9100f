package netwatch

import "time"

// Limits, each with what it stops.
const (
	// DefaultBuffer holds some 6,000 changes: a link with a thousand neighbours may flap a few times while
	// its follower is busy. The kernel takes memory for changes that wait only.
	DefaultBuffer = 8 << 20
	// maxMessage is the longest datagram of changes; the kernel's are of a page or two.
	maxMessage = 64 << 10
	// maxDrain bounds the datagrams that are read before everything is read anew, because a flood of changes must not
	// put that off for ever.
	maxDrain = 1 << 16
	// listPause is the shortest time between two reads of everything: a flood of changes, as by spoofed ARP,
	// must not cost a processor.
	listPause = 100 * time.Millisecond
	// firstPause and maxPause are between attempts to read everything or to open the socket again.
	firstPause = 20 * time.Millisecond
	maxPause   = 2 * time.Second
	// sayAgain is the shortest time between two lines of log about lost changes.
	sayAgain = time.Minute
)
