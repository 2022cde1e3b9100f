package tcp_test

import (
	"fmt"
	"slices"
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/loss"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// TestMTUDrop reduces the MTU of the path from 9000 to 1500 bytes during a transfer.
//
//req:rfc7323-5.8-1
func TestMTUDrop(t *testing.T) {
	for _, c := range []struct {
		name string
		icmp bool
	}{{"ICMP delivered", true}, {"black hole", false}} {
		t.Run(c.name, func(t *testing.T) {
			cfg := tcp.Config{MTU: 9000, ProbeMTU: true, RcvSpace: 1 << 18, RcvSpaceMax: 1 << 18}
			p := newPipe(t, 5, cfg, cfg)
			p.b.recvMax = 1 << 18
			p.exchange(3_000_000, 0)
			p.icmp = c.icmp
			p.drop = func(from *host, h *wire.Header, n int) bool {
				if from == &p.a && p.b.got > 1_000_000 {
					p.mtu = 1500
				}
				return false
			}
			p.connect()
			p.run(10 * tick.Minute)
			n, i := p.a.c.Counters(), p.a.c.Info(p.now)
			if i.PathMTU != 1500 || n.SplitRetransmit == 0 {
				t.Errorf("path MTU %d, %d records cut when sent again; want 1500 and some",
					i.PathMTU, n.SplitRetransmit)
			}
			if c.icmp != (n.PTBAccepted > 0) || c.icmp == (n.BlackHoles > 0) {
				t.Errorf("accepted %d ICMP messages, found %d black holes", n.PTBAccepted,
					n.BlackHoles)
			}
			t.Logf("%.3f s, %d records cut, %d when sent again, %d ICMP ignored",
				float64(p.now)/1e9, n.SplitEMSS, n.SplitRetransmit, n.PTBIgnored)
		})
	}
}

// TestBlackHoleSteps: each lower path MTU gets two timeouts before the next lower one is tried, although the same
// record is retransmitted all the time.
func TestBlackHoleSteps(t *testing.T) {
	p := newPeer(t, tcp.Config{MTU: 9000, ProbeMTU: true})
	p.open(mss(8960))
	p.src.sizes = []int{8960}
	p.want("P. 1+8960 ack 1")
	var got []int
	for range 7 {
		p.now = p.c.Deadline()
		p.c.Expire(p.now)
		p.out()
		got = append(got, p.c.EMSS())
	}
	want := []int{8960, 1460, 1460, 1240, 1240, 512, 512}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("EMSS after each timeout: %v, want %v", got, want)
	}
}

// TestBlackHoleProven: a packet size that was acknowledged before gets more timeouts than one that never was.
func TestBlackHoleProven(t *testing.T) {
	for n, want := range map[int]int{3999: 4, 4000: 4, 4001: 2} {
		p := newPeer(t, tcp.Config{MTU: 9000, ProbeMTU: true})
		p.open(mss(8960))
		p.src.sizes = []int{4000}
		p.out()
		p.in(fA, 1, 4001, 0)
		p.src.sizes = []int{n}
		p.out()
		timeouts := 0
		for emss := p.c.EMSS(); p.c.EMSS() == emss && timeouts < 10; timeouts++ {
			p.now = p.c.Deadline()
			p.c.Expire(p.now)
			p.out()
		}
		if timeouts != want || p.c.EMSS() != 1460 {
			t.Errorf("%d bytes: EMSS %d after %d timeouts, want 1460 after %d", n, p.c.EMSS(),
				timeouts, want)
		}
	}
}

// TestBlackHolePatience: with long timeouts, too, the time for a lower size begins when a segment of that size is sent.
func TestBlackHolePatience(t *testing.T) {
	p := newPeer(t, tcp.Config{MTU: 9000, ProbeMTU: true, Loss: loss.Config{MinRTO: tick.Second}})
	p.open(mss(8960))
	p.src.sizes = []int{8960}
	p.out()
	begun := p.now
	var got []string
	for emss := p.c.EMSS(); p.now.Sub(begun) < 30*tick.Second; {
		p.now = p.c.Deadline()
		p.c.Expire(p.now)
		p.out()
		if e := p.c.EMSS(); e != emss {
			got = append(got, fmt.Sprintf("%d after %d s", e, p.now.Sub(begun)/tick.Second))
			emss = e
		}
	}
	if want := "[1460 after 3 s 1240 after 13 s 512 after 33 s]"; fmt.Sprint(got) != want {
		t.Errorf("EMSS %v, want %v", got, want)
	}
}

