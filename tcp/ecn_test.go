package tcp_test

import (
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/cc"
	"xwarp/tcp/loss"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// flagsOf returns the flags and the ECN bits of each segment that the connection sends.
func flagsOf(p *peer) (f []wire.Flags, e []tcp.ECN) {
	var o tcp.Out
	for p.c.Poll(p.now, &p.src, &o) {
		f = append(f, o.Flags)
		e = append(e, o.ECN)
	}
	return f, e
}

func flags(f wire.Flags) opt { return func(s *tcp.Segment) { s.Flags |= f } }

func TestECNClassic(t *testing.T) {
	const setup = wire.ECE | wire.CWR
	p := newPeer(t, tcp.Config{ECN: tcp.ECNClassic, QuickAcks: -1})
	p.c.Connect(p.now)
	if f, e := flagsOf(p); f[0] != fS|setup || e[0] != tcp.NotECT {
		t.Fatalf("SYN %v ECN %d", f, e)
	}
	p.in(fSA, 0, 1, 0, mss(1000), flags(wire.ECE))
	flagsOf(p)
	p.src.sizes = []int{1000, 1000, 1000}
	if f, e := flagsOf(p); len(f) != 3 || e[0] != tcp.ECT0 || f[0]&setup != 0 {
		t.Fatalf("%v %v", f, e)
	}
	// A mark is echoed until CWR (RFC 3168, 6.1.3).
	p.in(fA, 1, 1, 100, ecnIP(tcp.CE))
	if f, _ := flagsOf(p); len(f) != 1 || f[0] != fA|wire.ECE {
		t.Fatalf("after CE: %v", f)
	}
	p.in(fA, 101, 1, 1000, ecnIP(tcp.ECT0))
	p.in(fA, 1101, 1, 1000, ecnIP(tcp.ECT0))
	if f, _ := flagsOf(p); f[0] != fA|wire.ECE {
		t.Fatalf("before CWR: %v", f)
	}
	p.in(fA, 2101, 1, 1000, ecnIP(tcp.ECT0), flags(wire.CWR))
	p.in(fA, 3101, 1, 1000, ecnIP(tcp.ECT0))
	if f, _ := flagsOf(p); f[0] != fA {
		t.Fatalf("after CWR: %v", f)
	}
	// ECE from the peer reduces once and is answered with CWR on new bytes.
	p.in(fA, 4101, 1001, 0, flags(wire.ECE))
	p.in(fA, 4101, 2001, 0, flags(wire.ECE))
	p.in(fA, 4101, 3001, 0, flags(wire.ECE))
	p.src.sizes = []int{1000, 1000}
	if f, _ := flagsOf(p); f[0]&wire.CWR == 0 || f[1]&wire.CWR != 0 {
		t.Fatalf("CWR: %v", f)
	}
	if n := p.c.Info(p.now).Loss.Counters.ECNReductions; n != 1 {
		t.Errorf("%d reductions", n)
	}
}

//req:rfc9768-3.1.5-11 rfc9768-3.1.5-17
func TestECNNotGranted(t *testing.T) {
	for _, c := range []struct {
		mode tcp.ECNMode
		got  wire.Flags
		want tcp.ECNMode
	}{
		{tcp.ECNOff, wire.ECE, tcp.ECNOff},
		{tcp.ECNPassive, wire.ECE, tcp.ECNOff}, // not requested
		{tcp.ECNClassic, 0, tcp.ECNOff},
		{tcp.ECNClassic, wire.ECE | wire.CWR, tcp.ECNOff}, // reflected by a broken peer
		{tcp.ECNClassic, wire.ECE, tcp.ECNClassic},
		{tcp.ECNAccurate, 0, tcp.ECNOff},
		{tcp.ECNAccurate, wire.ECE, tcp.ECNClassic},
		{tcp.ECNAccurate, wire.ECE | wire.AE, tcp.ECNAccurate}, // reserved (RFC 9768, 3.1.3)
		{tcp.ECNAccurate, wire.ECE | wire.CWR | wire.AE, tcp.ECNOff},
		{tcp.ECNAccurate, wire.CWR, tcp.ECNAccurate},
		{tcp.ECNAccurate, wire.CWR | wire.ECE, tcp.ECNAccurate},
		{tcp.ECNAccurate, wire.AE, tcp.ECNAccurate},
		{tcp.ECNAccurate, wire.AE | wire.CWR, tcp.ECNAccurate},
	} {
		p := newPeer(t, tcp.Config{ECN: c.mode})
		p.c.Connect(p.now)
		p.out()
		p.in(fSA, 0, 1, 0, flags(c.got))
		if got := p.c.Info(p.now).ECN; got != c.want {
			t.Errorf("asked for %d, SYN-ACK %v: negotiated %d, want %d", c.mode, c.got, got, c.want)
		}
		p.out()
		p.in(fA, 1, 1, 10, ecnIP(tcp.ECT0)) // ECT from the peer does not change the negotiated mode
		p.src.sizes = []int{100}
		var o tcp.Out
		for p.c.Poll(p.now, &p.src, &o) {
			if o.Payload.Len() > 0 && o.ECN != tcp.NotECT && c.want == tcp.ECNOff {
				t.Errorf("asked for %d, SYN-ACK %v: data with IP bits %d", c.mode, c.got, o.ECN)
			}
		}
	}
}

// TestECNSYNsLost: two SYNs request ECN, and the third does not. If a SYN without ECN was sent, a client of RFC 3168
// sends no data with ECT, because the server may have received only that SYN (6.1.1).
func TestECNSYNsLost(t *testing.T) {
	const setup = wire.ECE | wire.CWR
	for syns := 1; syns <= 4; syns++ {
		p := newPeer(t, tcp.Config{ECN: tcp.ECNClassic})
		p.c.Connect(p.now)
		for i := 1; i <= syns; i++ {
			if f, _ := flagsOf(p); len(f) != 1 || (f[0]&setup == setup) != (i <= 2) {
				t.Fatalf("SYN %d: %v", i, f)
			}
			if i < syns {
				p.wait(tick.Second << (i - 1))
			}
		}
		p.in(fSA, 0, 1, 0, mss(1000), flags(wire.ECE))
		flagsOf(p)
		p.src.sizes = []int{1000}
		want := tcp.ECT0
		if syns > 2 {
			want = tcp.NotECT
		}
		_, e := flagsOf(p)
		if len(e) != 1 || e[0] != want || p.c.Info(p.now).ECN != tcp.ECNClassic {
			t.Errorf("answered after %d SYNs: data with ECN bits %v, want %v", syns, e, want)
		}
	}
}

// TestDCTCPEcho: with DCTCP, ECE reports exactly which segments were marked (RFC 8257, 3.2).
func TestDCTCPEcho(t *testing.T) {
	p := newPeer(t, tcp.Config{ECN: tcp.ECNClassic, QuickAcks: -1,
		Loss: loss.Config{CC: cc.Config{Algorithm: cc.DCTCP}}})
	p.c.Connect(p.now)
	p.out()
	p.in(fSA, 0, 1, 0, mss(1000), flags(wire.ECE))
	p.out()
	p.in(fA, 1, 1, 1000, ecnIP(tcp.ECT0))
	p.in(fA, 1001, 1, 1000, ecnIP(tcp.CE)) // marks begin: the bytes before are acknowledged without ECE
	p.in(fA, 2001, 1, 1000, ecnIP(tcp.CE))
	p.in(fA, 3001, 1, 1000, ecnIP(tcp.ECT0)) // and end
	var o tcp.Out
	marked := map[int]bool{}
	last := 1
	for p.c.Poll(p.now, nil, &o) {
		for a := last; a < o.Ack.Diff(irs); a += 1000 {
			marked[a] = o.Flags&wire.ECE != 0
		}
		last = o.Ack.Diff(irs)
	}
	if marked[1] || !marked[1001] || !marked[2001] || marked[3001] || last < 3001 {
		t.Errorf("marked %v up to %d", marked, last)
	}
	// While nothing changes, each acknowledgement covers two segments.
	for _, ecn := range []tcp.ECN{tcp.ECT0, tcp.CE} {
		at := p.c.RcvNxt().Diff(irs)
		p.in(fA, at, 1, 1000, ecnIP(ecn))
		p.out()
		for i := range 4 {
			p.in(fA, at+1000+1000*i, 1, 1000, ecnIP(ecn))
		}
		if f, _ := flagsOf(p); len(f) != 2 || (f[1]&wire.ECE != 0) != (ecn == tcp.CE) {
			t.Errorf("four segments with ECN bits %d are acknowledged with %v", ecn, f)
		}
	}
}
