package loss

import (
	"fmt"
	"reflect"
	"slices"

	"xwarp/tcp/tick"
)

// ackTwice gives a to s, and to a copy that takes all records one by one; the error says that it made a difference.
func ackTwice(s *Sender, a *Ack, now tick.Time) (Result, error) {
	plain := s.clone()
	if plain.una.Less(a.Ack) && a.Ack.LessEq(plain.nxt) && plain.fack == plain.una {
		// As good as una, which no record ends before, but not what cumulative calls inOrder with. An Ack of
		// what was never sent is not looked at.
		plain.fack--
	}
	want, got := plain.Ack(a, now), s.Ack(a, now)
	if s.frto.step == frtoOff {
		plain.ev.original = s.ev.original // of no use without F-RTO; with it, records are taken one by one
	}
	if err := same(plain, s); err != nil || want != got {
		return got, fmt.Errorf("taken one by one: %+v, not: %+v: %w", want, got, err)
	}
	return got, s.checkSettled(now)
}

// checkSettled reports an error when there is something for RACK to find where detectRACK does not look.
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

// same reports how a and b differ.
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
