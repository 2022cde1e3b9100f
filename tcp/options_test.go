package tcp_test

import (
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// TestUserTimeoutOption: RFC 5482, 3.1: USER_TIMEOUT = min(U_LIMIT, max(ADV_UTO, REMOTE_UTO, L_LIMIT)).
func TestUserTimeoutOption(t *testing.T) {
	uto := func(minutes bool, v uint16) opt {
		return func(s *tcp.Segment) {
			s.Opt.Present |= wire.HasUTO
			s.Opt.UTO = wire.UserTimeout{Minutes: minutes, Value: v}
		}
	}
	for _, c := range []struct {
		name  string
		adopt bool
		own   tick.Duration
		o     opt
		want  tick.Duration
	}{
		{"not adopted", false, 200 * tick.Second, uto(true, 10), 200 * tick.Second},
		{"longer", true, 200 * tick.Second, uto(true, 10), 10 * tick.Minute},
		{"shorter", true, 200 * tick.Second, uto(false, 110), 200 * tick.Second},
		{"below the limit", true, tick.Second, uto(false, 5), tcp.UTOMin},
		{"above the limit", true, 200 * tick.Second, uto(true, 30_000), tcp.UTOMax},
		{"zero is reserved", true, 200 * tick.Second, uto(true, 0), 200 * tick.Second},
	} {
		p := newPeer(t, tcp.Config{UserTimeout: c.own, AdoptUTO: c.adopt, AnnounceUTO: true})
		p.c.Connect(p.now)
		var out tcp.Out
		p.c.Poll(p.now, nil, &out)
		if !out.Opt.Present.Has(wire.HasUTO) ||
			tick.Duration(out.Opt.UTO.Value)*tick.Second != c.own {
			t.Errorf("%s: announces %v", c.name, &out.Opt)
		}
		p.in(fSA, 0, 1, 0, mss(1000))
		p.out()
		p.in(fA, 1, 1, 0, c.o)
		p.src.sizes = []int{1000}
		start := p.now
		for p.c.State() == tcp.Established {
			p.out()
			p.now = p.c.Deadline()
			p.c.Expire(p.now)
		}
		if d := p.now.Sub(start); d < c.want || d > c.want+3*tick.Second {
			t.Errorf("%s: ended after %d s, want %d", c.name, d/tick.Second, c.want/tick.Second)
		}
	}
}

// TestUserTimeoutNever: the peer's option does not end a connection whose consumer wants no user timeout.
func TestUserTimeoutNever(t *testing.T) {
	p := newPeer(t, tcp.Config{UserTimeout: -1, AdoptUTO: true})
	p.c.Connect(p.now)
	p.out()
	p.in(fSA, 0, 1, 0, mss(1000))
	p.out()
	p.in(fA, 1, 1, 0, func(s *tcp.Segment) {
		s.Opt.Present |= wire.HasUTO
		s.Opt.UTO = wire.UserTimeout{Minutes: true, Value: 10}
	})
	p.src.sizes = []int{1000}
	for end := p.now.Add(tcp.UTOMax); p.now < end && p.c.State() == tcp.Established; {
		p.out()
		p.now = p.c.Deadline()
		p.c.Expire(p.now)
	}
	if s := p.c.State(); s != tcp.Established {
		t.Errorf("the connection is in %v", s)
	}
}

// TestWantRcvSpace: a receive buffer that follows WantRcvSpace grows so far that 5 MB arrive faster than its initial
// 64 KiB per round trip would allow. Info reports the receiver's estimate of the round trip.
func TestWantRcvSpace(t *testing.T) {
	cfg := tcp.Config{RcvSpace: 1 << 16, RcvSpaceMax: 1 << 22}
	p := newPipe(t, 3, cfg, cfg)
	p.delay = 10 * tick.Millisecond
	p.b.recvMax = 1 << 16
	p.b.autosize = true
	p.exchange(5_000_000, 0)
	p.connect()
	start := p.now
	p.run(10 * tick.Minute)
	i := p.b.c.Info(p.now)
	if i.RcvRTT < 20*tick.Millisecond || i.RcvRTT > 22*tick.Millisecond || i.RcvWant < 300_000 {
		t.Errorf("round trip %d µs, want %d bytes", i.RcvRTT/tick.Microsecond, i.RcvWant)
	}
	// With 64 KiB per round trip of 20 ms, the transfer would take 1.5 s.
	if d := p.a.doneAt.Sub(start); d > tick.Second {
		t.Errorf("5 MB took %d ms", d/tick.Millisecond)
	}
}

// TestEchoOfNothing: an echoed timestamp of 0 gives the receiver no round trip sample, a valid one does. Segments with
// and without ECN take different paths through Input.
//
//req:rfc7323-3.2-3
func TestEchoOfNothing(t *testing.T) {
	for _, mode := range []tcp.ECNMode{tcp.ECNOff, tcp.ECNClassic} {
		for _, echo := range []bool{false, true} {
			p := newPeer(t, tcp.Config{QuickAcks: -1, ECN: mode})
			p.c.Connect(p.now)
			var o tcp.Out
			p.c.Poll(p.now, nil, &o)
			p.now = p.now.Add(5 * tick.Millisecond)
			p.in(fSA, 0, 1, 0, mss(1000), ts(100, o.Opt.TSVal), flags(wire.ECE))
			p.out()
			ecr, want := uint32(0), 5*tick.Millisecond
			if echo {
				ecr, want = o.Opt.TSVal, 45*tick.Millisecond
			}
			p.now = p.now.Add(40 * tick.Millisecond)
			p.in(fA, 1, 1, 1000, ts(140, ecr))
			if got := p.c.Info(p.now).RcvRTT; got != want {
				t.Errorf("ECN %v, echo %v: round trip %d µs, want %d", mode, echo, got/1000,
					want/1000)
			}
		}
	}
}
