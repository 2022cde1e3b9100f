package stack

import (
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/tick"
)

// TestAckPushedInTurn: a message is acknowledged in the turn in which it arrives if no other frame waits, otherwise
// together with the waiting frames. While frames wait, the stack is Blocked and not Quiet, so that its worker does not
// sleep.
func TestAckPushedInTurn(t *testing.T) {
	u := &endless{idle: true, single: 64}
	p := newPair(t, 0, false, tcp.Config{QuickAcks: -1, RcvSpace: 1 << 20, RcvSpaceMax: 1 << 20},
		[2]Upper{u, &endless{idle: true}})
	message := func() {
		u.idle = false
		p.e.Schedule()
		p.s[0].Step(p.now)
		f, ok := p.k[0].Take(nil)
		if !ok {
			t.Fatal("no message left")
		}
		p.k[1].Inject(f)
	}
	acks := func() (n int) {
		for f, ok := p.k[1].Take(nil); ok; f, ok = p.k[1].Take(nil) {
			p.k[0].Inject(f)
			n++
		}
		return n
	}
	for range 3 {
		message()
		p.s[1].Step(p.now)
		if n := acks(); n != 1 {
			t.Fatalf("%d acknowledgements in the turn of a message", n)
		}
		p.s[0].Step(p.now)
		p.now = p.now.Add(10 * tick.Microsecond)
	}
	for range MaxBatch + 1 {
		message()
	}
	p.s[1].Step(p.now)
	acks()
	if p.s[1].Quiet() || !p.s[1].Blocked() {
		t.Errorf("a frame waits, and the stack is quiet: %v, blocked: %v", p.s[1].Quiet(),
			p.s[1].Blocked())
	}
	p.s[1].Step(p.now)
	if n := acks(); n != 1 {
		t.Errorf("%d acknowledgements in the turn of the last message", n)
	}
	p.s[0].Step(p.now)
	if una, nxt := p.e.conn.SndUna(), p.e.conn.SndNxt(); una != nxt {
		t.Errorf("%d bytes are not acknowledged", nxt.Diff(una))
	}
}
