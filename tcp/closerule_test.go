package tcp_test

import (
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// TestRecycle: Recycle ends TIME-WAIT early, with the cause of its normal end. In other states it does nothing.
func TestRecycle(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open()
	p.c.Recycle()
	p.state(tcp.Established)
	p.c.Shutdown(p.now)
	p.out()
	p.c.Recycle()
	p.state(tcp.FinWait1)
	p.in(fFA, 1, 2, 0)
	p.out()
	p.c.Recycle()
	p.cause(tcp.CauseClosed)
	p.want()
}

// TestConnectOnlyOnce: Connect opens a connection only once. A connection that ended stays in CLOSED after any call.
func TestConnectOnlyOnce(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open()
	p.c.Connect(p.now)
	p.want()
	p.state(tcp.Established)
	p.c.Abort(p.now)
	p.out()
	p.c.Events()
	p.c.Connect(p.now)
	p.c.Shutdown(p.now)
	p.c.Abort(p.now)
	p.c.Expire(p.now.Add(tick.Minute))
	p.in(fA, 1, 1, 10)
	p.want()
	p.cause(tcp.CauseAborted)
	if n := p.c.Counters().AfterEnd; n != 1 || p.c.Events() != 0 {
		t.Errorf("%d segments after the end, want 1", n)
	}
}

// TestFINWaitsForWindow: a FIN occupies one sequence number of the peer's window (RFC 9293, 3.4). Without room in the
// window it waits, and window probes are sent.
func TestFINWaitsForWindow(t *testing.T) {
	for _, c := range []struct {
		sizes int
		line  string
		fin   bool
	}{{999, "FP. 1+999 ack 1", true}, {1000, "P. 1+1000 ack 1", false}} {
		p := newPeer(t, tcp.Config{})
		p.open(mss(1460), win(1000))
		p.src.sizes = []int{c.sizes}
		p.c.Shutdown(p.now)
		p.want(c.line)
		if c.fin {
			continue
		}
		p.in(fA, 1, 1001, 0, win(0))
		p.want()
		p.wait(p.c.Deadline().Sub(p.now))
		p.want(". 1000 ack 1")
		p.in(fA, 1, 1001, 0, win(1))
		p.want("F. 1001 ack 1")
		p.in(fA, 1, 1002, 0, win(0))
		p.state(tcp.FinWait2)
	}
}

// TestTakeBackFIN: a FIN that TakeBack revoked is sent later, after the bytes that the Source returns then.
func TestTakeBackFIN(t *testing.T) {
	for _, from := range []int{101, 201} { // with its record, or the FIN alone
		p := newPeer(t, tcp.Config{})
		p.open(mss(1000))
		p.src.sizes = []int{100, 100}
		if from == 201 { // FIN in a segment of its own
			p.want(". 1+100 ack 1", "P. 101+100 ack 1")
			p.c.Shutdown(p.now)
			p.want("F. 201 ack 1")
		} else {
			p.c.Shutdown(p.now)
			p.want(". 1+100 ack 1", "FP. 101+100 ack 1")
		}
		p.c.TakeBack(iss.Add(from), p.now)
		if got := p.c.SndNxt(); got != iss.Add(from) {
			t.Errorf("SND.NXT %d, want %d", got.Diff(iss), from)
		}
		if got, want := p.c.Counters().BytesOut, uint64(from-1); got != want {
			t.Errorf("%d bytes counted, want %d", got, want)
		}
		p.src.sizes = []int{50}
		p.want("FP. " + itoa(from) + "+50 ack 1")
		p.in(fA, 1, from+50, 0)
		p.state(tcp.FinWait1)
		p.in(fA, 1, from+51, 0)
		p.state(tcp.FinWait2)
	}
}

// TestFINWaitsForBytesBeforeIt: a FIN behind a hole takes effect once the bytes before it have arrived.
func TestFINWaitsForBytesBeforeIt(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open()
	check := func(passed bool, end, nxt int) {
		t.Helper()
		c := &p.c
		gotEnd, gotNxt := c.RcvEnd().Diff(irs), c.RcvNxt().Diff(irs)
		if c.PeerFIN() != passed || gotEnd != end || gotNxt != nxt {
			t.Errorf("FIN passed %v, the bytes end at %d, RCV.NXT %d; want %v, %d and %d",
				c.PeerFIN(), gotEnd, gotNxt, passed, end, nxt)
		}
	}
	check(false, 1, 1)
	p.in(fFA, 51, 1, 50)
	check(false, 1, 1)
	p.in(fA, 1, 1, 50)
	check(true, 101, 102)
}

// TestClearAcked: ClearAcked removes Acked and leaves the other events.
func TestClearAcked(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open(mss(1000))
	p.send(1)
	p.in(fA, 1, 1001, 10)
	if first, again := p.c.ClearAcked(), p.c.ClearAcked(); !first || again {
		t.Errorf("acknowledged %v, and again %v", first, again)
	}
	if ev := p.c.Events(); ev != tcp.Received {
		t.Errorf("events %b are left, want %b", ev, tcp.Received)
	}
}

// TestControlNumber: the sequence number of a segment without data is SND.NXT. If the window shrank so far that the
// peer would not accept this number, it is the window's right edge, but at least SND.UNA.
func TestControlNumber(t *testing.T) {
	for _, c := range []struct {
		scale uint8
		win   uint16
		want  int
	}{{0, 1000, 2001}, {0, 999, 2000}, {0, 1, 1002}, {0, 0, 1001},
		{2, 250, 2001}, {2, 249, 1997}} {
		p := newPeer(t, tcp.Config{})
		opts := []opt{mss(1000), win(2000)}
		if c.scale > 0 {
			opts = append(opts, ws(c.scale))
		}
		p.open(opts...)
		p.send(2)
		p.in(fA, 1, 1001, 10, win(c.win))
		p.c.AckNow()
		p.want(". " + itoa(c.want) + " ack 11")
	}
}

// TestSetters changes options of an open connection.
//
//req:rfc9293-MUST-21 rfc9293-MUST-24
func TestSetters(t *testing.T) {
	p := newPeer(t, noQuick)
	p.open(mss(1000))
	for _, c := range []struct{ set, want tick.Duration }{
		{100 * tick.Millisecond, 100 * tick.Millisecond},
		{500 * tick.Millisecond, 500 * tick.Millisecond},
		{501 * tick.Millisecond, 500 * tick.Millisecond}, // RFC 1122, 4.2.3.2
	} {
		p.c.SetDelayedAck(c.set)
		p.in(fA, p.c.RcvNxt().Diff(irs), 1, 10)
		p.want()
		p.wait(c.want)
		p.want(". 1 ack " + itoa(p.c.RcvNxt().Diff(irs)))
	}
	p.in(fA, 31, 1, 10)
	p.c.SetDelayedAck(1)
	p.want() // the pending acknowledgement still waits
	p.c.SetDelayedAck(-1)
	p.want(". 1 ack 41") // without delay, it is sent at once
	p.in(fA, 41, 1, 10)
	p.want(". 1 ack 51")

	p.c.SetKeepalive(20*tick.Second, 0, 0) // 75 s and 9 probes
	p.wait(20 * tick.Second)
	p.c.SetKeepalive(20*tick.Second, 5*tick.Second, 2)
	for i, d := range []tick.Duration{75 * tick.Second, 5 * tick.Second} {
		if l := p.out(); len(l) != 1 || l[0] != ". 0 ack 51" {
			t.Errorf("probe %d: %q", i, l)
		}
		p.wait(d)
	}
	p.want("R. 1 ack 51")
	p.cause(tcp.CauseKeepalive)

	p = newPeer(t, tcp.Config{KeepaliveProbes: 1})
	p.open()
	p.c.SetKeepalive(tick.Second, tick.Second, 0)
	for range 9 {
		p.wait(tick.Second)
		p.want(". 0 ack 1")
	}
	p.wait(tick.Second)
	p.cause(tcp.CauseKeepalive)

	for _, linger := range []tick.Duration{-1, 0, 3 * tick.Second} {
		p = newPeer(t, tcp.Config{Linger: tick.Second})
		p.open()
		p.c.SetLinger(linger)
		p.c.SetUserTimeout(-1)
		p.c.Shutdown(p.now)
		begun := p.now
		for p.c.State() != tcp.Closed && p.now.Sub(begun) < 10*tick.Minute {
			p.out()
			p.now = p.c.Deadline()
			p.c.Expire(p.now)
		}
		if d := p.now.Sub(begun); linger > 0 && d != linger ||
			linger <= 0 && p.c.State() == tcp.Closed {
			t.Errorf("linger %d: %v after %d ms", linger, p.c.State(), d/tick.Millisecond)
		}
	}
}

// TestKeepaliveNot: no keepalive probe is sent while bytes are in flight or wait for the window. Data that is sent
// cancels a due probe.
//
//req:rfc9293-MUST-26
func TestKeepaliveNot(t *testing.T) {
	for _, window := range []uint16{1000, 2000} { // the peer acknowledges 1000 bytes
		p := newPeer(t, tcp.Config{KeepaliveIdle: tick.Second, KeepaliveProbes: 1, UserTimeout: -1})
		p.open(mss(1000), win(window))
		p.src.sizes = []int{1000, 1000}
		p.out()
		p.in(fA, 1, 1001, 0, win(window-1000))
		for end := p.now.Add(10 * tick.Second); p.now < end; p.out() {
			p.now = p.c.Deadline()
			p.c.Expire(p.now)
		}
		if n := p.c.Counters(); n.KeepaliveProbes != 0 || p.c.State() != tcp.Established {
			t.Errorf("window %d: %d keepalive probes, state %v", window, n.KeepaliveProbes,
				p.c.State())
		}
	}
	p := newPeer(t, tcp.Config{KeepaliveIdle: tick.Second})
	p.open(mss(1000))
	p.wait(tick.Second)
	p.src.sizes = []int{10}
	p.want("P. 1+10 ack 1")
}

// TestUTOOption: the user timeout is announced in seconds, rounded up, and in minutes when those need more than 15 bits
// (RFC 5482, 3). Without a timeout, the option is not sent.
func TestUTOOption(t *testing.T) {
	const s = tick.Second
	for _, c := range []struct {
		d    tick.Duration
		want wire.UserTimeout
	}{
		{1, wire.UserTimeout{Value: 1}}, {s, wire.UserTimeout{Value: 1}},
		{s + 1, wire.UserTimeout{Value: 2}}, {32767 * s, wire.UserTimeout{Value: 32767}},
		{32767*s + 1, wire.UserTimeout{Minutes: true, Value: 547}},
		{547 * 60 * s, wire.UserTimeout{Minutes: true, Value: 547}},
		{547*60*s + 1, wire.UserTimeout{Minutes: true, Value: 548}},
		{32767 * 60 * s, wire.UserTimeout{Minutes: true, Value: 32767}},
		{32768 * 60 * s, wire.UserTimeout{Minutes: true, Value: 32767}},
		{-1, wire.UserTimeout{}},
	} {
		p := newPeer(t, tcp.Config{UserTimeout: c.d, AnnounceUTO: true})
		p.c.Connect(p.now)
		var o tcp.Out
		p.c.Poll(p.now, nil, &o)
		if o.Opt.Present.Has(wire.HasUTO) != (c.d > 0) || o.Opt.UTO != c.want {
			t.Errorf("%d ns: announces %+v, want %+v", c.d, o.Opt.UTO, c.want)
		}
	}
}

// TestNames checks the names of states and causes. An unknown value is "?".
func TestNames(t *testing.T) {
	states := map[string]bool{}
	for s := tcp.Closed; s <= tcp.TimeWait; s++ {
		states[s.String()] = true
	}
	causes := map[string]bool{}
	for c := tcp.CauseNone; c <= tcp.CauseOrphan; c++ {
		causes[c.String()] = true
		if got, want := c.Error(), "tcp: "+c.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if len(states) != 10 || states["?"] || (tcp.TimeWait+1).String() != "?" {
		t.Errorf("states %v", states)
	}
	if len(causes) != 9 || causes["?"] || (tcp.CauseOrphan+1).String() != "?" {
		t.Errorf("causes %v", causes)
	}
	if tcp.TimeWait.String() != "TIME-WAIT" || tcp.CauseTimeout.Error() !=
		"tcp: timed out: the peer acknowledged nothing within the user timeout" {
		t.Errorf("%v, %v", tcp.TimeWait, tcp.CauseTimeout.Error())
	}
}
