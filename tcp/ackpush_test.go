package tcp_test

import (
	"fmt"
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

const pushWait = 100 * tick.Microsecond

// message passes n bytes with PSH at sequence number at to p's connection, and calls AckPushed.
func (p *peer) message(at, n int, idle bool) {
	p.in(fA|wire.PSH, at, 1, n)
	p.c.AckPushed(p.now, idle)
}

// TestAckPushed: only bytes that ended with PSH are acknowledged early: at once if the owner is idle, otherwise after
// at most pushWait.
func TestAckPushed(t *testing.T) {
	p := newPeer(t, noQuick)
	p.open(mss(1000))
	p.in(fA, 1, 1, 100)
	if p.c.PushWaits() {
		t.Error("a segment without PSH counts as pushed")
	}
	p.c.AckPushed(p.now, true)
	p.want() // the peer has more to send
	p.message(101, 100, true)
	p.want(". 1 ack 201")
	p.message(201, 100, false)
	p.want()
	p.pass(pushWait / 2)
	p.message(301, 100, false) // does not prolong the wait
	p.want()
	p.wait(pushWait / 2)
	p.want(". 1 ack 401")
	p.message(401, 100, false)
	p.message(501, 100, true)
	p.want(". 1 ack 601")
	if n := p.c.Counters().DelayedAcks; n != 0 {
		t.Errorf("%d acknowledgements waited for the delayed ACK timer", n)
	}
}

// TestAckPushedReplies: after three messages in a row that data answered within pushWait, acknowledgements wait for the
// data. The first message without an answer is acknowledged after pushWait, the next ones at once.
func TestAckPushedReplies(t *testing.T) {
	p := newPeer(t, noQuick)
	p.open(mss(1000))
	in, out := 1, 1
	// exchange receives a message, and sends data after the given time. alone reports that the acknowledgement is sent
	// alone, before the data.
	exchange := func(after tick.Duration, alone bool) {
		t.Helper()
		p.in(fA|wire.PSH, in, out, 100)
		in += 100
		p.c.AckPushed(p.now, true)
		if alone {
			p.want(ackAt(out, in))
		} else {
			p.want()
		}
		p.pass(after)
		p.src.sizes = []int{10}
		p.want(dataAt(out, in))
		out += 10
	}
	for range 3 {
		exchange(pushWait, true)
	}
	for range 5 {
		exchange(pushWait-1, false)
	}
	silent := func(waits bool) {
		t.Helper()
		p.in(fA|wire.PSH, in, out, 100)
		in += 100
		p.c.AckPushed(p.now, true)
		if waits {
			p.want()
			p.wait(pushWait)
		}
		p.want(ackAt(out, in))
	}
	silent(true)
	for range 3 {
		silent(false)
	}
	exchange(pushWait, true)
	exchange(pushWait, true)
	exchange(pushWait+1, true) // too late to be carried
	for range 3 {
		exchange(0, true)
	}
	exchange(0, false)
}

func ackAt(seq, ack int) string  { return fmt.Sprintf(". %d ack %d", seq, ack) }
func dataAt(seq, ack int) string { return fmt.Sprintf("P. %d+10 ack %d", seq, ack) }

// TestResetAcknowledges: the acknowledgement in a RST is processed, because a peer that aborts may not have sent
// another one. A number beyond the sent bytes acknowledges nothing.
func TestResetAcknowledges(t *testing.T) {
	for _, c := range []struct {
		name  string
		flags wire.Flags
		ack   int
		acked int // bytes
	}{
		{"all", wire.RST | wire.ACK, 301, 300},
		{"a part", wire.RST | wire.ACK, 101, 100},
		{"nothing new", wire.RST | wire.ACK, 1, 0},
		{"too much", wire.RST | wire.ACK, 302, 0},
		{"without ACK", wire.RST, 301, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPeer(t, tcp.Config{})
			p.open(mss(1000))
			p.src.sizes = []int{100, 200}
			p.want(". 1+100 ack 1", "P. 101+200 ack 1")
			_, una := p.c.Events(), p.c.SndUna()
			p.in(c.flags, 1, c.ack, 0)
			p.state(tcp.Closed)
			p.cause(tcp.CauseReset)
			if n := p.c.SndUna().Diff(una); n != c.acked {
				t.Errorf("%d bytes acknowledged, want %d", n, c.acked)
			}
			if ev := p.c.Events(); ev&tcp.Ended == 0 || ev&tcp.Acked != 0 != (c.acked > 0) {
				t.Errorf("events %b", ev)
			}
		})
	}
}
