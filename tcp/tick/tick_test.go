package tick

import "testing"

// TestNever: Never plus any duration, also a negative one, is Never. Other times change by the duration.
func TestNever(t *testing.T) {
	for _, d := range []Duration{-Second, 0, 1, Minute} {
		if got := Never.Add(d); got != Never {
			t.Errorf("never moved by %v is %d", d, got)
		}
		if got := Time(Minute).Add(d); got.Sub(Time(Minute)) != d {
			t.Errorf("a minute moved by %v is %d", d, got)
		}
	}
	if got := (Never - 1).Add(-1); got != Never-2 {
		t.Errorf("the last time but one moved back is %d", got)
	}
}
