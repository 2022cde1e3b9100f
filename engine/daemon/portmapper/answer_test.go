package portmapper

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// rules have one listener for each address family, and admit all peers but one.
var rules = Rules{
	Listens: func(at netip.AddrPort) bool { return at == listener4 || at == listener6 },
	Admits:  func(peer netip.Addr) bool { return peer != netip.MustParseAddr("192.0.2.66") },
}

func request(accepting, connecting netip.AddrPort) []byte {
	m := Message{Handle: 77, PMTime: 3, Accepting: accepting, Connecting: connecting,
		Mapped: connecting}
	return m.Append(nil)
}

// TestAnswer checks the reply to every kind of datagram.
func TestAnswer(t *testing.T) {
	other := netip.AddrPortFrom(listener4.Addr(), 7175)
	elsewhere := netip.MustParseAddr("10.77.0.2")
	ack := Message{Type: Ack, Accepting: listener4, Connecting: client4}
	accept := Message{Type: Accept, Accepting: listener4, Connecting: client4}
	for _, c := range []struct {
		what     string
		b        []byte
		from, to netip.Addr
		want     string
		counts   Counters
	}{
		{"a listener", request(listener4, client4), client4.Addr(), listener4.Addr(), "ACC",
			Counters{RequestsIn: 1, AcceptsOut: 1}},
		{"a listener, IPv6", request(listener6, client6), client6.Addr(), listener6.Addr(), "ACC",
			Counters{RequestsIn: 1, AcceptsOut: 1}},
		{"a port where nobody listens", request(other, client4), client4.Addr(), listener4.Addr(),
			"REJ", Counters{RequestsIn: 1, RejectsOut: 1}},
		{"a listener, asked at another address", request(listener4, client4), client4.Addr(),
			elsewhere, "REJ", Counters{RequestsIn: 1, RejectsOut: 1}},
		{"a peer that may not connect", request(listener4, client4),
			netip.MustParseAddr("192.0.2.66"), listener4.Addr(), "", Counters{RequestsIn: 1,
				Denied: 1}},
		{"a listener, asked for by broadcast", request(listener4, client4), client4.Addr(),
			netip.Addr{}, "", Counters{Misaddressed: 1}},
		{"an acknowledgement", ack.Append(nil), client4.Addr(), listener4.Addr(), "",
			Counters{AcksIn: 1}},
		{"an answer", accept.Append(nil), client4.Addr(), listener4.Addr(), "",
			Counters{Malformed: 1}},
		{"a short one", request(listener4, client4)[:63], client4.Addr(), listener4.Addr(), "",
			Counters{Malformed: 1}},
	} {
		t.Run(c.what, func(t *testing.T) {
			var m Mapper
			b := m.answer(&rules, c.b, c.from, c.to, time.Unix(1, 0))
			if len(b) > len(c.b) {
				t.Errorf("%d bytes for %d", len(b), len(c.b))
			}
			got := ""
			if b != nil {
				a, err := Parse(b)
				q, _ := Parse(c.b)
				if err != nil || a.Handle != q.Handle || a.PMTime != q.PMTime ||
					a.Accepting != q.Accepting || a.Connecting != q.Connecting {
					t.Errorf("%+v, %v answers %+v", a, err, q)
				}
				got = a.Type.String()
			}
			if got != c.want || m.Counters() != c.counts {
				t.Errorf("%q, %+v; want %q, %+v", got, m.Counters(), c.want, c.counts)
			}
		})
	}
}

// TestAnswerRate floods a port mapper from one source, then from many. Each source has a share of the rate per second,
// and all sources have a total. The next second starts with full shares.
func TestAnswerRate(t *testing.T) {
	var m Mapper
	now := time.Unix(1000, 0)
	flood := func(from netip.Addr, n int) (answers int) {
		for range n {
			if m.answer(&rules, request(listener4, client4), from, listener4.Addr(), now) != nil {
				answers++
			}
		}
		return answers
	}
	if n := flood(client4.Addr(), 3*maxPerSource); n != maxPerSource || m.quietTime(now) != 0 {
		t.Errorf("%d replies to one source, quiet time %v", n, m.quietTime(now))
	}
	// a /64 is one source
	n := 0
	for i := range 2 * maxPerSource {
		n += flood(netip.MustParseAddr(fmt.Sprintf("fd77::%x", i+1)), 1)
	}
	if n != maxPerSource {
		t.Errorf("%d answers to one /64", n)
	}
	n = 2 * maxPerSource
	for i := range maxAnswers {
		n += flood(netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}), 1)
	}
	now = now.Add(300 * time.Millisecond)
	if n != maxAnswers || m.quietTime(now) != 700*time.Millisecond || len(m.of) > maxAnswers {
		t.Errorf("%d replies in all to %d sources, quiet time %v", n, len(m.of), m.quietTime(now))
	}
	if c := m.Counters(); c.Limited != c.RequestsIn-c.AcceptsOut || c.Limited == 0 {
		t.Errorf("%+v", c)
	}
	now = now.Add(time.Second)
	if n := flood(client4.Addr(), 1); n != 1 || m.quietTime(now) != 0 {
		t.Errorf("%d replies a second later, quiet time %v", n, m.quietTime(now))
	}
}