// TestBlackHoleSmall: the lost packet is smaller than the first size to fall back to. The path MTU falls to a size
// below the packet.
func TestBlackHoleSmall(t *testing.T) {
	p := newPeer(t, tcp.Config{MTU: 9000, ProbeMTU: true})
	p.open(mss(8960))
	p.src.sizes = []int{1400}
	p.want("P. 1+1400 ack 1")
	for range 2 {
		p.now = p.c.Deadline()
		p.c.Expire(p.now)
		p.out()
	}
	if e := p.c.EMSS(); e != 1240 {
		t.Errorf("EMSS %d after two timeouts of 1400 bytes, want 1240", e)
	}
}

// TestBlackHoleBackedOff: a black hole is found in seconds, although earlier losses backed off the RTO to a minute, and
// whether or not packets of that size were acknowledged before. Each lower size gets more time, so that an outage does
// not lead to the lowest.
func TestBlackHoleBackedOff(t *testing.T) {
	for _, proven := range []bool{false, true} {
		p := newPeer(t, tcp.Config{MTU: 9000, ProbeMTU: true})
		p.open(mss(8960))
		at := 1
		send := func(n int) {
			p.src.sizes = []int{n}
			p.out()
			at += n
		}
		if proven {
			send(8960)
			p.in(fA, 1, at, 0)
		}
		send(100)
		for range 9 {
			p.now = p.c.Deadline()
			p.c.Expire(p.now)
			p.out()
		}
		p.in(fA, 1, at, 0) // retransmitted: no sample, so the back-off stays
		send(8960)
		begun := p.now
		var got []string
		for emss := p.c.EMSS(); p.now.Sub(begun) < 40*tick.Second && p.c.State() != tcp.Closed; {
			p.now = p.c.Deadline()
			p.c.Expire(p.now)
			p.out()
			if e := p.c.EMSS(); e != emss {
				got = append(got, fmt.Sprintf("%d after %d s", e, p.now.Sub(begun)/tick.Second))
				emss = e
			}
		}
		if want := "[1460 after 3 s 1240 after 9 s 512 after 21 s]"; fmt.Sprint(got) != want {
			t.Errorf("proven %v: EMSS %v, want %v", proven, got, want)
		}
	}
}

// TestBlackHoleClaim: with a backed-off RTO, a packet too big message that quotes another segment than the oldest one
// is also accepted after some seconds. Its size gets some time before a lower one is tried.
func TestBlackHoleClaim(t *testing.T) {
	p := newPeer(t, tcp.Config{MTU: 9000, ProbeMTU: true})
	p.open(mss(8960))
	p.src.sizes = []int{8960}
	p.out()
	p.in(fA, 1, 8961, 0)
	p.src.sizes = []int{100, 4480, 4480}
	p.out()
	for range 9 {
		p.now = p.c.Deadline()
		p.c.Expire(p.now)
		p.out()
	}
	p.in(fA, 1, 9061, 0) // retransmitted: no sample, so the back-off stays
	p.out()
	begun := p.now
	p.c.ICMP(&ip.ICMPError{Kind: ip.PacketTooBig, MTU: 4000, Seq: iss.Add(9061 + 4480)}, p.now)
	var got []string
	for emss := p.c.EMSS(); p.now.Sub(begun) < 12*tick.Second; {
		p.now = p.c.Deadline()
		p.c.Expire(p.now)
		if d := p.c.Deadline(); d <= p.now { // before Poll, as if no transmit slot were free
			t.Errorf("the next deadline is %d ns ago", p.now.Sub(d))
		}
		p.out()
		if e := p.c.EMSS(); e != emss {
			got = append(got, fmt.Sprintf("%d after %d s", e, p.now.Sub(begun)/tick.Second))
			emss = e
		}
	}
	if want := "[3960 after 3 s 1460 after 6 s 1240 after 12 s]"; fmt.Sprint(got) != want {
		t.Errorf("EMSS %v, want %v", got, want)
	}
}

// TestMTUProbe: MTU probes find a path MTU that no router reports, up to 1500 bytes, without cutting a record.
func TestMTUProbe(t *testing.T) {
	for _, mtu := range []int{9000, 4470} {
		cfg := tcp.Config{MTU: 9000, PathMTU: 1500, ProbeMTU: true, RcvSpace: 1 << 18,
			RcvSpaceMax: 1 << 18}
		p := newPipe(t, 6, cfg, cfg)
		p.b.recvMax = 1 << 18
		p.mtu = mtu
		p.a.noShut = true
		p.exchange(1000, 0)
		p.connect()
		end := p.now.Add(20 * tick.Minute)
		for feed := p.now; p.now < end; {
			if feed <= p.now {
				more := make([]byte, 60_000)
				p.a.data, p.b.want = append(p.a.data, more...), append(p.b.want, more...)
				feed = feed.Add(5 * tick.Second)
				p.app(&p.a)
				p.poll(&p.a)
			}
			if !p.step() || p.now > feed {
				p.now = max(p.now, feed)
			}
		}
		n, i := p.a.c.Counters(), p.a.c.Info(p.now)
		if i.PathMTU > mtu || i.PathMTU < mtu-1500 ||
			n.SplitRetransmit+n.SplitEMSS+n.SplitWindow != 0 {
			t.Errorf("path of %d: found %d; %d probes, %d lost; records cut: %d %d %d", mtu,
				i.PathMTU, n.MTUProbes, n.MTUProbesLost, n.SplitRetransmit, n.SplitEMSS,
				n.SplitWindow)
		}
	}
}

