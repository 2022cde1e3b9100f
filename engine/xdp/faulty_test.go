package xdp_test

import (
	"math/rand/v2"
	"time"

	"xwarp/ring"
)

// rates are the probabilities, 0 to 1, of the faults of a received packet. At most one fault occurs to a packet.
type rates struct {
	drop, duplicate, corrupt, delay float64
	least                           int // bytes of the shortest packet that has faults
}

const (
	maxLate = 64 // maximum number of packets that are delayed at a time
	lateBy  = 3  // delay of a packet in calls of Recv
)

// faulty is a port that drops, duplicates, corrupts and delays received packets. The same calls have the same faults.
type faulty struct {
	ring.Port
	rates
	rnd   *rand.Rand
	calls int
	hit   int // packets that had a fault
	late  []late
	again map[*byte]bool // first bytes of packets to be received again after their release
	ready []ring.Packet  // released packets to be received again
}

type late struct {
	p  ring.Packet
	at int // number of the call of Recv that returns p
}

func newFaulty(p ring.Port, r rates) *faulty {
	return &faulty{Port: p, rates: r, rnd: rand.New(rand.NewPCG(7, 1)), again: map[*byte]bool{}}
}

// Recv implements ring.Port.
func (f *faulty) Recv(batch []ring.Packet) int {
	f.calls++
	got := copy(batch, f.ready)
	f.ready = f.ready[got:]
	for len(f.late) > 0 && f.late[0].at <= f.calls && got < len(batch) {
		batch[got] = f.late[0].p
		f.late = f.late[1:]
		got++
	}
	fresh := batch[got:]
	for i := range f.Port.Recv(fresh) {
		if p := fresh[i]; f.receive(&p) {
			batch[got] = p
			got++
		}
	}
	return got
}

// receive applies a random fault, or none, to p. It reports whether p is received now.
func (f *faulty) receive(p *ring.Packet) bool {
	first := p.Frag(0)
	if p.Len() < f.least {
		return true
	}
	f.hit++
	switch x := f.rnd.Float64(); {
	case x < f.drop:
		f.Port.Release(p)
		return false
	case x < f.drop+f.duplicate:
		f.again[&first[0]] = true
	case x < f.drop+f.duplicate+f.corrupt:
		first[14+f.rnd.IntN(len(first)-14)] ^= byte(1 + f.rnd.IntN(255))
	case x < f.drop+f.duplicate+f.corrupt+f.delay && len(f.late) < maxLate:
		f.late = append(f.late, late{*p, f.calls + lateBy})
		return false
	default:
		f.hit--
	}
	return true
}

// Release implements ring.Port.
func (f *faulty) Release(p *ring.Packet) {
	if first := p.Frag(0); first != nil && f.again[&first[0]] {
		delete(f.again, &first[0])
		f.ready = append(f.ready, *p)
		*p = ring.Packet{}
		return
	}
	f.Port.Release(p)
}

// Wait implements ring.Port. It does not sleep while packets are delayed, so that calls continue until they are due.
func (f *faulty) Wait(timeout time.Duration, fd int) ring.Ready {
	if len(f.ready)+len(f.late) == 0 {
		return f.Port.Wait(timeout, fd)
	}
	return f.Port.Wait(0, fd) | ring.ReadyRx
}
