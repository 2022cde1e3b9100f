package tcp_test

import (
	"fmt"
	"reflect"
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// peer is a connection, with the test as its peer. Sequence numbers in tests are relative: those of the connection to
// iss, those of the peer to irs.
type peer struct {
	t    *testing.T
	c    tcp.Conn
	now  tick.Time
	src  queue
	keep bool // the layer above keeps all offered bytes
}

// queue is a Source of records of given sizes.
type queue struct {
	sizes []int
	split bool // a plain stream: any part may be sent
}

func (q *queue) Next(room int) (n int, more bool) {
	if len(q.sizes) == 0 {
		return 0, false
	}
	n = q.sizes[0]
	if n > room {
		if !q.split || room == 0 {
			return 0, true
		}
		q.sizes[0] -= room
		return room, true
	}
	q.sizes = q.sizes[1:]
	return n, len(q.sizes) > 0
}

const (
	iss seq.Num = 0xfffff000 // so that numbers wrap early in every test
	irs seq.Num = 0x7fffff00
)

func newPeer(t *testing.T, cfg tcp.Config) *peer {
	p := &peer{t: t, now: 1e9, keep: true}
	p.c.Init(&cfg, 1000, 2000, iss, p.now)
	t.Cleanup(func() { countedUp(t, p.c.Counters(), p.c.Info(p.now).Loss.Counters) })
	return p
}

// countedUp fails t if a counter was decremented below zero.
func countedUp(t testing.TB, structs ...any) {
	t.Helper()
	for _, s := range structs {
		v := reflect.ValueOf(s)
		for i := range v.NumField() {
			if n := v.Field(i).Uint(); n > 1<<62 {
				t.Errorf("%v: %s is %d", v.Type(), v.Type().Field(i).Name, int64(n))
			}
		}
	}
}

// opt changes a segment before it arrives.
type opt func(s *tcp.Segment)

func ts(val, ecr uint32) opt {
	return func(s *tcp.Segment) {
		s.Opt.Present |= wire.HasTS
		s.Opt.TSVal, s.Opt.TSEcr = val, ecr
	}
}
func win(n uint16) opt { return func(s *tcp.Segment) { s.Window = n } }
func mss(n uint16) opt {
	return func(s *tcp.Segment) { s.Opt.Present |= wire.HasMSS; s.Opt.MSS = n }
}
func ws(n uint8) opt {
	return func(s *tcp.Segment) { s.Opt.Present |= wire.HasWScale; s.Opt.WScale = n }
}
func sackOK() opt         { return func(s *tcp.Segment) { s.Opt.Present |= wire.HasSACKPermitted } }
func ecnIP(e tcp.ECN) opt { return func(s *tcp.Segment) { s.ECN = e } }

// in passes a segment with n bytes to the connection and returns the offer.
func (p *peer) in(f wire.Flags, at, ack, n int, opts ...opt) tcp.Offer {
	s := tcp.Segment{Len: n}
	s.SrcPort, s.DstPort, s.Flags, s.Window = 2000, 1000, f, 0xffff
	s.Seq = irs.Add(at)
	if f&wire.ACK != 0 {
		s.Ack = iss.Add(ack)
	}
	for _, o := range opts {
		o(&s)
	}
	o := p.c.Input(&s, p.now)
	if p.keep {
		for _, r := range o.R[:o.N] {
			p.c.Keep(r)
		}
	}
	p.c.Finish(p.now)
	return *o
}

// out returns what the connection sends, one line per segment, with relative numbers.
func (p *peer) out() (lines []string) {
	var o tcp.Out
	for p.c.Poll(p.now, &p.src, &o) {
		s := fmt.Sprintf("%v %d", o.Flags, o.Seq.Diff(iss))
		if n := o.Payload.Len(); n > 0 {
			s += fmt.Sprintf("+%d", n)
		}
		if o.Flags&wire.ACK != 0 {
			s += fmt.Sprintf(" ack %d", o.Ack.Diff(irs))
		}
		if o.Opt.Present&wire.HasSACK != 0 {
			for _, r := range o.Opt.SACK[:o.Opt.NSACK] {
				s += fmt.Sprintf(" %d:%d", r.Start.Diff(irs), r.End.Diff(irs))
			}
		}
		lines = append(lines, s)
		if len(lines) > 1000 {
			p.t.Fatal("Poll does not end")
		}
	}
	return lines
}

// want fails the test unless the connection sends exactly these segments, in the format of out.
func (p *peer) want(lines ...string) {
	p.t.Helper()
	got := p.out()
	if fmt.Sprint(got) != fmt.Sprint(lines) {
		p.t.Fatalf("at %v state %v: sent %q, want %q", p.now, p.c.State(), got, lines)
	}
}

// wait advances the time to the next deadline and calls Expire. It fails the test unless the deadline is d from now.
func (p *peer) wait(d tick.Duration) {
	p.t.Helper()
	got := p.c.Deadline()
	if got != p.now.Add(d) {
		p.t.Fatalf("next deadline in %v ns, want %v", got.Sub(p.now), d)
	}
	p.now = got
	p.c.Expire(p.now)
}

// pass advances the time by d, and calls Expire at each deadline on the way.
func (p *peer) pass(d tick.Duration) {
	end := p.now.Add(d)
	for i := 0; p.c.Deadline() <= end && i < 1000; i++ {
		p.now = max(p.now, p.c.Deadline())
		p.c.Expire(p.now)
	}
	p.now = end
}

func (p *peer) state(s tcp.State) {
	p.t.Helper()
	if p.c.State() != s {
		p.t.Fatalf("state %v, want %v (cause %v)", p.c.State(), s, p.c.Cause())
	}
}

func (p *peer) cause(c tcp.Cause) {
	p.t.Helper()
	if p.c.State() != tcp.Closed || p.c.Cause() != c || p.c.Deadline() != tick.Never {
		p.t.Fatalf("state %v, cause %q, deadline %d; want CLOSED, %q, never", p.c.State(),
			p.c.Cause(), p.c.Deadline(), c)
	}
}

const (
	fA  = wire.ACK
	fS  = wire.SYN
	fSA = wire.SYN | wire.ACK
	fF  = wire.FIN
	fFA = wire.FIN | wire.ACK
	fR  = wire.RST
	fRA = wire.RST | wire.ACK
)

// open brings the connection to ESTABLISHED by an active open. opts change the peer's SYN-ACK.
func (p *peer) open(opts ...opt) {
	p.t.Helper()
	p.c.Connect(p.now)
	p.want("S 0")
	p.in(fSA, 0, 1, 0, opts...)
	p.want(". 1 ack 1")
	p.state(tcp.Established)
	p.c.Events()
}
