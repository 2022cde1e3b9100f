package tcp_test

import (
	"flag"
	"fmt"
	"reflect"
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

var wholeWorlds = flag.Bool("tcp.worlds", false, "TestSmallWorlds enumerates all of its cases")

// kind is one kind of segment that may arrive. Its numbers are relative to those of the connection at its arrival.
type kind struct {
	flags wire.Flags
	at    place
	n     int
	ack   ackKind
	// refused reports that the layer above does not keep the text.
	refused bool
}

type place uint8

const (
	atSYN     place = iota // at the number of the peer's SYN
	left                   // at bytes that were acknowledged long ago
	before                 // its ten bytes are those before RCV.NXT
	touch                  // nine bytes before RCV.NXT, and the one at RCV.NXT
	overlap                // five bytes before RCV.NXT, and five from there on
	edge                   // at RCV.NXT
	behind                 // ten bytes after RCV.NXT
	last                   // at the last byte of the window
	right                  // at the first byte after the window
	outside                // far after the window
	allPlaces              // number of places
)

type ackKind uint8

const (
	noAck   ackKind = iota
	newAck          // of everything sent
	partAck         // of half of the bytes in flight
	dupAck          // of SND.UNA
	oldAck          // of SND.UNA - 1
	ancient         // of a number below SND.UNA - MAX.SND.WND
	beyond          // of a byte that was not sent yet
	allAcks
)

func (k kind) String() string {
	return fmt.Sprintf("%v %s+%d ack %s refused %v", k.flags,
		[...]string{"SYN's", "left", "before", "touch", "overlap", "edge", "behind", "last",
			"right", "outside"}[k.at],
		k.n, [...]string{"-", "new", "part", "dup", "old", "ancient", "beyond"}[k.ack], k.refused)
}

// kinds returns all kinds of segments.
func kinds() (all []kind) {
	for _, f := range []wire.Flags{0, fS, fSA, fS | fF, fA, fF, fFA, fR, fRA, fFA | wire.URG} {
		for at := place(0); at < allPlaces; at++ {
			if at == atSYN && f&wire.SYN == 0 {
				continue
			}
			for _, n := range []int{0, 10} {
				if n == 0 && at >= before && at <= overlap {
					continue
				}
				if f&wire.ACK == 0 {
					all = append(all, kind{flags: f, at: at, n: n})
					continue
				}
				for ack := newAck; ack < allAcks; ack++ {
					all = append(all, kind{flags: f, at: at, n: n, ack: ack})
				}
				if n > 0 && (f == fA || f == fFA) {
					all = append(all, kind{flags: f, at: at, n: n, ack: newAck, refused: true})
				}
			}
		}
	}
	return all
}

// starts bring a connection to each state, some of them in several ways. TestSegmentsInEveryState and the packet
// scripts check the calls and segments that they use. m is the model of the connection in that state.
var starts = []struct {
	name string
	to   func(p *peer)
	m    rfc9293
}{
	{"closed", func(p *peer) {}, rfc9293{state: tcp.Closed}},
	{"syn-sent", func(p *peer) { p.c.Connect(p.now) },
		rfc9293{state: tcp.SynSent, nxt: 1}},
	{"simultaneous open", func(p *peer) { p.c.Connect(p.now); p.out(); p.in(fS, 0, 0, 0) },
		rfc9293{state: tcp.SynReceived, nxt: 1, rcvNxt: 1}},
	{"established", func(p *peer) { p.open() },
		rfc9293{state: tcp.Established, una: 1, nxt: 1, rcvNxt: 1}},
	{"established, bytes in flight", func(p *peer) { p.open(); p.src.sizes = []int{10} },
		rfc9293{state: tcp.Established, una: 1, nxt: 11, rcvNxt: 1}},
	{"established, a hole", func(p *peer) { p.open(); p.in(fA, 11, 1, 10) },
		rfc9293{state: tcp.Established, una: 1, nxt: 1, rcvNxt: 1, held: []span{{11, 21}}}},
	{"fin-wait-1", func(p *peer) { p.open(); p.c.Shutdown(p.now) },
		rfc9293{state: tcp.FinWait1, una: 1, nxt: 2, fin: 1, rcvNxt: 1}},
	{"fin-wait-1, bytes in flight", func(p *peer) {
		p.open()
		p.src.sizes = []int{10}
		p.out()
		p.c.Shutdown(p.now)
	}, rfc9293{state: tcp.FinWait1, una: 1, nxt: 12, fin: 11, rcvNxt: 1}},
	{"fin-wait-2", func(p *peer) { p.open(); p.c.Shutdown(p.now); p.out(); p.in(fA, 1, 2, 0) },
		rfc9293{state: tcp.FinWait2, una: 2, nxt: 2, fin: 1, rcvNxt: 1}},
	{"close-wait", func(p *peer) { p.open(); p.in(fFA, 1, 1, 0) },
		rfc9293{state: tcp.CloseWait, una: 1, nxt: 1, rcvNxt: 2}},
	{"closing", func(p *peer) { p.open(); p.c.Shutdown(p.now); p.out(); p.in(fFA, 1, 1, 0) },
		rfc9293{state: tcp.Closing, una: 1, nxt: 2, fin: 1, rcvNxt: 2}},
	{"last-ack", func(p *peer) { p.open(); p.in(fFA, 1, 1, 0); p.c.Shutdown(p.now) },
		rfc9293{state: tcp.LastAck, una: 1, nxt: 2, fin: 1, rcvNxt: 2}},
	{"time-wait", func(p *peer) { p.open(); p.c.Shutdown(p.now); p.out(); p.in(fFA, 1, 2, 0) },
		rfc9293{state: tcp.TimeWait, una: 2, nxt: 2, fin: 1, rcvNxt: 2}},
}

// smallWorld is a connection to which a sequence of segments arrives, and the models of its possible states.
type smallWorld struct {
	p      *peer
	edge   int // the largest right edge announced so far
	models []rfc9293
	sent   []sentSegment // segments sent in the last step
}

// begin brings a new connection to start i.
func (w *smallWorld) begin(t *testing.T, i int) {
	w.p = newPeer(t, tcp.Config{RcvSpace: 1000, DelayedAck: -1, QuickAcks: -1, NoTimestamps: true,
		NoWScale: true, NoSACK: true})
	starts[i].to(w.p)
	w.models = append(w.models[:0], starts[i].m)
	w.edge = 1001
	w.poll()
}

// poll collects the segments that the connection sends.
func (w *smallWorld) poll() {
	w.sent = w.sent[:0]
	var o tcp.Out
	for w.p.c.Poll(w.p.now, &w.p.src, &o) && len(w.sent) < 10 {
		s := sentSegment{o.Flags, o.Seq.Diff(iss), 0, o.Payload.Len(), int(o.Window)}
		if o.Flags&wire.ACK != 0 {
			s.ack = o.Ack.Diff(irs)
			w.edge = max(w.edge, s.ack+s.wnd)
		}
		w.sent = append(w.sent, s)
	}
}

// arrive passes a segment of kind k to the connection and compares the effects with the RFC's rules. why describes the
// differences, and is empty if there are none.
func (w *smallWorld) arrive(k kind) (why string) {
	c := &w.p.c
	s := segmentOf(k, &w.models[0], w.edge)
	if c.State() == tcp.SynSent && s.flags&wire.SYN != 0 {
		w.edge = s.seq + 1 + 1000
	}
	edge := w.edge
	w.p.now = w.p.now.Add(tick.Second) // so that the limit of challenge ACKs does not apply
	offered := 0
	w.p.keep = !k.refused
	o := w.p.in(s.flags, s.seq, s.ack, s.n)
	w.p.keep = true
	for _, r := range o.R[:o.N] {
		offered += r.Len()
	}
	w.poll()
	next := w.models[:0:0]
	for i := range w.models {
		for _, may := range w.models[i].arrive(s, edge) {
			if w.is(&may.m) && offered == may.offered && may.reply.is(w.sent, &may.m) {
				next = append(next, may.m)
				continue
			}
			why += fmt.Sprintf("\n\twanted %+v, %d bytes offered, reply %v", may.m, may.offered,
				may.reply)
		}
	}
	if len(next) == 0 {
		return fmt.Sprintf("%v: %v, RCV.NXT %d, SND.UNA %d, %d bytes offered, sent %v%s", k,
			c.State(), c.RcvNxt().Diff(irs), c.SndUna().Diff(iss), offered, w.sent, why)
	}
	w.models = next
	return ""
}

// is reports whether the connection is in the state of m.
func (w *smallWorld) is(m *rfc9293) bool {
	c := &w.p.c
	return c.State() == m.state && (m.state <= tcp.SynSent ||
		c.RcvNxt().Diff(irs) == m.rcvNxt && c.SndUna().Diff(iss) == m.una)
}

// arrival is a segment with numbers relative to the initial ones.
type arrival struct {
	flags       wire.Flags
	seq, ack, n int
	refused     bool
}

// segmentOf returns a segment of kind k, with numbers for the model m and the right edge.
func segmentOf(k kind, m *rfc9293, edge int) arrival {
	nxt := max(m.rcvNxt, 1)
	at := [...]int{m.irs, nxt - 50, nxt - 10, nxt - 9, nxt - 5, nxt, nxt + 10, edge - 1,
		edge, edge + 5000}[k.at]
	ack := [...]int{0, m.nxt, m.una + (m.nxt-m.una)/2, m.una, m.una - 1, m.una - 70000,
		m.nxt + 1}[k.ack]
	return arrival{k.flags, at, ack, k.n, k.refused}
}

// TestSmallWorlds passes every kind of segment to a connection in every state, and then a second one of every kind. It
// compares states, numbers and answers with an independent model of RFC 9293's rules. Without -tcp.worlds it adds no
// second segment after a first one that changes nothing by those rules. With -tcp.worlds it adds one after every first
// segment, and two after those that change something.
func TestSmallWorlds(t *testing.T) {
	all := kinds()
	cases := 0
	for i := range starts {
		t.Run(starts[i].name, func(t *testing.T) {
			e := enumeration{t: t, start: i, kinds: all, one: !*wholeWorlds, deep: 2}
			e.follow(nil, true)
			if cases += e.cases; *wholeWorlds {
				e = enumeration{t: t, start: i, kinds: all, one: true, deep: 3}
				e.follow(nil, true)
				cases += e.cases
			}
		})
	}
	t.Logf("%d kinds of segment, %d states: %d cases", len(all), len(starts), cases)
}

// enumeration runs all sequences of up to deep segments from one start.
type enumeration struct {
	t     *testing.T
	start int
	kinds []kind
	deep  int
	one   bool // further segments follow only one that changed the model
	cases int
	wrong int
	w     smallWorld
}

// follow runs every kind of segment after those of path, and recurses.
func (e *enumeration) follow(path []kind, changed bool) {
	if len(path) == e.deep || e.one && !changed {
		return
	}
	for _, k := range e.kinds {
		if e.wrong > 5 {
			return
		}
		e.cases++
		e.w.begin(e.t, e.start)
		for _, p := range path {
			e.w.arrive(p)
		}
		before := e.w.models[0]
		if why := e.w.arrive(k); why != "" {
			e.t.Errorf("after %v: %s", path, why)
			e.wrong++
			continue
		}
		changed := len(e.w.models) > 1 || !reflect.DeepEqual(before, e.w.models[0])
		e.follow(append(path[:len(path):len(path)], k), changed)
	}
}
