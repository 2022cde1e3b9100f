package tcp_test

import (
	"slices"
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// TestICMPKinds: only hard errors end a connection, and only an active open that is not established yet (RFC 1122,
// 4.2.3.9; RFC 5461). Every other error raises the event SoftError. The method SoftError returns each error once.
//
//req:rfc9293-MUST-47 rfc9293-MUST-54 rfc9293-SHLD-25 rfc9293-MUST-56 rfc9293-SHLD-26
func TestICMPKinds(t *testing.T) {
	synSent := func(p *peer) { p.c.Connect(p.now); p.out() }
	crossed := func(p *peer) { synSent(p); p.in(fS, 0, 0, 0); p.out() }
	opened := func(p *peer) { p.open(mss(1000)); p.send(1) }
	passive := func(p *peer) { // SYN-RECEIVED of a connection from a Listener
		l, now := newListener(tcp.ListenConfig{})
		tu := tuple(4000)
		var out tcp.Out
		l.Input(&tu, segment(fS, irs, 0), now, &out)
		p.now = now
		if s := segment(fA, irs+1, out.Seq+1); !l.Accept(&tu, s, &p.c, now) {
			t.Fatal("not accepted")
		}
		p.state(tcp.SynReceived)
	}
	for _, c := range []struct {
		name string
		to   func(*peer)
		ends bool // by a hard error
	}{{"SYN-SENT", synSent, true}, {"SYN-RECEIVED", crossed, true},
		{"SYN-RECEIVED of a listener", passive, false}, {"ESTABLISHED", opened, false}} {
		for kind := ip.NetUnreachable; kind <= ip.ParameterProblem; kind++ {
			p := newPeer(t, tcp.Config{})
			c.to(p)
			p.c.Events()
			p.c.ICMP(&ip.ICMPError{Kind: kind, Seq: p.c.SndUna()}, p.now)
			hard := kind == ip.ProtoUnreachable || kind == ip.PortUnreachable ||
				kind == ip.Prohibited
			if ev := p.c.Events(); c.ends && hard {
				p.cause(tcp.CauseUnreachable)
				p.want()
			} else if p.c.State() == tcp.Closed || ev != tcp.SoftError {
				t.Errorf("%s, %v: state %v, events %b", c.name, kind, p.c.State(), ev)
			}
			if got := p.c.SoftError(); got != kind {
				t.Errorf("%s: it was %v, want %v", c.name, got, kind)
			}
			if got := p.c.SoftError(); got != ip.ICMPNone {
				t.Errorf("%s: %v is told a second time", c.name, got)
			}
		}
	}
}

// TestICMPNumbers: an error is processed only if it quotes a sequence number in flight (RFC 5927, 4.1), and only until
// the connection ends.
func TestICMPNumbers(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open(mss(1000))
	p.send(2)
	p.in(fA, 1, 1001, 0)
	ignored := uint64(0)
	give := func(at int, counts bool) {
		t.Helper()
		p.c.ICMP(&ip.ICMPError{Kind: ip.HostUnreachable, Seq: iss.Add(at)}, p.now)
		if !counts {
			ignored++
		}
		if got := p.c.Events()&tcp.SoftError != 0; got != counts ||
			p.c.Counters().ICMPIgnored != ignored {
			t.Errorf("number %d: told %v, want %v; %d ignored", at, got, counts,
				p.c.Counters().ICMPIgnored)
		}
	}
	p.c.Events()
	give(1000, false)
	give(1001, true)
	give(2000, true)
	give(2001, false)
	p.c.Abort(p.now)
	p.c.Events()
	give(1001, false)
}

// TestUnreachableSYN: if a SYN is never answered, the cause is CauseUnreachable if an ICMP error arrived meanwhile, and
// if SoftError has not returned it already.
func TestUnreachableSYN(t *testing.T) {
	for _, c := range []struct {
		icmp, taken bool
		want        tcp.Cause
	}{{false, false, tcp.CauseTimeout}, {true, false, tcp.CauseUnreachable},
		{true, true, tcp.CauseTimeout}} {
		p := newPeer(t, tcp.Config{SYNRetries: 2})
		p.c.Connect(p.now)
		p.out()
		if c.icmp {
			p.c.ICMP(&ip.ICMPError{Kind: ip.HostUnreachable, Seq: iss}, p.now)
		}
		if c.taken {
			p.c.SoftError()
		}
		for i := range 3 {
			p.wait(tick.Second << i)
			p.out()
		}
		p.cause(c.want)
	}
}

// TestPTBWithoutMTU: a message without MTU means that a router could not send the quoted packet. The path MTU becomes
// the size of RFC 1191's table below the quoted length, or below the present path MTU if that is less, but at least the
// floor.
func TestPTBWithoutMTU(t *testing.T) {
	for _, c := range []struct{ length, want int }{{9000, 8166}, {60000, 8166}, {8167, 8166},
		{8166, 4352}, {1500, 1492}, {1492, 1006}, {1007, 1006}, {1006, 552}, {20, 552}, {0, 552}} {
		p := newPeer(t, tcp.Config{MTU: 9000})
		p.open(mss(8960))
		p.send(1)
		p.c.ICMP(&ip.ICMPError{Kind: ip.PacketTooBig, Len: c.length, Seq: p.c.SndUna()}, p.now)
		if i := p.c.Info(p.now); i.PathMTU != c.want || p.c.Counters().PTBAccepted != 1 {
			t.Errorf("a packet of %d: path MTU %d, want %d", c.length, i.PathMTU, c.want)
		}
	}
}

// TestPTBOfProbe: a message about a lost MTU probe does not lower the path MTU, but limits the sizes of further probes.
func TestPTBOfProbe(t *testing.T) {
	p := newPeer(t, tcp.Config{MTU: 1500, PathMTU: 1000, ProbeMTU: true, RcvSpace: 1 << 16})
	p.open(mss(1460), sackOK())
	p.src.sizes = []int{600, 430, 430}
	var o tcp.Out
	if !p.c.Poll(p.now, &p.src, &o) || !o.MTUProbe || o.Payload.Len() != 1460 {
		t.Fatalf("no probe first: %v", &o.Header)
	}
	p.c.ICMP(&ip.ICMPError{Kind: ip.PacketTooBig, MTU: 1200, Seq: o.Seq}, p.now)
	if n := p.c.Counters(); n.PTBIgnored != 1 || n.PTBAccepted != 0 || p.c.EMSS() != 960 {
		t.Errorf("EMSS %d after a message about a probe, %+v", p.c.EMSS(), n)
	}
	p.src.sizes = []int{100, 100, 100}
	p.out()
	p.now = p.now.Add(tick.Millisecond)
	p.in(fA, 1, 1, 0, func(s *tcp.Segment) { // all segments but the probe arrived
		s.Opt.Present, s.Opt.NSACK = wire.HasSACK, 1
		s.Opt.SACK[0] = seq.Of(iss.Add(1461), 300)
	})
	p.pass(10 * tick.Millisecond)
	p.want("P. 1+600 ack 1", "P. 601+430 ack 1", "P. 1031+430 ack 1")
	if n := p.c.Counters().MTUProbesLost; n != 1 {
		t.Fatalf("%d probes lost, want 1", n)
	}
	for range 10 {
		p.in(fA, 1, p.c.SndNxt().Diff(iss), 0)
		p.c.Events() // clears EMSSChanged, with which no probe is sent
		p.now = p.now.Add(tick.Minute)
		p.src.sizes = append([]int{600, 300}, slices.Repeat([]int{20}, 13)...)
		for p.c.Poll(p.now, &p.src, &o) {
			if n := 40 + o.Payload.Len(); n > 1200 {
				t.Errorf("a probe of %d bytes, and the path takes 1200", n)
			}
		}
	}
	if i := p.c.Info(p.now); i.PathMTU > 1200 || i.PathMTU < 1200-64-20 {
		t.Errorf("path MTU %d is found, want almost 1200", i.PathMTU)
	}
}