// TestMTUProbeHalves checks RFC 4821, 7.3: the first probe has the maximum size, and each lost probe halves the search
// range.
func TestMTUProbeHalves(t *testing.T) {
	p := newPeer(t, tcp.Config{MTU: 1500, PathMTU: 1000, ProbeMTU: true, RcvSpace: 1 << 16})
	p.open(mss(1460), sackOK())
	var sizes []int
	for range 8 {
		p.src.sizes = append([]int{940}, slices.Repeat([]int{40}, 14)...)
		var lost seq.Range
		var o tcp.Out
		for p.c.Poll(p.now, &p.src, &o) {
			if o.MTUProbe {
				lost = o.Payload
				sizes = append(sizes, 40+o.Payload.Len())
			}
		}
		if !lost.Empty() { // all segments but the probe arrive
			p.now = p.now.Add(tick.Millisecond)
			p.in(fA, 1, lost.Start.Diff(iss), 0, func(s *tcp.Segment) {
				s.Opt.Present, s.Opt.NSACK = wire.HasSACK, 1
				s.Opt.SACK[0] = seq.Range{Start: lost.End, End: p.c.SndNxt()}
			})
			p.pass(10 * tick.Millisecond)
			p.out()
		}
		p.in(fA, 1, p.c.SndNxt().Diff(iss), 0)
		p.now = p.now.Add(tick.Minute)
	}
	// First the maximum of 1500, then the middle between 1000 and the smallest lost probe, in records of 40 bytes.
	if want := []int{1500, 1220, 1100}; !slices.Equal(sizes[:min(3, len(sizes))], want) {
		t.Errorf("probes of %v bytes, want %v first", sizes, want)
	}
	if i := p.c.Info(p.now); i.PathMTU != 1000 {
		t.Errorf("path MTU %d, and no probe arrived", i.PathMTU)
	}
}

// TestMTUProbeBesideHole: while bytes of the peer are missing, segments with SACK blocks do not become probes, because
// the blocks would make them longer than the link's MTU. Once the bytes have arrived, one does.
func TestMTUProbeBesideHole(t *testing.T) {
	p := newPeer(t, tcp.Config{MTU: 1500, PathMTU: 1000, ProbeMTU: true, RcvSpace: 1 << 16})
	p.open(mss(1460), sackOK())
	segments := func(hole bool) (probes int) {
		t.Helper()
		var o tcp.Out
		p.src.sizes = []int{600, 430, 430, 600, 430, 430}
		for p.c.Poll(p.now, &p.src, &o) {
			n := 40 + o.Opt.Len() + o.Payload.Len()
			if n > 1500 || o.MTUProbe && (hole || n < 1400) {
				t.Errorf("hole %v: a packet of %d bytes, probe %v: %v", hole, n, o.MTUProbe,
					&o.Header)
			}
			if o.MTUProbe {
				probes++
			}
		}
		return probes
	}
	p.in(fA, 11, 1, 10)
	if n := segments(true); n > 0 {
		t.Errorf("%d probes while there is a hole", n)
	}
	p.in(fA, 1, p.c.SndNxt().Diff(iss), 10)
	if n := segments(false); n == 0 {
		t.Error("no probe after the hole")
	}
}

// TestForgedPTB sends forged packet too big messages to a connection that makes progress (RFC 5927, 7). It accepts
// none.
func TestForgedPTB(t *testing.T) {
	cfg := tcp.Config{RcvSpace: 1 << 18, RcvSpaceMax: 1 << 18}
	p := newPipe(t, 7, cfg, cfg)
	p.exchange(1_000_000, 0)
	p.connect()
	for i := 0; i < 200_000 && p.step(); i++ {
		if p.b.got < 50_000 { // before a packet size is proven, a claim is accepted
			continue
		}
		una, nxt := p.a.c.SndUna(), p.a.c.SndNxt()
		switch i % 3 {
		case 0:
			p.a.c.ICMP(&ip.ICMPError{Kind: ip.PacketTooBig, MTU: 600, Seq: nxt.Add(i)}, p.now)
		case 1:
			p.a.c.ICMP(&ip.ICMPError{Kind: ip.PacketTooBig, MTU: 600, Seq: una.Add(-1 - i)}, p.now)
		case 2:
			// Not a segment's first byte: a blind attacker hits one in 1448.
			start, _ := p.a.c.DataStart()
			if n := nxt.Diff(una); n > 2 && una.Add(1+i%(n-1)).Diff(start)%1448 != 0 {
				p.a.c.ICMP(&ip.ICMPError{Kind: ip.PacketTooBig, MTU: 600,
					Seq: una.Add(1 + i%(n-1))}, p.now)
			}
		}
	}
	if n, i := p.a.c.Counters(), p.a.c.Info(p.now); i.PathMTU != 1500 || n.PTBAccepted != 0 {
		t.Errorf("path MTU %d after forged messages; %d accepted, %d ignored", i.PathMTU,
			n.PTBAccepted, n.PTBIgnored)
	}
}

