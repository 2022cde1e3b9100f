package portmapper

import (
	"net/netip"
	"sync"
	"time"
)

// Counters count the messages that a Mapper received and sent, and the connections that it asked for.
type Counters struct {
	RequestsIn uint64 // REQ of peers
	AcceptsOut uint64 // answers: the listener exists
	RejectsOut uint64 // answers: no such listener
	AcksIn     uint64
	Malformed  uint64 // datagrams that are neither REQ nor ACK
	Denied     uint64 // REQ of peers that may not connect; not answered
	Limited    uint64 // REQ beyond the rate limits; not answered

	Misaddressed uint64 // datagrams to a broadcast or multicast address; not answered

	RequestsOut uint64 // REQ sent, including repetitions
	AcceptsIn   uint64
	RejectsIn   uint64
	Unanswered  uint64 // connections whose request was not answered
	Unasked     uint64 // connections to silent peers, made without a request
}

// Rules decide which requests a Mapper answers, and how.
type Rules struct {
	Listens func(at netip.AddrPort) bool // reports whether one of our listeners has the address
	Admits  func(peer netip.Addr) bool   // reports whether a peer may connect; others get no answer
}

// Mapper is the port mapper of one interface. Its methods may be called from any goroutine; the zero value is ready.
type Mapper struct {
	mu     sync.Mutex
	counts Counters
	second time.Time // start of the current second
	total  int       // answers in the current second
	of     map[netip.Prefix]int
	silent map[netip.Addr]time.Time // peers that did not answer, with the time until which they are not asked
}

// Counters returns a copy of the counters.
func (m *Mapper) Counters() Counters {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts
}

func (m *Mapper) count(n *uint64) {
	m.mu.Lock()
	*n++
	m.mu.Unlock()
}
