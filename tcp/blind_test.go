package tcp_test

import (
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// TestBlindSweep is the attack of RFC 5961, 1.2 on a connection without timestamps. The attacker knows addresses and
// ports, but no sequence number, and walks the sequence space in steps of the window, so that one of 2^16 segments is
// inside the window. There are 10 million segments, of several kinds.
//
//req:rfc9293-MAY-12 rfc5961-8-1
func TestBlindSweep(t *testing.T) {
	perKind := 2_000_000
	if testing.Short() {
		perKind = 200_000
	}
	for _, k := range []struct {
		name  string
		flags wire.Flags
		size  int
	}{{"SYN", wire.SYN, 0}, {"RST", wire.RST, 0}, {"ACK", wire.ACK, 0},
		{"bytes", wire.ACK | wire.PSH, 100}, {"FIN", wire.ACK | wire.FIN, 0}} {
		t.Run(k.name, func(t *testing.T) {
			const window = 1 << 16
			var b tcp.ChallengeBudget
			b.Init(100, 5)
			p := newPeer(t, tcp.Config{Budget: &b, RcvSpace: window, NoTimestamps: true})
			p.open(mss(1000), win(0xffff))
			start, inside, sent := p.now, 0, 0
			// Neither guess hits the one number of 2^32 that resets the connection or acknowledges data.
			at, ack := seq.Num(0x12345), seq.Num(0x9abcdef0)
			for i := range perKind {
				at = at.Add(window - 1)
				if i%(1<<16) == 0 {
					ack = ack.Add(1<<27 + 77)
				}
				s := tcp.Segment{Len: k.size}
				s.Flags, s.Seq, s.Ack, s.Window = k.flags, at, ack, 0xffff
				if d := at.Diff(p.c.RcvNxt()); d >= 0 && d < window {
					inside++
				}
				if o := p.c.Input(&s, p.now); o.N != 0 {
					t.Fatalf("segment %d: bytes of %v are offered", i, &s.Header)
				}
				p.c.Finish(p.now)
				sent += len(p.out())
				if p.c.State() != tcp.Established || p.c.RcvNxt() != irs.Add(1) ||
					p.c.SndUna() != iss.Add(1) {
					t.Fatalf("segment %d: %v moved the connection to %v", i, &s.Header, p.c.State())
				}
				p.now = p.now.Add(tick.Microsecond)
			}
			if inside < perKind/(window+1) {
				t.Errorf("%d of %d segments were inside the window: this was no attack", inside,
					perKind)
			}
			c := p.c.Counters()
			if seconds := p.now.Sub(start)/tick.Second + 1; c.ChallengeAcks > uint64(2*seconds)+1 {
				t.Errorf("%d challenge ACKs in %d s", c.ChallengeAcks, seconds)
			}
			// The answers without a limit are those to bytes just left of the window, which a blind attacker hits
			// rarely.
			if sent > int(c.ChallengeAcks)+2*inside {
				t.Errorf("%d answers, %d of them challenges", sent, c.ChallengeAcks)
			}
			t.Logf("%d inside the window, %d challenge ACKs, %d suppressed", inside,
				c.ChallengeAcks, c.ChallengeSuppressed)
		})
	}
}