// TestPTBAgainstProven: a claim waits for confirmation if a larger packet was acknowledged before (RFC 5927, 7.2). The
// largest packet of a flight counts, whatever its position.
func TestPTBAgainstProven(t *testing.T) {
	for _, sizes := range [][]int{{100, 1400}, {1400, 100}, {100, 1400, 100}} {
		p := newPeer(t, tcp.Config{})
		p.open(mss(1460))
		p.c.KeepBoundaries(true)
		p.src.sizes = append(p.src.sizes, sizes...)
		p.out()
		p.in(fA, 1, p.c.SndNxt().Diff(iss), 0)
		p.src.sizes = []int{100, 100}
		p.out()
		p.c.ICMP(&ip.ICMPError{Kind: ip.PacketTooBig, MTU: 1000, Seq: p.c.SndUna().Add(100)}, p.now)
		if n := p.c.Counters().PTBAccepted; n != 0 {
			t.Errorf("packets with %v bytes got through, and a limit of 1000 is believed", sizes)
		}
	}
}

// TestPTBFloor: no message lowers the path MTU below the floor.
func TestPTBFloor(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		p := newPipe(t, 8, tcp.Config{IPv6: v6}, tcp.Config{IPv6: v6})
		p.a.noShut, p.b.noShut = true, true
		p.exchange(1000, 0)
		p.connect()
		for p.a.c.State() != tcp.Established && p.step() {
		}
		p.a.data = make([]byte, 5000)
		p.app(&p.a)
		p.poll(&p.a)
		p.a.c.ICMP(&ip.ICMPError{Kind: ip.PacketTooBig, MTU: 68, Seq: p.a.c.SndUna()}, p.now)
		want := 552
		if v6 {
			want = 1280
		}
		if got := p.a.c.Info(p.now).PathMTU; got != want {
			t.Errorf("IPv6 %v: path MTU %d, want %d", v6, got, want)
		}
	}
}

// TestPTBOfSameSize: a message that reports the current path MTU, or more, is ignored (RFC 8201, 4).
func TestPTBOfSameSize(t *testing.T) {
	for _, mtu := range []int{1500, 1501, 9000} {
		p := newPeer(t, tcp.Config{})
		p.open(mss(1460))
		p.src.sizes = []int{1000}
		p.want("P. 1+1000 ack 1")
		p.c.ICMP(&ip.ICMPError{Kind: ip.PacketTooBig, MTU: mtu, Seq: p.c.SndUna()}, p.now)
		n, i := p.c.Counters(), p.c.Info(p.now)
		if i.PathMTU != 1500 || n.PTBIgnored != 1 || n.PTBAccepted != 0 {
			t.Errorf("after %d: path MTU %d, %d accepted, %d ignored", mtu, i.PathMTU,
				n.PTBAccepted,
				n.PTBIgnored)
		}
	}
}

// TestTakeBackProbe: if an MTU probe is taken back, its data arrives in smaller packets and proves nothing. If only
// later segments are taken back, the probe still counts.
func TestTakeBackProbe(t *testing.T) {
	for _, behind := range []int{0, 1} { // number of segments after the probe that are taken back instead of it
		p := newPeer(t, tcp.Config{MTU: 1500, PathMTU: 1000, ProbeMTU: true, RcvSpace: 1 << 16})
		p.open(mss(1460))
		p.src.sizes = []int{600, 430, 430}
		var o tcp.Out
		if !p.c.Poll(p.now, &p.src, &o) || !o.MTUProbe {
			t.Fatalf("no probe first: %v", &o.Header)
		}
		from := o.Payload.Start
		if behind > 0 {
			p.src.sizes = []int{600}
			p.out()
			from = o.Payload.End
		}
		p.c.TakeBack(from, p.now)
		for range 4 { // one at a time: no probe
			p.src.sizes = []int{600}
			p.out()
		}
		p.in(fA, 1, p.c.SndNxt().Diff(iss), 0)
		want := 1000 + 500*behind
		if i := p.c.Info(p.now); i.PathMTU != want || p.c.SndUna() != from.Add(4*600) {
			t.Errorf("taken back from behind the probe: %v: path MTU %d, want %d", behind > 0,
				i.PathMTU, want)
		}
	}
}
