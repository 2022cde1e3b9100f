package rendezvous

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"xwarp/engine/verbs"
)

func endpoint(gid string, qpn uint32) QPAddr { return QPAddr{netip.MustParseAddr(gid), qpn} }

// TestFrameRoundTrip parses the output of Append, for both families.
func TestFrameRoundTrip(t *testing.T) {
	for _, f := range []Frame{
		{endpoint("192.0.2.1", 17), endpoint("192.0.2.2", lastNumber)},
		{endpoint("2001:db8::1", 1<<20), endpoint("2001:db8::2", 16)},
	} {
		if got, err := ParseFrame(f.Append(nil)); err != nil || got != f {
			t.Errorf("%+v, %v, want %+v", got, err, f)
		}
	}
}

// TestOneEndDials: exactly one end of each pair dials. A queue pair that is its own peer has no dialing end.
func TestOneEndDials(t *testing.T) {
	a, b, c := endpoint("192.0.2.1", 30), endpoint("192.0.2.2", 20), endpoint("192.0.2.1", 31)
	for _, p := range []Pair{{a, b}, {a, c}, {b, c}} {
		if back := (Pair{p.Remote, p.Local}); p.Dials() == back.Dials() {
			t.Errorf("%v and %v both dial or both wait", p, back)
		}
	}
	if self := (Pair{a, a}); self.Dials() || !self.IsSelf() {
		t.Errorf("%v dials", self)
	}
}

// FuzzParseFrame: a frame that parses is the only encoding of its content.
func FuzzParseFrame(f *testing.F) {
	f.Add(Frame{endpoint("192.0.2.1", 17), endpoint("2001:db8::2", 16)}.Append(nil))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := ParseFrame(b)
		if err == nil && string(v.Append(nil)) != string(b) {
			t.Errorf("%x is parsed as %+v", b, v)
		}
	})
}

// TestNumbersRest: numbers are unique, and not reused for RestTime.
func TestNumbersRest(t *testing.T) {
	now := time.Unix(1, 0)
	n := Numbers{now: func() time.Time { return now }}
	seen := map[uint32]bool{}
	for range 1000 {
		q := n.Take()
		if seen[q] || q < firstNumber || q > lastNumber {
			t.Fatalf("number %#x", q)
		}
		seen[q] = true
		n.Return(q)
	}
	if len(n.taken) != 1000 {
		t.Errorf("%d numbers are resting, want 1000", len(n.taken))
	}
	now = now.Add(RestTime)
	n.Take()
	if len(n.taken) != 1 {
		t.Errorf("%d numbers are in use after RestTime, want 1", len(n.taken))
	}
}

// TestRNRWait compares times with the table of the InfiniBand specification.
func TestRNRWait(t *testing.T) {
	for _, c := range []struct {
		timer   uint8
		retries int
		want    time.Duration
	}{
		{0, 1, 655360 * time.Microsecond}, {31, 6, 6 * 491520 * time.Microsecond},
		{24, 1, 40960 * time.Microsecond}, {1, 6, RNRGrace}, {31, 0, RNRGrace},
	} {
		if got := RNRWait(c.timer, c.retries); got != c.want {
			t.Errorf("timer %d, %d retries: %v, want %v", c.timer, c.retries, got, c.want)
		}
	}
}

// answer is the Answerer of a request. It sends the private data of a Reject to rejected.
type answer struct{ rejected chan string }

func (a answer) Accept(context.Context, verbs.QP, []byte) error { return nil }

func (a answer) Reject(private []byte) error {
	a.rejected <- string(private)
	return nil
}

func request(from, to string, f Frame) (*verbs.ConnRequest, answer) {
	a := answer{make(chan string, 1)}
	return &verbs.ConnRequest{Local: netip.AddrPortFrom(netip.MustParseAddr(to), Port),
		Remote: netip.AddrPortFrom(netip.MustParseAddr(from), 40000), PrivateData: f.Append(nil),
		Answerer: a}, a
}

// TestMismatchesLookTheSame: requests that match no queue pair, for different reasons, are refused with the same text
// after the same time. A request is accepted only if its addresses and numbers are those that a program set.
func TestMismatchesLookTheSame(t *testing.T) {
	own, peer := endpoint("192.0.2.2", 100), endpoint("192.0.2.1", 50)
	right := Frame{Source: peer, Target: own}
	table := NewTable()
	var delays []time.Duration
	var expire []func()
	table.after = func(d time.Duration, f func()) *time.Timer {
		delays, expire = append(delays, d), append(expire, f)
		return nil
	}
	accepted := make(chan *verbs.ConnRequest, 2)
	table.Expect(Pair{own, peer}, func(r *verbs.ConnRequest) { accepted <- r })
	var answers []answer
	for _, w := range []struct {
		from, to string
		f        Frame
	}{
		{"192.0.2.9", "192.0.2.2", right}, // another host's address
		{"192.0.2.1", "192.0.2.3", right}, // another address of this host
		{"192.0.2.1", "192.0.2.2", Frame{endpoint("192.0.2.1", 51), own}},
		{"192.0.2.1", "192.0.2.2", Frame{peer, endpoint("192.0.2.2", 101)}},
	} {
		r, a := request(w.from, w.to, w.f)
		table.Arrive(r)
		answers = append(answers, a)
	}
	for i, f := range expire {
		f()
		if got := <-answers[i].rejected; got != string(Refusal) || delays[i] != HoldTime {
			t.Errorf("request %d: refused with %q after %v", i, got, delays[i])
		}
	}
	r, _ := request("192.0.2.1", "192.0.2.2", right)
	table.Arrive(r)
	if got := <-accepted; got != r {
		t.Error("another request is accepted")
	}
	if len(table.held)+table.count+len(table.ofPeer) != 0 {
		t.Errorf("something is left: %+v", table)
	}
}

// TestHeldRequestsAreBounded: requests of one address that wait for a queue pair are limited to a part of MaxHeld.
// Further ones are refused at once.
func TestHeldRequestsAreBounded(t *testing.T) {
	table := NewTable()
	table.after = func(time.Duration, func()) *time.Timer { return nil }
	refused := 0
	for qpn := range uint32(10_000) {
		r, a := request("192.0.2.1", "192.0.2.2",
			Frame{endpoint("192.0.2.1", 50), endpoint("192.0.2.2", qpn)})
		table.Arrive(r)
		refused += len(a.rejected)
	}
	if table.count != MaxHeldOfPeer || refused != 10_000-MaxHeldOfPeer {
		t.Errorf("%d requests are held and %d refused", table.count, refused)
	}
	own, peer := endpoint("192.0.2.2", 7777), endpoint("192.0.2.3", 50)
	r, _ := request("192.0.2.3", "192.0.2.2", Frame{peer, own})
	table.Arrive(r)
	accepted := make(chan *verbs.ConnRequest, 1)
	table.Expect(Pair{own, peer}, func(r *verbs.ConnRequest) { accepted <- r })
	if <-accepted != r {
		t.Error("another peer's request is lost")
	}
}
