package loss

import (
	"testing"

	"xwarp/tcp/tick"
)

// TestClockSince: an echo gives a round trip only if it is a possible timestamp of this side: between the start of the
// clock and now.
//
//req:rfc7323-4.1-1
func TestClockSince(t *testing.T) {
	c := Clock{Tick: tick.Millisecond, Offset: 3}
	now := tick.Time(100*tick.Millisecond + 1)
	for name, x := range map[string]struct {
		echo, want uint32 // milliseconds, 0: none
	}{
		"now":               {c.TSVal(now), 1},
		"one before":        {c.TSVal(now) - 1, 1},
		"at the beginning":  {c.Offset, 100},
		"before that":       {c.Offset - 1, 0},
		"in the future":     {c.TSVal(now) + 1, 0},
		"half a circle ago": {c.TSVal(now) - 1<<31, 0},
	} {
		d, ok := c.since(x.echo, now, 0)
		if ok != (x.want > 0) || d != tick.Duration(x.want)*tick.Millisecond {
			t.Errorf("%s: %v, %v", name, d, ok)
		}
	}
	if _, ok := c.since(c.Offset, now, tick.Millisecond-1); ok {
		t.Error("a clock coarser than the round trip measures it")
	}
	if _, ok := c.since(c.Offset, now, tick.Millisecond); !ok {
		t.Error("a clock as fine as the round trip does not")
	}
}
