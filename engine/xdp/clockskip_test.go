package xdp

import (
	"testing"

	"xwarp/tcp/tick"
)

// TestClockSkip: if turns have a constant length, a timer is late by at most maxLate and two turns. If turns become
// longer, it is late by at most maxSkip+1 of the longer ones. If turns are short, one in 17 reads the clock. After long
// turns that read it because there is work, no turn is skipped.
func TestClockSkip(t *testing.T) {
	now := tick.Time(tick.Second)
	p := clockSkip{last: now}
	reads := 0
	turns := func(n int, each tick.Duration) (late tick.Duration) {
		reads = 0
		for range n {
			now = now.Add(each)
			if p.skip() {
				continue
			}
			late = max(late, now.Sub(p.last))
			p.read(now)
			reads++
		}
		return late
	}
	turns(1000, 20)
	if late := turns(1700, 20); reads != 100 || late > maxLate {
		t.Errorf("short turns: %d readings on 1700 turns, want 100; late by %d ns", reads, late)
	}
	if late := turns(17, 2*tick.Microsecond); late > (maxSkip+1)*2*tick.Microsecond {
		t.Errorf("turns that became longer: late by %d ns", late)
	}
	turns(100, 2*tick.Microsecond)
	for each := tick.Duration(50); each < 10*tick.Microsecond; each += 50 {
		turns(100, each)
		if late := turns(1000, each); late > maxLate+2*each {
			t.Errorf("turns of %d ns: late by %d ns", each, late)
		}
	}
	turns(1000, 20)
	p.read(now)
	for range 10 { // turns that read the clock because there is work, without a call of skip
		now = now.Add(5 * tick.Microsecond)
		p.read(now)
	}
	if p.most != 0 {
		t.Errorf("%d turns are left out after long ones", p.most)
	}
}
