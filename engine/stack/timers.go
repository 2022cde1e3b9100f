package stack

import "xwarp/tcp/tick"

// timers is a heap of endpoints by deadline. An endpoint whose deadline moves later keeps its place until the old time,
// so that the common case (an ACK postpones the retransmission timer) costs one comparison.
type timers struct{ heap []*Endpoint }

// set makes sure that e is visited no later than at.
func (t *timers) set(e *Endpoint, at tick.Time) {
	switch {
	case at >= e.timerAt:
		return
	case e.timerAt == tick.Never:
		e.timerIdx = len(t.heap)
		t.heap = append(t.heap, e)
	}
	e.timerAt = at
	t.up(e.timerIdx)
}

// next returns the earliest deadline.
func (t *timers) next() tick.Time {
	if len(t.heap) == 0 {
		return tick.Never
	}
	return t.heap[0].timerAt
}

// pop removes and returns the first endpoint whose deadline has come, or nil.
func (t *timers) pop(now tick.Time) *Endpoint {
	if len(t.heap) == 0 || t.heap[0].timerAt > now {
		return nil
	}
	e := t.heap[0]
	t.remove(e)
	return e
}

func (t *timers) remove(e *Endpoint) {
	if e.timerAt == tick.Never {
		return
	}
	i, last := e.timerIdx, len(t.heap)-1
	t.swap(i, last)
	t.heap[last] = nil
	t.heap = t.heap[:last]
	e.timerAt = tick.Never
	if i < last {
		t.down(i)
		t.up(i)
	}
}

func (t *timers) swap(i, j int) {
	t.heap[i], t.heap[j] = t.heap[j], t.heap[i]
	t.heap[i].timerIdx, t.heap[j].timerIdx = i, j
}

func (t *timers) up(i int) {
	for i > 0 {
		p := (i - 1) / 2
		if t.heap[p].timerAt <= t.heap[i].timerAt {
			return
		}
		t.swap(i, p)
		i = p
	}
}

func (t *timers) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(t.heap) {
			return
		}
		if r := c + 1; r < len(t.heap) && t.heap[r].timerAt < t.heap[c].timerAt {
			c = r
		}
		if t.heap[i].timerAt <= t.heap[c].timerAt {
			return
		}
		t.swap(i, c)
		i = c
	}
}

// visit records, for tidy, what the last round of transmission did for an Endpoint.
type visit uint8

const (
	txIdle   visit = iota // nothing since the last tidy
	txPolled              // visited, but no frame was sent
	txSent                // frames were sent
)

// tidy is the part of output that the peer does not wait for.
func (e *Endpoint) tidy(now tick.Time) {
	v := e.visit
	if e.visit = txIdle; v == txIdle || e.abandoned {
		return
	}
	e.events(now)
	if v == txSent && e.started {
		e.upper.Settle(now) // making segments may have caused an error
	}
	if e.ended {
		return
	}
	if d := e.deadline(); d != tick.Never {
		e.stack.timers.set(e, d)
	}
}
