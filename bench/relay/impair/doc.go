// Package impair is one direction of a bad path: it loses, reorders, duplicates, corrupts, re-cuts, delays, queues and
// refuses Ethernet frames.
//
// It has no clock, no socket and no goroutine: frames go in with the time of their arrival and come out when they are
// due. The same seed, the same frames and the same times give the same frames out, so a failure can be replayed.
//
// A frame passes the stages in this order:
//
//	blackhole ─ MTU ─ re-cutting ─ loss ─ corruption ─ duplication ─ queue with rate and ECN ─ delay ─ reordering
//
// ARP, neighbour discovery and whatever is not IP pass around all of them. The package has its own frame parser and
// its own checksums on purpose: a judge does not share code with whom it judges.
package impair
