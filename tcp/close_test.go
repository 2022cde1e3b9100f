package tcp_test

import (
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// The tests TestFigure… follow the figures of RFC 9293, with relative sequence numbers.

func TestFigure6ThreeWay(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open()
	if p.c.Events() != 0 || p.c.EMSS() != 536 {
		t.Errorf("EMSS %d without an MSS option, want 536", p.c.EMSS())
	}
}

//req:rfc9293-MUST-10
func TestFigure8SimultaneousOpen(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.c.Connect(p.now)
	p.want("S 0")
	p.in(fS, 0, 0, 0, mss(1000))
	p.state(tcp.SynReceived)
	if got := p.c.Info(p.now).RcvWnd; got != 65535 { // of 64 KiB, a SYN can announce this much (RFC 7323, 2.2)
		t.Errorf("window %d, the SYN said 65535", got)
	}
	p.want("S. 0 ack 1")
	p.in(fSA, 0, 1, 0, mss(1000))
	p.state(tcp.Established)
	if p.c.EMSS() != 1000 {
		t.Errorf("EMSS %d, want 1000", p.c.EMSS())
	}
	// The peer's SYN-ACK is lost, and its data arrives instead.
	p = newPeer(t, tcp.Config{})
	p.c.Connect(p.now)
	p.want("S 0")
	p.in(fS, 0, 0, 0)
	p.want("S. 0 ack 1")
	p.in(fS, 0, 0, 0) // our SYN-ACK was lost
	p.want("S. 0 ack 1")
	p.in(fA, 1, 1, 10)
	p.state(tcp.Established)
}

func TestFigure9OldDuplicateSYN(t *testing.T) {
	// The active side receives an acknowledgement of a SYN that it did not send.
	p := newPeer(t, tcp.Config{})
	p.c.Connect(p.now)
	p.want("S 0")
	p.in(fSA, 0, 90, 0)
	p.want("R 90")
	p.state(tcp.SynSent)
	p.in(fA, 0, 0, 0)
	p.want("R 0")
	p.in(fRA, 0, 90, 0) // RST with a bad ACK is dropped
	p.want()
	p.in(fR, 0, 0, 0) // RST without ACK, too
	p.in(fF, 0, 0, 0)
	p.want()
	p.state(tcp.SynSent)
	p.in(fSA, 0, 1, 0)
	p.state(tcp.Established)
}

func TestFigure12NormalClose(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open()
	p.c.Shutdown(p.now)
	p.state(tcp.FinWait1)
	p.want("F. 1 ack 1")
	p.in(fA, 1, 2, 0)
	p.state(tcp.FinWait2)
	p.in(fA, 1, 2, 100) // half-closed: bytes still arrive
	p.in(fFA, 101, 2, 0)
	p.state(tcp.TimeWait)
	p.want(". 2 ack 101", ". 2 ack 102")
	p.in(fFA, 101, 2, 0) // our last ACK was lost
	p.want(". 2 ack 102")
	p.wait(60 * tick.Second)
	p.cause(tcp.CauseClosed)
	if e := p.c.Events(); e&(tcp.PeerClosed|tcp.FINAcked|tcp.Ended) != tcp.PeerClosed|tcp.FINAcked|
		tcp.Ended {
		t.Errorf("events %b", e)
	}
}

//req:rfc9293-MUST-13
func TestTimeWaitRestarts(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open()
	p.c.Shutdown(p.now)
	p.want("F. 1 ack 1")
	p.in(fFA, 1, 2, 0)
	p.want(". 2 ack 2")
	p.pass(50 * tick.Second)
	p.in(fFA, 1, 2, 0)
	p.want(". 2 ack 2")
	p.wait(60 * tick.Second)
}

func TestFigure13SimultaneousClose(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open()
	p.c.Shutdown(p.now)
	p.want("F. 1 ack 1")
	p.in(fFA, 1, 1, 0)
	p.state(tcp.Closing)
	p.want(". 2 ack 2")
	p.in(fA, 2, 2, 0)
	p.state(tcp.TimeWait)
}

func TestPassiveClose(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open(mss(1000))
	p.in(fFA, 1, 1, 50) // FIN with bytes
	p.state(tcp.CloseWait)
	p.want(". 1 ack 52")
	p.src.sizes = []int{500, 200}
	p.want(". 1+500 ack 52", "P. 501+200 ack 52")
	p.c.Shutdown(p.now)
	p.state(tcp.LastAck)
	p.want("F. 701 ack 52")
	p.in(fA, 52, 701, 0)
	p.state(tcp.LastAck)
	p.in(fA, 52, 702, 0)
	p.cause(tcp.CauseClosed)
}

// TestFINWithLastBytes: the segment of the last record carries the FIN, also when it is retransmitted.
func TestFINWithLastBytes(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open(mss(1000))
	p.src.sizes = []int{100}
	p.c.Shutdown(p.now)
	p.want("FP. 1+100 ack 1")
	p.pass(1200 * tick.Millisecond)
	p.want("FP. 1+100 ack 1")
	p.in(fA, 1, 102, 0)
	p.state(tcp.FinWait2)
}

// TestFINOutOfOrder: a FIN behind a hole takes effect once the hole is filled, unless bytes beyond it arrive.
func TestFINOutOfOrder(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open(sackOK())
	p.in(fFA, 101, 1, 100)
	p.want(". 1 ack 1 101:201")
	p.state(tcp.Established)
	p.in(fA, 1, 1, 100)
	p.state(tcp.CloseWait)
	p.want(". 1 ack 202")

	// If bytes beyond the FIN arrive, the FIN is dropped.
	p = newPeer(t, tcp.Config{})
	p.open(sackOK())
	p.in(fFA, 51, 1, 0)
	p.in(fA, 1, 1, 100)
	p.state(tcp.Established)
	if p.c.RcvNxt() != irs.Add(101) {
		t.Errorf("RCV.NXT %d, want 101", p.c.RcvNxt().Diff(irs))
	}
}

func TestShutdownBeforeEstablished(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.c.Connect(p.now)
	p.want("S 0")
	p.c.Shutdown(p.now)
	p.cause(tcp.CauseAborted)
	p.want()

	p = newPeer(t, tcp.Config{})
	p.c.Connect(p.now)
	p.want("S 0")
	p.in(fS, 0, 0, 0)
	p.want("S. 0 ack 1")
	p.c.Shutdown(p.now)
	p.state(tcp.SynReceived)
	p.in(fSA, 0, 1, 0)
	p.state(tcp.FinWait1)
	p.want("F. 1 ack 1")
}

// TestAbort: RFC 9293, 3.10.5. In CLOSING and LAST-ACK no RST is sent if the FIN was sent. If it was not, the RFC's
// connection would not be in these states yet, so a RST is sent.
func TestAbort(t *testing.T) {
	for _, c := range []struct {
		name string
		to   func(p *peer)
		rst  []string
	}{
		{"SYN-SENT", func(p *peer) { p.c.Connect(p.now); p.want("S 0") }, nil},
		{"SYN-RECEIVED", func(p *peer) {
			p.c.Connect(p.now)
			p.out()
			p.in(fS, 0, 0, 0)
			p.out()
		}, []string{"R. 1 ack 1"}},
		{"ESTABLISHED", func(p *peer) { p.open() }, []string{"R. 1 ack 1"}},
		{"CLOSE-WAIT", func(p *peer) {
			p.open()
			p.in(fFA, 1, 1, 0)
			p.out()
		}, []string{"R. 1 ack 2"}},
		{"FIN-WAIT-1", func(p *peer) {
			p.open()
			p.c.Shutdown(p.now)
			p.out()
		}, []string{"R. 2 ack 1"}},
		{"FIN-WAIT-2", func(p *peer) {
			p.open()
			p.c.Shutdown(p.now)
			p.out()
			p.in(fA, 1, 2, 0)
		}, []string{"R. 2 ack 1"}},
		{"CLOSING", func(p *peer) {
			p.open()
			p.c.Shutdown(p.now)
			p.out()
			p.in(fFA, 1, 1, 0)
			p.out()
		}, nil},
		{"CLOSING, FIN not sent", func(p *peer) {
			p.open()
			p.c.Shutdown(p.now)
			p.in(fFA, 1, 1, 0)
		}, []string{"R. 1 ack 2"}},
		{"LAST-ACK", func(p *peer) {
			p.open()
			p.in(fFA, 1, 1, 0)
			p.c.Shutdown(p.now)
			p.out()
		}, nil},
		{"LAST-ACK, FIN behind bytes that wait", func(p *peer) {
			p.open(mss(1000))
			p.in(fFA, 1, 1, 0)
			p.src.sizes = []int{1000}
			p.c.Shutdown(p.now)
		}, []string{"R. 1 ack 2"}},
		{"TIME-WAIT", func(p *peer) {
			p.open()
			p.c.Shutdown(p.now)
			p.out()
			p.in(fFA, 1, 2, 0)
			p.out()
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPeer(t, tcp.Config{})
			c.to(p)
			p.c.Abort(p.now)
			p.want(c.rst...)
			p.cause(tcp.CauseAborted)
		})
	}
}

// TestLinger: if the FIN is not acknowledged within Linger, a RST ends the connection.
func TestLinger(t *testing.T) {
	p := newPeer(t, tcp.Config{Linger: 100 * tick.Millisecond})
	p.open()
	p.c.Shutdown(p.now)
	p.want("F. 1 ack 1")
	p.wait(100 * tick.Millisecond)
	p.want("R. 2 ack 1")
	p.cause(tcp.CauseAborted)
}

// TestDetach: after Detach new bytes are answered with RST (RFC 9293, 3.6.1), and FIN-WAIT-2 ends after
// Config.FinWait2.
//
//req:rfc9293-MAY-1 rfc9293-SHLD-3
func TestDetach(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open()
	p.c.Detach(p.now)
	p.want("F. 1 ack 1")
	p.in(fA, 1, 2, 0)
	p.in(fA, 1, 2, 1)
	p.want("R. 2 ack 1")

	p = newPeer(t, tcp.Config{})
	p.open()
	p.c.Detach(p.now)
	p.want("F. 1 ack 1")
	p.in(fA, 1, 2, 0)
	p.wait(60 * tick.Second)
	p.want("R. 2 ack 1")
	p.cause(tcp.CauseOrphan)
}

//req:rfc9293-MAY-2
func TestTimeWaitReuse(t *testing.T) {
	for _, c := range []struct {
		name string
		ts   bool
		syn  func(s *tcp.Segment)
		want bool
	}{
		{"newer timestamp, older number", true, func(s *tcp.Segment) {
			s.Seq = irs.Add(-5)
			ts(101, 0)(s)
		}, true},
		{"same timestamp, newer number", true, func(s *tcp.Segment) {
			s.Seq = irs.Add(500)
			ts(100, 0)(s)
		}, true},
		{"same timestamp, older number", true, func(s *tcp.Segment) {
			s.Seq = irs.Add(1)
			ts(100, 0)(s)
		}, false},
		{"older timestamp", true, func(s *tcp.Segment) {
			s.Seq = irs.Add(500)
			ts(99, 0)(s)
		}, false},
		{"no timestamps, newer number", false, func(s *tcp.Segment) { s.Seq = irs.Add(500) }, true},
		{"no timestamps, older number", false, func(s *tcp.Segment) { s.Seq = irs.Add(1) }, false},
		{"SYN-ACK", false, func(s *tcp.Segment) {
			s.Seq = irs.Add(500)
			s.Flags |= wire.ACK
		}, false},
		{"RST", false, func(s *tcp.Segment) { s.Seq = irs.Add(500); s.Flags |= wire.RST }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPeer(t, tcp.Config{NoTimestamps: !c.ts})
			o := []opt{}
			if c.ts {
				o = append(o, ts(100, 0))
			}
			p.open(o...)
			p.c.Shutdown(p.now)
			p.out()
			p.in(fFA, 1, 2, 0, o...)
			p.out()
			p.state(tcp.TimeWait)
			s := tcp.Segment{}
			s.Flags = fS
			c.syn(&s)
			if got := p.c.Reusable(&s); got != c.want {
				t.Errorf("Reusable %v, want %v", got, c.want)
			}
			if !c.want { // Input answers with a challenge ACK or drops the SYN, and sends no RST
				p.c.Input(&s, p.now)
				p.c.Finish(p.now)
				for _, l := range p.out() {
					if l[0] != '.' {
						t.Errorf("sent %q", l)
					}
				}
				p.state(tcp.TimeWait)
			}
		})
	}
}

// TestRFC1337: a RST does not end TIME-WAIT.
func TestRFC1337(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open()
	p.c.Shutdown(p.now)
	p.out()
	p.in(fFA, 1, 2, 0)
	p.out()
	p.in(fR, 2, 0, 0)
	p.in(fRA, 2, 2, 0)
	p.want()
	p.state(tcp.TimeWait)
}

// TestEarlyFIN: a FIN behind a hole, with bytes held beyond it, may be forged. So it takes effect only if it is
// repeated in order. Then the bytes held beyond it are dropped.
func TestEarlyFIN(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open(sackOK())
	p.in(fA, 1001, 1, 100)
	p.want(". 1 ack 1 1001:1101")
	p.in(fFA, 501, 1, 0)
	p.want()
	p.in(fA, 1, 1, 500)
	p.want(". 1 ack 501 1001:1101")
	p.state(tcp.Established)
	p.in(fFA, 501, 1, 0)
	p.want(". 1 ack 502")
	p.state(tcp.CloseWait)
	p.in(fA, 502, 1, 10)
	p.want()
	if n := p.c.Counters(); n.EarlyFINs != 1 || n.AfterFIN != 2 || p.c.Info(p.now).HeldBytes != 0 {
		t.Errorf("%+v", n)
	}
}
