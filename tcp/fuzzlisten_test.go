package tcp_test

import (
	"math/rand/v2"
	"testing"

	"xwarp/engine/testkit/havoc"
	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// crowd makes segments of several peers of a Listener from bytes. It is also the Listener's Gate.
type crowd struct {
	t       *testing.T
	l       *tcp.Listener
	now     tick.Time
	in      []byte
	backlog int
	open    int // half-open connections that the gate counts
	deny    bool
	answers map[tcp.Tuple][]answer
}

// answer is a SYN-ACK that was sent. Only a peer that received it can acknowledge it.
type answer struct{ irs, iss seq.Num }

// Admit and Release implement tcp.Gate.
func (d *crowd) Admit(*tcp.Tuple, tick.Time) bool {
	if !d.deny {
		d.open++
	}
	return !d.deny
}

func (d *crowd) Release(*tcp.Tuple, tick.Time) { d.open-- }

func (d *crowd) u8() int {
	if len(d.in) == 0 {
		return 0
	}
	v := d.in[0]
	d.in = d.in[1:]
	return int(v)
}

// segment makes a segment from up to ten bytes, which select the peer and how much the segment differs from a valid
// one.
func (d *crowd) segment() (t tcp.Tuple, s tcp.Segment) {
	t = tcp.Tuple{Local: ip.AddrFrom4([4]byte{10, 0, 0, 2}),
		Remote: ip.AddrFrom4([4]byte{10, 0, 1, byte(d.u8() & 7)}), LocalPort: 7, RemotePort: 4000}
	s.SrcPort, s.DstPort, s.Window = 4000, 7, 8000
	s.Flags = []wire.Flags{fS, fA, fA, fFA, fSA, fR, fRA, fS | wire.ECE | wire.CWR,
		fS | wire.AE | wire.ECE | wire.CWR, fA | wire.PSH, 0, fS | fF}[d.u8()%12]
	s.Seq = 5000
	if list := d.answers[t]; len(list) > 0 {
		a := list[d.u8()%len(list)]
		if s.Seq = a.irs; s.Flags&wire.SYN == 0 {
			s.Seq++
		}
		s.Ack = a.iss + 1
	}
	s.Seq = s.Seq.Add(offsetOf(d.u8()))
	s.Ack = s.Ack.Add(offsetOf(d.u8()))
	if opt := d.u8(); s.Flags&wire.SYN != 0 {
		s.Opt.Present = wire.OptSet(opt) & (wire.HasMSS | wire.HasWScale |
			wire.HasSACKPermitted | wire.HasTS)
		s.Opt.MSS, s.Opt.WScale = uint16(d.u8()<<6), uint8(opt>>4)
	} else if opt&1 != 0 {
		s.Opt.Present = wire.HasTS
	}
	s.Opt.TSVal, s.Opt.TSEcr = uint32(d.u8()), uint32(d.u8())
	if s.Len = 0; s.Flags&wire.ACK != 0 {
		s.Len = d.u8() & 63
	}
	return t, s
}

// offsetOf makes a byte an offset that is mostly 0, otherwise small or large.
func offsetOf(b int) int {
	if b < 160 {
		return 0
	}
	return (b - 208) << (b & 3 * 7)
}

// arrive passes a segment to the listener and checks its verdict.
func (d *crowd) arrive(t tcp.Tuple, s tcp.Segment) {
	var out tcp.Out
	switch d.l.Input(&t, &s, d.now, &out) {
	case tcp.Reply:
		d.sent(t, &out)
		if s.Flags&wire.RST != 0 && out.Flags&(wire.RST|wire.SYN) != 0 {
			d.t.Fatalf("a RST was answered with %v", out.Flags)
		}
	case tcp.Ready:
		d.accept(t, &s)
	}
}

// sent records a SYN-ACK that the listener sent, and checks that it sends no data or unexpected flags.
func (d *crowd) sent(t tcp.Tuple, out *tcp.Out) {
	if out.Payload.Len() != 0 {
		d.t.Fatalf("a listener sent %d bytes", out.Payload.Len())
	}
	switch out.Flags &^ (wire.ECE | wire.CWR | wire.AE) {
	case fSA:
		list := append(d.answers[t], answer{out.Ack - 1, out.Seq})
		d.answers[t] = list[max(0, len(list)-16):]
	case fA, fR, fRA:
	default:
		d.t.Fatalf("a listener sent %v", out.Flags)
	}
}

// accept checks that s acknowledges an answer, and that Accept and Input make it an established connection.
func (d *crowd) accept(t tcp.Tuple, s *tcp.Segment) {
	found := false
	for _, a := range d.answers[t] {
		ahead := s.Seq.Diff(a.irs + 1)
		found = found || s.Ack == a.iss+1 && ahead >= 0 && ahead < 1<<16
	}
	if !found {
		d.t.Fatalf("%v: a connection for %v %v ack %v, which acknowledges none of %v", t, s.Flags,
			s.Seq, s.Ack, d.answers[t])
	}
	if d.u8()&15 == 0 {
		d.l.Refuse(&t, d.now)
		return
	}
	var c tcp.Conn
	if !d.l.Accept(&t, s, &c, d.now) || c.State() != tcp.SynReceived {
		d.t.Fatalf("Ready, and no connection: %v", c.State())
	}
	o := c.Input(s, d.now)
	for _, r := range o.R[:o.N] {
		c.Keep(r)
	}
	c.Finish(d.now)
	if st := c.State(); st != tcp.Established && st != tcp.CloseWait {
		d.t.Fatalf("%v %v ack %v makes %v, %v", s.Flags, s.Seq, s.Ack, st, c.Cause())
	}
	delete(d.answers, t)
}

// FuzzListener passes any sequence of segments of eight peers to a Listener, while time passes and its gate opens and
// closes. There must be no connection without the acknowledgement of a SYN-ACK that was sent to the peer, and each
// Ready must make one. The half-open connections must be limited, be counted by the gate, and all be removed in the
// end.
func FuzzListener(f *testing.F) {
	r := rand.New(rand.NewPCG(4987, 0))
	for mode := range byte(12) {
		in := []byte{mode}
		for range 40 { // a handshake of a peer, and now and then something else
			in = append(in, 0, byte(r.Uint32()), 0, 0, 0, 0, byte(r.Uint32()),
				byte(r.Uint32()), 9, 9)
			in = append(in, 0, in[len(in)-9], 1, 0, 0, 0, 0, 0, 0, 0, 40)
		}
		f.Add(in)
		f.Add(append([]byte{mode}, randomOps(r, 300)...))
	}
	havoc.Fuzz(f, func(t *testing.T, in []byte) {
		d := &crowd{t: t, in: in, answers: map[tcp.Tuple][]answer{}}
		how := d.u8()
		d.backlog = []int{1, 3, 8}[how%3]
		var cfg tcp.ListenConfig
		cfg.Backlog, cfg.Cookies, cfg.Gate = d.backlog, tcp.CookieMode(how>>2%3), d
		cfg.Conn.NoTimestamps, cfg.Conn.ECN = how&16 != 0, tcp.ECNMode(how>>5%4)
		d.l, d.now = newListener(cfg)
		for len(d.in) > 0 {
			switch op := d.u8(); {
			case op < 200:
				d.arrive(d.segment())
			case op < 240:
				d.now = d.now.Add(tick.Duration(d.u8()*d.u8()) * 10 * tick.Millisecond)
				d.poll()
			default:
				d.deny = op&1 != 0
			}
			if n := d.l.Pending(); n > d.backlog || n != d.open {
				t.Fatalf("%d half-open with room for %d, %d at the gate", n, d.backlog, d.open)
			}
		}
		for range 20 {
			d.now = d.now.Add(tick.Minute)
			d.poll()
		}
		if d.l.Pending() != 0 || d.open != 0 || d.l.Deadline() != tick.Never {
			t.Fatalf("in the end %d half-open, %d at the gate, deadline %v", d.l.Pending(), d.open,
				d.l.Deadline())
		}
	})
}

// poll retransmits the SYN-ACKs that are due.
func (d *crowd) poll() {
	for range 4 * d.backlog {
		var t tcp.Tuple
		var out tcp.Out
		if !d.l.Poll(d.now, &t, &out) {
			return
		}
		d.sent(t, &out)
	}
	d.t.Fatal("Poll does not end")
}
