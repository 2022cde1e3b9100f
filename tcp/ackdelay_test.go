package tcp_test

import (
	"fmt"
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// holding is the Config of a connection that acknowledges up to four segments at a time, and waits 20 us for them.
var holding = tcp.Config{QuickAcks: -1, StretchAck: 4, AckDelay: 20 * tick.Microsecond}

// TestAckDelayWaits: segments that arrive one by one are acknowledged together, at the latest after AckDelay.
func TestAckDelayWaits(t *testing.T) {
	p := newPeer(t, holding)
	p.open(mss(1000))
	for i := range 3 {
		p.in(fA, 1+1000*i, 1, 1000)
		p.want()
	}
	p.in(fA, 3001, 1, 1000)
	p.want(". 1 ack 4001")
	p.in(fA, 4001, 1, 1000)
	p.in(fA, 5001, 1, 1000)
	p.want()
	p.wait(20 * tick.Microsecond)
	p.want(". 1 ack 6001")
}

// TestAckDelayEnds: PSH, a hole, its end, and data to send end the wait.
func TestAckDelayEnds(t *testing.T) {
	p := newPeer(t, holding)
	p.open(mss(1000), sackOK())
	p.in(fA, 1, 1, 1000)
	p.in(fA, 1001, 1, 1000)
	p.want()
	p.in(fA|wire.PSH, 2001, 1, 1000) // the peer's burst is over
	p.want(". 1 ack 3001")
	p.in(fA, 3001, 1, 1000)
	p.in(fA, 4001, 1, 1000)
	p.want()
	p.in(fA, 6001, 1, 1000) // a segment is missing
	p.want(". 1 ack 5001 6001:7001")
	p.in(fA, 5001, 1, 1000)
	p.want(". 1 ack 7001")
	p.in(fA, 7001, 1, 1000)
	p.in(fA, 8001, 1, 1000)
	p.want()
	p.src.sizes = []int{10} // data carries the acknowledgement
	p.want("P. 1+10 ack 9001")
	p.pass(tick.Millisecond)
	p.want()
}

// TestAckDelayBacksOff: after each wait in which the peer did not send enough segments, twice as many acknowledgements
// as after the previous one do not wait: 1, 2, then 4.
func TestAckDelayBacksOff(t *testing.T) {
	p := newPeer(t, holding)
	p.open(mss(1000))
	at := 1
	pair := func(held bool) {
		t.Helper()
		p.in(fA, at, 1, 1000)
		p.in(fA, at+1000, 1, 1000)
		at += 2000
		if held {
			p.want()
			p.wait(20 * tick.Microsecond)
		}
		p.want(ackOf(at))
	}
	for _, rest := range []int{1, 2, 4} { // acknowledgements that do not wait
		pair(true)
		for range rest {
			pair(false)
		}
	}
	pair(true)
}

// TestAckDelayAfterPause: if no segment arrived in the second half of a wait, the next acknowledgement does not wait.
func TestAckDelayAfterPause(t *testing.T) {
	const half = 10 * tick.Microsecond
	for _, c := range []struct {
		last tick.Duration // arrival of the last segment, from the start of the wait
		paid bool
	}{{half - 1, false}, {half, true}, {half + 1, true}} {
		p := newPeer(t, holding)
		p.open(mss(1000))
		p.in(fA, 1, 1, 1000)
		p.in(fA, 1001, 1, 1000)
		p.want()
		p.pass(c.last)
		p.in(fA, 2001, 1, 1000)
		p.want()
		p.wait(2*half - c.last)
		p.want(ackOf(3001))
		p.in(fA, 3001, 1, 1000)
		p.in(fA, 4001, 1, 1000)
		if c.paid { // the next acknowledgement waits, too
			p.want()
			p.wait(2 * half)
		}
		p.want(ackOf(5001))
	}
}

func ackOf(n int) string { return fmt.Sprintf(". 1 ack %d", n) }
