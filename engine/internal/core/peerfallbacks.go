package core

import (
	"net/netip"
	"sync"

	"xwarp/engine/verbs"
	"xwarp/mpa/startup"
	"xwarp/tcp/tick"
)

// peerFallbacks remembers which MPA options responders refused, so that the next connection starts without them.
type peerFallbacks struct {
	mu    sync.Mutex
	peers map[netip.AddrPort]fallback
}

// fallback is for one port of a peer: each port may belong to another program.
type fallback struct {
	revision1, noMarkers bool
	until                tick.Time
}

const (
	// maxFallbacks bounds the memory. Beyond it the oldest fallback is dropped: the next connection to that peer then
	// needs more attempts.
	maxFallbacks = 4096
	// fallbackLife is how long a fallback is used. A peer may be restarted with other software, and a connection may
	// have been closed for another reason than MPA.
	fallbackLife = 10 * tick.Minute
)

// apply turns off in m the options that peer refused in the last fallbackLife.
func (v *peerFallbacks) apply(peer netip.AddrPort, m *verbs.MPAConfig, now tick.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	p, ok := v.peers[peer]
	if !ok {
		return
	}
	if p.until <= now {
		delete(v.peers, peer)
		return
	}
	if p.revision1 {
		m.Revision = startup.RevIETF
	}
	if p.noMarkers {
		m.Markers = verbs.MarkersOff
	}
}

// learn records that peer refused the option that r leaves out.
func (v *peerFallbacks) learn(peer netip.AddrPort, r startup.Retry, now tick.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := v.peers[peer]
	if p.until <= now {
		p = fallback{}
		v.makeRoom(now)
	}
	p.revision1 = p.revision1 || r == startup.RetryRevision1
	p.noMarkers = p.noMarkers || r == startup.RetryNoMarkers
	p.until = now.Add(fallbackLife)
	v.peers[peer] = p
}

// makeRoom drops expired fallbacks when the table is full, and the oldest when none has expired.
func (v *peerFallbacks) makeRoom(now tick.Time) {
	if v.peers == nil {
		v.peers = map[netip.AddrPort]fallback{}
	}
	if len(v.peers) < maxFallbacks {
		return
	}
	var oldest netip.AddrPort
	first := tick.Never
	for a, p := range v.peers {
		if p.until <= now {
			delete(v.peers, a)
		} else if p.until < first {
			oldest, first = a, p.until
		}
	}
	if len(v.peers) >= maxFallbacks {
		delete(v.peers, oldest)
	}
}
