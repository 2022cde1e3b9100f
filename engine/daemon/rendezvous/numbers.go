package rendezvous

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"
)

// firstNumber is the lowest queue pair number. InfiniBand reserves 0 and 1 for management, and programs could mistake
// other small numbers for its other identifiers. The highest number is reserved for multicast.
const (
	firstNumber = 16
	lastNumber  = 1<<QPNBits - 2
)

// Numbers allocates the queue pair numbers of one daemon. They are unique, and random so that they cannot be guessed.
// The zero value is ready for use.
type Numbers struct {
	mu      sync.Mutex
	now     func() time.Time // nil: time.Now
	taken   map[uint32]struct{}
	resting []resting // oldest first
}

type resting struct {
	number uint32
	since  time.Time
}

// Take returns a random number that no queue pair uses or has used within RestTime. If more than MaxResting numbers
// rest, those that were returned first may be taken before RestTime is over.
func (n *Numbers) Take() uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.freeRested()
	if n.taken == nil {
		n.taken = map[uint32]struct{}{}
	}
	for {
		var b [4]byte
		rand.Read(b[:]) // never fails
		q := binary.NativeEndian.Uint32(b[:]) >> (32 - QPNBits)
		if _, taken := n.taken[q]; !taken && q >= firstNumber && q <= lastNumber {
			n.taken[q] = struct{}{}
			return q
		}
	}
}

// Return frees a number, which then rests for RestTime.
func (n *Numbers) Return(number uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.resting = append(n.resting, resting{number, n.time()})
	n.freeRested()
}

func (n *Numbers) time() time.Time {
	if n.now != nil {
		return n.now()
	}
	return time.Now()
}

// freeRested makes rested numbers available. It is called with mu held.
func (n *Numbers) freeRested() {
	late := n.time().Add(-RestTime)
	i := 0
	for i < len(n.resting) && (len(n.resting)-i > MaxResting || !n.resting[i].since.After(late)) {
		delete(n.taken, n.resting[i].number)
		i++
	}
	n.resting = n.resting[i:]
}
