package loss

import (
	"fmt"
	"reflect"
	"slices"

	"xwarp/tcp/tick"
)

// ackTwice gives a to s, and to a copy that takes all records one by one; the error says that it made a difference.
func ackTwice(s *Sender, a *Ack, now tick.Time) (Result, error) {
	plain := *s
	plain.q.slot = slices.Clone(s.q.slot)
	plain.single = true
	want, got := plain.Ack(a, now), s.Ack(a, now)
	plain.single = false
	plain.ev.original = s.ev.original // of no use without F-RTO; with it, records are taken one by one
	for p := range places {
		if x, y := &plain.q.list[p], &s.q.list[p]; x.n == 0 && y.n == 0 {
			x.first, x.last = y.first, y.last
		}
	}
	if want != got || !reflect.DeepEqual(&plain, s) {
		other := *s
		plain.q.slot, other.q.slot = nil, nil
		return got, fmt.Errorf("taken one by one:\n%+v %+v\nnot:\n%+v %+v", want, plain, got, other)
	}
	return got, nil
}
