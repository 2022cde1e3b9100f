package tcp_test

import (
	"fmt"
	"strings"
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/tick"
)

// TestStateTransitions tries each call, segment and timer that may change the state, in each state. It compares the new
// state, the cause, the events and the sent segments with a golden file.
//
//req:rfc9293-3.10.7.4-8
func TestStateTransitions(t *testing.T) {
	edge := func(p *peer) int { return p.c.RcvNxt().Diff(irs) }
	sent := func(p *peer) int { return p.c.SndNxt().Diff(iss) }
	var b strings.Builder
	for _, from := range states {
		for _, x := range []struct {
			name string
			do   func(p *peer)
		}{
			{"Connect", func(p *peer) { p.c.Connect(p.now) }},
			{"peer's SYN", func(p *peer) { p.in(fS, 0, 0, 0) }},
			{"peer's SYN-ACK", func(p *peer) { p.in(fSA, 0, 1, 0) }},
			{"ACK of everything", func(p *peer) { p.in(fA, edge(p), sent(p), 0) }},
			{"peer's FIN", func(p *peer) { p.in(fFA, edge(p), p.c.SndUna().Diff(iss), 0) }},
			{"peer's FIN, ACK of everything", func(p *peer) { p.in(fFA, edge(p), sent(p), 0) }},
			{"peer's RST", func(p *peer) { p.in(fRA, edge(p), sent(p), 0) }},
			{"Shutdown", func(p *peer) { p.c.Shutdown(p.now) }},
			{"Detach", func(p *peer) { p.c.Detach(p.now) }},
			{"Abort", func(p *peer) { p.c.Abort(p.now) }},
			{"Recycle", func(p *peer) { p.c.Recycle() }},
			{"all timers", allTimers},
			{"Shutdown, ACK of everything", func(p *peer) {
				p.c.Shutdown(p.now)
				p.in(fA, edge(p), sent(p), 0)
			}},
			{"Detach, all timers", func(p *peer) { p.c.Detach(p.now); allTimers(p) }},
		} {
			p := newPeer(t, tcp.Config{NoTimestamps: true, NoSACK: true, NoWScale: true})
			from.to(p)
			p.out()
			p.state(from.state)
			p.c.Events()
			x.do(p)
			fmt.Fprintf(&b, "%-12v %-29s %-12v%s, sends %q", from.state, x.name,
				p.c.State(), eventNames(p.c.Events()), p.out())
			if p.c.Cause() != tcp.CauseNone {
				fmt.Fprintf(&b, ", %s", p.c.Cause().String())
			}
			b.WriteByte('\n')
		}
	}
	golden(t, "states.txt", b.String())
}

// allTimers runs timers until none is left.
func allTimers(p *peer) {
	for d := p.c.Deadline(); d != tick.Never; d = p.c.Deadline() {
		p.now = d
		p.c.Expire(d)
		p.out()
	}
}

// eventNames returns the names of the events in e, "-" for none.
func eventNames(e tcp.Events) (s string) {
	for i, name := range []string{"Connected", "Acked", "Received", "PeerClosed", "FINAcked",
		"EMSSChanged", "WindowOpen", "Urgent", "SoftError", "Ended"} {
		if e>>i&1 != 0 {
			s += " " + name
		}
	}
	if s == "" {
		return " -"
	}
	return s
}
