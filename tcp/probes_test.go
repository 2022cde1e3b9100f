package tcp_test

import (
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/tick"
)

// TestWindowUpdate checks RFC 9293, 3.10.7.4: a segment updates the window unless its sequence or acknowledgement
// number is older than that of the last update.
//
//req:rfc9293-3.10.7.4-5
func TestWindowUpdate(t *testing.T) {
	for _, c := range []struct {
		name     string
		seq, ack int
		update   bool
	}{
		{"the same again", 201, 501, true},
		{"a later acknowledgement", 201, 502, true},
		{"an earlier acknowledgement", 201, 500, false},
		{"earlier bytes", 1, 501, false},
		{"earlier bytes with a later acknowledgement", 1, 502, false},
		{"later bytes", 202, 501, true},
		{"later bytes with an earlier acknowledgement", 202, 500, false},
	} {
		p := newPeer(t, tcp.Config{})
		p.open(mss(1000))
		p.src.sizes = []int{1000}
		p.out()
		p.in(fA, 201, 501, 100, win(3000))
		p.in(fA, c.seq, c.ack, 100, win(9000))
		want := 501 + 3000
		if c.update {
			want = c.ack + 9000
		}
		if edge := p.c.SndUna().Diff(iss) + p.c.Info(p.now).SndWnd; edge != want {
			t.Errorf("%s: the window ends at %d, want %d", c.name, edge, want)
		}
	}
}

// TestZeroWindow: while the window is zero, window probes are sent, with back-off and without end while the peer
// answers. When the window opens, data is sent.
//
//req:rfc9293-MUST-35 rfc9293-MUST-36
func TestZeroWindow(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open(mss(1000), win(1000))
	p.src.sizes = []int{1000, 1000}
	p.want(". 1+1000 ack 1")
	p.in(fA, 1, 1001, 0, win(0))
	p.want()
	last := tick.Duration(0)
	for i := range 30 {
		d := p.c.Deadline().Sub(p.now)
		if d < last || d > tick.Minute || i > 10 && d != tick.Minute {
			t.Fatalf("probe %d after %d ms, the one before after %d ms", i, d/tick.Millisecond,
				last/tick.Millisecond)
		}
		last = d
		p.wait(d)
		p.want(". 1000 ack 1")
		p.in(fA, 1, 1001, 0, win(0))
		p.want()
	}
	if p.c.Info(p.now).Probes == 0 {
		t.Error("no probes counted")
	}
	p.c.Events()
	p.in(fA, 1, 1001, 0, win(1000))
	if p.c.Events()&tcp.WindowOpen == 0 {
		t.Error("no WindowOpen event")
	}
	p.want("P. 1001+1000 ack 1")
	p.in(fA, 1, 2001, 0, win(1000))
	if p.c.Deadline() != tick.Never {
		t.Errorf("a timer is left: %d", p.c.Deadline())
	}
}

// TestZeroWindowPauses: each pause between window probes is twice the previous one, up to PersistMax (RFC 9293,
// 3.8.6.1).
//
//req:rfc9293-SHLD-29 rfc9293-SHLD-30
func TestZeroWindowPauses(t *testing.T) {
	for _, most := range []tick.Duration{0, 300 * tick.Millisecond, 4 * tick.Minute} {
		p := newPeer(t, tcp.Config{PersistMax: most})
		p.open(mss(1000))
		p.src.sizes = []int{1000, 1000}
		p.out()
		p.in(fA, 1, 2001, 0, win(0))
		p.src.sizes = []int{1000}
		p.out()
		if most == 0 {
			most = tick.Minute
		}
		for i, want := 0, p.c.Info(p.now).Loss.RTO; i < 16; i, want = i+1, 2*want {
			d := p.c.Deadline().Sub(p.now)
			if d != min(want, most) {
				t.Fatalf("at most %d s: pause %d is %d ms, want %d", most/tick.Second, i,
					d/tick.Millisecond, min(want, most)/tick.Millisecond)
			}
			p.now = p.c.Deadline()
			p.c.Expire(p.now)
			p.out()
			p.in(fA, 1, 2001, 0, win(0))
		}
	}
}

// TestZeroWindowGivenUp: a peer that answers window probes is given up only after ZeroWindowTimeout, a silent one after
// UserTimeout.
//
//req:rfc9293-MUST-37
func TestZeroWindowGivenUp(t *testing.T) {
	for _, c := range []struct {
		name   string
		cfg    tcp.Config
		answer bool
		least  tick.Duration
	}{
		{"reaped", tcp.Config{ZeroWindowTimeout: 90 * tick.Second}, true, 90 * tick.Second},
		{"silent", tcp.Config{UserTimeout: 100 * tick.Second}, false, 100 * tick.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPeer(t, c.cfg)
			p.open(mss(1000), win(1000))
			p.src.sizes = []int{1000, 1000}
			p.out()
			p.in(fA, 1, 1001, 0, win(0))
			start := p.now
			for p.out(); p.c.State() == tcp.Established; p.out() {
				p.now = p.c.Deadline()
				p.c.Expire(p.now)
				if c.answer && p.c.State() == tcp.Established {
					p.in(fA, 1, 1001, 0, win(0))
				}
				if p.now > start.Add(200*tick.Second) {
					t.Fatal("lives on")
				}
			}
			if d := p.now.Sub(start); d < c.least || d > c.least+tick.Second {
				t.Errorf("ended after %d s", d/tick.Second)
			}
			p.cause(tcp.CauseTimeout)
		})
	}
}

//req:rfc9293-MUST-27 rfc9293-MUST-29
func TestKeepalive(t *testing.T) {
	p := newPeer(t, tcp.Config{KeepaliveIdle: 10 * tick.Second, KeepaliveInterval: tick.Second,
		KeepaliveProbes: 3})
	p.open()
	p.wait(10 * tick.Second)
	p.want(". 0 ack 1")
	p.in(fA, 1, 1, 0)
	p.wait(10 * tick.Second)
	for range 3 {
		p.want(". 0 ack 1")
		p.wait(tick.Second)
	}
	p.want("R. 1 ack 1")
	p.cause(tcp.CauseKeepalive)
}

// TestProbeOwesAck: a probe does not count as an acknowledgement, because the peer drops it as left of the window. The
// delayed acknowledgement is still sent.
func TestProbeOwesAck(t *testing.T) {
	cfg := tcp.Config{DelayedAck: 400 * tick.Millisecond, QuickAcks: -1,
		KeepaliveIdle: 300 * tick.Millisecond}
	p := newPeer(t, cfg)
	p.open()
	p.in(fA, 1, 1, 100)
	p.want()
	p.wait(300 * tick.Millisecond)
	p.want(". 0 ack 101")
	p.wait(100 * tick.Millisecond)
	p.want(". 1 ack 101")

	p = newPeer(t, cfg)
	p.open(mss(1000), win(1000))
	p.src.sizes = []int{1000, 1000}
	p.want(". 1+1000 ack 1")
	p.in(fA, 1, 1001, 0, win(0))
	d := p.c.Deadline().Sub(p.now)
	p.now = p.now.Add(d - 100*tick.Millisecond)
	p.in(fA, 1, 1001, 100, win(0))
	p.want()
	p.wait(100 * tick.Millisecond)
	p.want(". 1000 ack 101")
	p.wait(300 * tick.Millisecond)
	p.want(". 1001 ack 101")
}
