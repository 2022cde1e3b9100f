package tally

import "testing"

type inner struct{ A, B uint64 }

type counters struct {
	inner
	C uint64
}

func TestSum(t *testing.T) {
	var s Sum[counters]
	var a, b Counted[counters]
	s.Add(&a, &counters{inner{1, 2}, 3})
	s.Add(&b, &counters{C: 10})
	s.Add(&a, &counters{inner{1, 5}, 4})
	s.Add(&a, &counters{inner{1, 5}, 4})
	if got, want := s.Total(), (counters{inner{1, 5}, 14}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	more := counters{inner{1, 1}, 1}
	if got, want := Join(s.Total(), more), (counters{inner{2, 6}, 15}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestCheck(t *testing.T) {
	if err := Check[counters](); err != nil {
		t.Error(err)
	}
	type signed struct{ A int }
	type short struct{ B struct{ A uint32 } }
	if Check[signed]() == nil || Check[short]() == nil || Check[uint64]() == nil {
		t.Error("a struct with a field that is no counter passes")
	}
}
