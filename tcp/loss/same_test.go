package loss

import (
	"fmt"
	"reflect"
	"slices"

	"xwarp/tcp/tick"
)

// ackTwice passes a to s, and to a copy of s that does not use the fast path inOrder. It returns an error if the two
// differ afterwards, or if checkSettled finds one.
func ackTwice(s *Sender, a *Ack, now tick.Time) (Result, error) {
	plain := s.clone()
	if plain.una.Less(a.Ack) && a.Ack.LessEq(plain.nxt) && plain.fack == plain.una {
		// This value has the same effect as una, since no record ends before una, but processAck calls inOrder only if
		// fack is una. An Ack beyond Nxt is excluded, because Sender.Ack ignores it.
		plain.fack--
	}
	want, got := plain.Ack(a, now), s.Ack(a, now)
	if s.frto.step == frtoOff {
		plain.ev.original = s.ev.original // only F-RTO uses it, and with F-RTO inOrder is not called
	}
	if err := same(plain, s); err != nil || want != got {
		return got, fmt.Errorf("taken one by one: %+v, not: %+v: %w", want, got, err)
	}
	return got, s.checkSettled(now)
}

// checkSettled returns an error if walkRACK would change something in a state in which detectRACK does not call it.
func (s *Sender) checkSettled(now tick.Time) error {
	if s.mode != RACK || !s.rack.ok {
		return nil
	}
	short, long := s.clone(), s.clone()
	short.detectRACK(now)
	long.timers.reorder = tick.Never
	long.walkRACK(now)
	if err := same(long, short); err != nil {
		return fmt.Errorf("a walk over what is in flight finds something: %w", err)
	}
	return nil
}

func (s *Sender) clone() *Sender {
	c := *s
	c.q.slot = slices.Clone(s.q.slot)
	return &c
}

// same returns an error that describes the difference of a and b, nil if there is none.
func same(a, b *Sender) error {
	x, y := a.clone(), b.clone()
	for p := range places {
		if l, m := &x.q.list[p], &y.q.list[p]; l.n == 0 && m.n == 0 {
			l.first, l.last = m.first, m.last
		}
	}
	if reflect.DeepEqual(x, y) {
		return nil
	}
	x.q.slot, y.q.slot = nil, nil
	return fmt.Errorf("\n%+v\nand\n%+v", *x, *y)
}
