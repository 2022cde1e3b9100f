package rendezvous

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"xwarp/engine/verbs"
)

// Table matches requests of peers with the queue pairs that wait for them.
type Table struct {
	after func(time.Duration, func()) *time.Timer

	mu       sync.Mutex
	expected map[Pair]func(*verbs.ConnRequest)
	held     map[Pair][]*verbs.ConnRequest // by the requested pair; the zero Pair matches no queue pair
	count    int
	ofPeer   map[netip.Addr]int
}

// NewTable returns an empty Table.
func NewTable() *Table {
	return &Table{after: time.AfterFunc, expected: map[Pair]func(*verbs.ConnRequest){},
		held: map[Pair][]*verbs.ConnRequest{}, ofPeer: map[netip.Addr]int{}}
}

// Expect calls accept once, on a new goroutine, with the request of the peer in p. A request that waits already is
// used at once.
func (t *Table) Expect(p Pair, accept func(*verbs.ConnRequest)) {
	t.mu.Lock()
	waiting := t.held[p]
	var newest *verbs.ConnRequest
	if len(waiting) > 0 { // the peer may have abandoned earlier ones
		newest = waiting[len(waiting)-1]
		t.drop(p, newest)
	} else {
		t.expected[p] = accept
	}
	t.mu.Unlock()
	if newest != nil {
		go accept(newest)
	}
}

// Forget cancels Expect. It does not wait for accept.
func (t *Table) Forget(p Pair) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.expected, p)
}

// pairOf returns the requested pair, or the zero Pair if the connection's addresses differ from those of the frame.
func pairOf(r *verbs.ConnRequest) Pair {
	f, err := ParseFrame(r.PrivateData)
	if err != nil || r.Remote.Addr().Unmap().WithZone("") != f.Source.GID ||
		r.Local.Addr().Unmap().WithZone("") != f.Target.GID {
		return Pair{}
	}
	return f.Pair()
}

// Arrive handles the request of a peer. If no queue pair matches, it is refused after HoldTime, or at once if too many
// requests wait.
func (t *Table) Arrive(r *verbs.ConnRequest) {
	p, from := pairOf(r), r.Remote.Addr().Unmap()
	t.mu.Lock()
	accept := t.expected[p]
	full := accept == nil && (t.count >= MaxHeld || t.ofPeer[from] >= MaxHeldOfPeer)
	switch {
	case accept != nil:
		delete(t.expected, p)
	case !full:
		t.held[p] = append(t.held[p], r)
		t.count++
		t.ofPeer[from]++
	}
	t.mu.Unlock()
	switch {
	case accept != nil:
		go accept(r)
	case full:
		r.Reject(Refusal)
	default:
		t.after(HoldTime, func() { t.refuse(p, r) })
	}
}

// refuse rejects a request unless a queue pair has taken it.
func (t *Table) refuse(p Pair, r *verbs.ConnRequest) {
	t.mu.Lock()
	there := t.drop(p, r)
	t.mu.Unlock()
	if there {
		r.Reject(Refusal)
	}
}

// drop removes a held request and reports whether it was held. It is called with mu held.
func (t *Table) drop(p Pair, r *verbs.ConnRequest) bool {
	i := slices.Index(t.held[p], r)
	if i < 0 {
		return false
	}
	if t.held[p] = slices.Delete(t.held[p], i, i+1); len(t.held[p]) == 0 {
		delete(t.held, p)
	}
	t.count--
	from := r.Remote.Addr().Unmap()
	if t.ofPeer[from]--; t.ofPeer[from] == 0 {
		delete(t.ofPeer, from)
	}
	return true
}
