package portmapper

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"
)

// peer is the port mapper of a test, on loopback. It sends each received request to asked, and any other message to
// acks.
type peer struct {
	t     *testing.T
	c     *net.UDPConn
	acks  chan Message
	asked chan Message
}

// newPeer starts a peer. reply returns the datagrams that answer a request, or nil for none.
func newPeer(t *testing.T, reply func(q Message) [][]byte) *peer {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t, c, make(chan Message, 16), make(chan Message, 16)}
	t.Cleanup(func() { c.Close() })
	go func() {
		var b [RequestLen + 1]byte
		for {
			n, from, err := c.ReadFromUDPAddrPort(b[:])
			if err != nil {
				return
			}
			q, err := Parse(b[:n])
			if err != nil {
				t.Error(err)
			}
			if q.Type != Request {
				p.acks <- q
				continue
			}
			p.asked <- q
			for _, a := range reply(q) {
				c.WriteToUDPAddrPort(a, from)
			}
		}
	}()
	return p
}

func (p *peer) dial(local, remote netip.AddrPort) (net.Conn, error) {
	if remote != netip.AddrPortFrom(remoteAt.Addr(), Port) ||
		local != netip.AddrPortFrom(localAt.Addr(), 0) {
		p.t.Errorf("a socket from %v to %v", local, remote)
	}
	return net.DialUDP("udp4", net.UDPAddrFromAddrPort(local), p.c.LocalAddr().(*net.UDPAddr))
}

var (
	localAt  = netip.MustParseAddrPort("127.0.0.1:40000")
	remoteAt = netip.MustParseAddrPort("127.0.0.1:7174")
)

func (m *Mapper) to(p *peer) netip.AddrPort {
	return m.Query(context.Background(), localAt, remoteAt, p.dial)
}

// says returns a reply function for newPeer. It answers a request with a message of type t, which f modifies.
func says(t Type, f func(*Message)) func(q Message) [][]byte {
	return func(q Message) [][]byte {
		q.Type = t
		f(&q)
		return [][]byte{q.Append(nil)}
	}
}

func mapped(q *Message) { q.Accepting = netip.AddrPortFrom(q.Accepting.Addr(), 9999) }

func TestMap(t *testing.T) {
	var m Mapper
	p := newPeer(t, says(Accept, mapped))
	if at := m.to(p); at != netip.MustParseAddrPort("127.0.0.1:9999") {
		t.Errorf("the listener is at %v", at)
	}
	q, a := <-p.asked, <-p.acks
	if q.Accepting != remoteAt || q.Connecting != localAt || q.Mapped != localAt {
		t.Errorf("asked %+v", q)
	}
	if a.Type != Ack || a.Handle != q.Handle || a.Accepting.Port() != 9999 ||
		a.Connecting != localAt {
		t.Errorf("acknowledged %+v", a)
	}
	if c := (Counters{RequestsOut: 1, AcceptsIn: 1}); m.Counters() != c {
		t.Errorf("%+v", m.Counters())
	}
}

// TestMapReject: after a reject, a connection uses the original port, as without a port mapper.
func TestMapReject(t *testing.T) {
	var m Mapper
	p := newPeer(t, says(Reject, func(*Message) {}))
	for range 2 { // a reject does not count as silence
		if at := m.to(p); at != remoteAt {
			t.Errorf("the listener is at %v", at)
		}
	}
	if c := (Counters{RequestsOut: 2, RejectsIn: 2}); m.Counters() != c {
		t.Errorf("%+v", m.Counters())
	}
}

// TestMapLies sends forged replies, which do not match the request, before the real one. Only the real one may count.
func TestMapLies(t *testing.T) {
	lies := []func(*Message){
		func(q *Message) { q.Handle++ },
		func(q *Message) { q.Accepting = netip.MustParseAddrPort("127.0.0.2:9999") },
		func(q *Message) { q.Accepting = netip.AddrPortFrom(q.Accepting.Addr(), 0) },
		func(q *Message) { q.Connecting = netip.MustParseAddrPort("127.0.0.1:1") },
		func(q *Message) { q.Type = Ack },
		func(q *Message) { q.Type, q.Mapped = Request, q.Connecting },
	}
	p := newPeer(t, func(q Message) (list [][]byte) {
		for _, f := range lies {
			a := q
			a.Type = Accept
			mapped(&a)
			f(&a)
			list = append(list, a.Append(nil), a.Append(nil)[:ReplyLen-1])
		}
		return append(list, says(Accept, func(q *Message) {
			q.Accepting = netip.AddrPortFrom(q.Accepting.Addr(), 1111)
		})(q)...)
	})
	var m Mapper
	if at := m.to(p); at.Port() != 1111 {
		t.Errorf("the listener is at %v", at)
	}
}

// TestMapSilence: a silent port mapper is queried again, then the connection proceeds, and the next one skips the
// query. The same holds if the peer's kernel refuses the port.
func TestMapSilence(t *testing.T) {
	p := newPeer(t, func(Message) [][]byte { return nil })
	var m Mapper
	for range 2 {
		if at := m.to(p); at != remoteAt {
			t.Errorf("the listener is at %v", at)
		}
	}
	c := Counters{RequestsOut: uint64(len(waits)), Unanswered: 1, Unasked: 1}
	if m.Counters() != c {
		t.Errorf("%+v", m.Counters())
	}
	if m.isSilent(remoteAt.Addr(), time.Now().Add(silence)) {
		t.Error("the port mapper is never asked again")
	}
	p = newPeer(t, nil)
	p.c.Close()
	m = Mapper{}
	if at := m.to(p); at != remoteAt {
		t.Errorf("the listener is at %v", at)
	}
	if c := m.Counters(); c.Unanswered != 1 || c.RequestsOut > 2 {
		t.Errorf("at a port that refuses: %+v", c)
	}
	for i := range 2 * maxSilent {
		m.remember(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), time.Now())
		if len(m.silent) > maxSilent {
			t.Fatalf("%d silent peers", len(m.silent))
		}
	}
}

// TestMapCanceled: a program cancels while its connection waits for a reply. The query must return the original
// address, and must not remember the port mapper as silent.
func TestMapCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	p := newPeer(t, func(Message) [][]byte { cancel(); return nil })
	var m Mapper
	if at := m.Query(ctx, localAt, remoteAt, p.dial); at != remoteAt {
		t.Errorf("the listener is at %v", at)
	}
	if c := m.Counters(); c.Unanswered != 0 || m.isSilent(remoteAt.Addr(), time.Now()) {
		t.Errorf("%+v", c)
	}
}
