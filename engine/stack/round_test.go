package stack

import (
	"slices"
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/cc"
	"xwarp/tcp/checksum"
	"xwarp/tcp/loss"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// TestRequeue: if a round of transmission ends at its limit, the connections not visited come first in the next round.
// No connection may be lost or listed twice. Without the limit, a round of 4096 connections would keep the receive ring
// waiting for some 80 ms.
func TestRequeue(t *testing.T) {
	s := &Stack{}
	ends := make([]*Endpoint, 6)
	for i := range ends {
		ends[i] = &Endpoint{stack: s, class: &s.common}
		s.mark(ends[i])
	}
	check := func(want ...*Endpoint) {
		t.Helper()
		var got []*Endpoint
		s.dirty.All(func(e *Endpoint) { got = append(got, e) })
		if !slices.Equal(got, want) {
			t.Fatalf("in line: %v, want %v", got, want)
		}
	}
	round := func(visited int, again ...int) {
		for range visited {
			e, _ := s.dirty.Next()
			e.dirty = false
		}
		for _, i := range again {
			s.mark(ends[i])
		}
	}
	round(4, 0, 2)
	check(ends[4], ends[5], ends[0], ends[2])
	round(1, 1, 4)
	check(ends[5], ends[0], ends[2], ends[1], ends[4])
	round(5)
	check()
	round(0, 3)
	check(ends[3])
	if n := testing.AllocsPerRun(100, func() { round(0); round(1, 3) }); n != 0 {
		t.Errorf("%v allocations a round", n)
	}
}

// TestOwnersTransmitInTurns: a connection waits for at most one connection of another owner, however many of those have
// data to send.
func TestOwnersTransmitInTurns(t *testing.T) {
	s := &Stack{}
	var many, one Class
	for range 32 {
		e := &Endpoint{stack: s, class: &s.common}
		e.SetClass(&many)
		s.mark(e)
	}
	honest := &Endpoint{stack: s, class: &s.common}
	honest.SetClass(&one)
	for range 5 {
		s.mark(honest)
		for turn := 1; ; turn++ {
			e, ok := s.dirty.Next()
			if !ok || turn > 2 {
				t.Fatal("connections of another owner had more than one turn before")
			}
			if e.dirty = false; e == honest {
				break
			}
			s.mark(e) // it has more data
		}
	}
}

// TestVisitIsLimited: a visit sends no more than MaxFramesPerVisit frames.
func TestVisitIsLimited(t *testing.T) {
	u := &endless{none: true, idle: true}
	x := newPair(t, 0, false, tcp.Config{RcvSpace: 1 << 20, RcvSpaceMax: 1 << 20,
		Loss: loss.Config{CC: cc.Config{InitialWindow: 1 << 10}}},
		[2]Upper{u, &endless{idle: true}})
	p := &nothingPort{Port: x.s[0].port, buf: make([]byte, 2048)}
	x.s[0].port = p
	u.idle = false
	x.e.Schedule()
	x.s[0].Transmit(x.now)
	if p.sent != MaxFramesPerVisit {
		t.Errorf("%d frames left in a visit, want %d", p.sent, MaxFramesPerVisit)
	}
}

// listening is an endless Upper. When bytes arrive, it checks that Acked was called for their segment's
// acknowledgement.
type listening struct {
	endless
	t     *testing.T
	e     *Endpoint
	acked seq.Num
	heard int // calls of Acked
}

func (l *listening) Start(e *Endpoint, snd, rcv seq.Num, now tick.Time) { l.e, l.acked = e, snd }

func (l *listening) Acked(to seq.Num) { l.acked, l.heard = to, l.heard+1 }

func (l *listening) Offer(_ seq.Num, _ [][]byte, n int, _ checksum.Known) int {
	if una := l.e.conn.SndUna(); una != l.acked {
		l.t.Errorf("bytes are delivered before their segment's acknowledgement up to %d; processed: %d", una,
			l.acked)
	}
	return n
}

// TestAcknowledgedFirst: acknowledgements are processed before the payload of the same segment. The payload may end the
// stream, but a Send acknowledged by the segment must succeed.
func TestAcknowledgedFirst(t *testing.T) {
	l := &listening{t: t}
	p := newPair(t, 0, false, tcp.Config{RcvSpace: 1 << 20, RcvSpaceMax: 1 << 20},
		[2]Upper{l, &endless{}})
	for range 100 {
		p.turn()
	}
	if l.heard < 10 {
		t.Errorf("%d acknowledgements: the connection makes no progress", l.heard)
	}
}
