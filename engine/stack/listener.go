package stack

import (
	"cmp"
	"container/list"
	"errors"
	"fmt"
	"net/netip"

	"xwarp/engine/tally"
	"xwarp/tcp"
	"xwarp/tcp/checksum"
	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
)

// Errors of Connect, of Listen, and of accepting a handshake.
var (
	ErrTooMany   = errors.New("too many connections on this worker")
	ErrListening = errors.New("address and port already in use by a listener")
	// ErrNoHandshake is returned for a handshake that the listener no longer has.
	ErrNoHandshake = errors.New("handshake no longer known")
)

type listenKey struct {
	addr ip.Addr
	port uint16
}

// ListenConfig configures a listener.
type ListenConfig struct {
	Conn    tcp.Config
	TOS     uint8 // DSCP, in the upper six bits, of the connections and of answers
	Backlog int   // maximum number of half-open connections
	// Connections is the maximum number of connections [MaxAccepted]. Startup is the maximum number of them not
	// confirmed by Endpoint.Confirm [MaxStartup]; negative: no confirmation needed.
	Connections int
	Startup     int
	Cookies     tcp.CookieMode
	// Accept creates the upper layer of a connection whose handshake is complete. After an error the stack resets the
	// connection.
	Accept func(t *tcp.Tuple) (Upper, error)
	// Refused, if set, is called after a connection was reset because of err, which Accept returned or which has a
	// local cause.
	Refused func(t *tcp.Tuple, err error)
	// Accepted, if set, is called with the Endpoint of each accepted connection.
	Accepted func(e *Endpoint)
}

// Listener accepts connections to a local port.
type Listener struct {
	stack *Stack
	key   listenKey
	cfg   ListenConfig
	both  [2]tcp.Listener // for IPv4 and IPv6
	conns int
	young list.List // unconfirmed *Endpoint, oldest first
}

// gate is a tcp.Gate that limits half-open connections of peers.
type gate struct{ *Stack }

func (g gate) Admit(t *tcp.Tuple, now tick.Time) bool {
	return g.cfg.Peers.BeginHalfOpen(toNetip(t.Remote), now)
}
func (g gate) Release(t *tcp.Tuple, now tick.Time) {
	g.cfg.Peers.EndHalfOpen(toNetip(t.Remote), now)
}

func toNetip(a ip.Addr) netip.Addr { return netip.AddrFrom16(a).Unmap() }

// Listen accepts connections to addr, or to every address of its family if addr is unspecified. It fails with
// ErrListening if a listener has the same addr and port.
func (s *Stack) Listen(addr ip.Addr, port uint16, cfg *ListenConfig, now tick.Time) (*Listener,
	error) {
	k := listenKey{addr, port}
	if s.listeners[k] != nil {
		return nil, fmt.Errorf("%v port %d: %w", addr, port, ErrListening)
	}
	l := &Listener{stack: s, key: k, cfg: *cfg}
	l.cfg.Connections = cmp.Or(l.cfg.Connections, MaxAccepted)
	l.cfg.Startup = cmp.Or(l.cfg.Startup, MaxStartup)
	for i, any := range [...]ip.Addr{ip.AddrFrom4([4]byte{}), {}} {
		c := tcp.ListenConfig{Conn: s.connConfig(&cfg.Conn, &tcp.Tuple{Remote: any}),
			Key: s.cfg.Secret, Backlog: cfg.Backlog, Cookies: cfg.Cookies, Gate: gate{s}}
		l.both[i].Init(&c, now)
	}
	s.listeners[k] = l
	s.listening = append(s.listening, l)
	return l, nil
}

// of returns the tcp.Listener for t.Remote.
func (l *Listener) of(t *tcp.Tuple) *tcp.Listener {
	if t.Remote.Is4() {
		return &l.both[0]
	}
	return &l.both[1]
}

// Unlisten stops accepting. Half-open connections are forgotten; established ones stay.
func (s *Stack) Unlisten(addr ip.Addr, port uint16) {
	k := listenKey{addr, port}
	for i, l := range s.listening {
		if l.key == k {
			l.close(s.now)
			s.listened = tally.Join(s.listened, l.counters())
			s.listening = append(s.listening[:i], s.listening[i+1:]...)
			break
		}
	}
	delete(s.listeners, k)
}

// listenerFor returns the listener for a local address and port: the exact one, or the one for all addresses.
func (s *Stack) listenerFor(t *tcp.Tuple) *Listener {
	if l := s.listeners[listenKey{t.Local, t.LocalPort}]; l != nil {
		return l
	}
	var any ip.Addr
	if t.Local.Is4() {
		any = ip.AddrFrom4([4]byte{})
	}
	return s.listeners[listenKey{any, t.LocalPort}]
}

// input processes a segment without a connection.
func (l *Listener) input(t *tcp.Tuple, pieces [][]byte, now tick.Time) {
	s := l.stack
	switch l.of(t).Input(t, &s.seg, now, &s.out) {
	case tcp.Reply:
		s.answer(t, &s.out, now)
	case tcp.Ready:
		if e, err := l.accept(t, now); err != nil {
			l.refuse(t, err, now)
		} else {
			e.receive(&s.seg, pieces, checksum.Known{}, now)
		}
	}
}

// accept creates the connection whose handshake s.seg completed. The upper layer is created last, so that it need not
// be notified of earlier errors. Even after an error the tcp.Listener no longer has the handshake.
func (l *Listener) accept(t *tcp.Tuple, now tick.Time) (*Endpoint, error) {
	s := l.stack
	e, err := l.admit(t, now)
	if err != nil {
		l.of(t).Refuse(t, now)
		return nil, err
	}
	s.setCurrent(e)
	if !l.of(t).Accept(t, &s.seg, &e.conn, now) {
		s.forget(e, now)
		return nil, ErrNoHandshake
	}
	if f := e.flow; f != nil { // the listener's MTUs do not account for the protection of this peer
		mtu := s.cfg.MTU
		for _, known := range []int{l.cfg.Conn.MTU, l.cfg.Conn.PathMTU} {
			if known != 0 {
				mtu = min(mtu, known)
			}
		}
		v6 := !t.Remote.Is4()
		e.conn.LimitMTU(f.innerMTU(mtu, v6), f.Shape.MaxOverhead(v6), now)
	}
	e.limitSegments(now)
	upper, err := l.cfg.Accept(t)
	if err != nil {
		s.forget(e, now)
		return nil, err
	}
	e.use(upper)
	e.setHop(s.hopTo(t, now), now)
	if l.cfg.Accepted != nil {
		l.cfg.Accepted(e)
	}
	return e, nil
}

// admit creates a connection without an upper layer, if the limits of the listener, its peer and the stack allow it.
func (l *Listener) admit(t *tcp.Tuple, now tick.Time) (*Endpoint, error) {
	s := l.stack
	if l.conns >= l.cfg.Connections {
		return nil, fmt.Errorf("%w: %d of this listener", ErrTooMany, l.conns)
	}
	charge, err := s.cfg.Peers.Begin(toNetip(t.Remote), now)
	if err != nil {
		return nil, err
	}
	e, err := s.newEndpoint(*t)
	if err != nil {
		charge.End(now)
		return nil, err
	}
	e.SetTOS(l.cfg.TOS)
	e.from, e.peer = l, charge
	l.conns++
	if l.cfg.Startup < 0 {
		charge.Established()
		return e, nil
	}
	if l.young.Len() >= l.cfg.Startup {
		eldest := l.young.Front().Value.(*Endpoint)
		eldest.grow()
		eldest.Abort(now)
		s.stats.Evicted++
	}
	e.young = l.young.PushBack(e)
	return e, nil
}

// Confirm reports that the upper layer has a use for e: e no longer counts against ListenConfig.Startup, and counts as
// established for its peer. It has no effect on a connection that this host opened.
func (e *Endpoint) Confirm() {
	e.grow()
	e.peer.Established()
}

// grow removes e from the unconfirmed connections of its listener.
func (e *Endpoint) grow() {
	if e.young != nil {
		e.from.young.Remove(e.young)
		e.young = nil
	}
}

// leave subtracts e from the accounts of its listener and its peer.
func (e *Endpoint) leave(now tick.Time) {
	e.grow()
	if e.from != nil {
		e.from.conns--
		e.from = nil
	}
	e.peer.End(now)
	e.peer = nil
}

// close forgets the half-open connections.
func (l *Listener) close(now tick.Time) {
	for i := range l.both {
		l.both[i].Close(now)
	}
}

// refuse resets a connection that accept could not create.
func (l *Listener) refuse(t *tcp.Tuple, err error, now tick.Time) {
	s := l.stack
	s.stats.Refused++
	if tcp.ResetReply(&s.seg, &s.out) {
		s.answer(t, &s.out, now)
	}
	if l.cfg.Refused != nil {
		l.cfg.Refused(t, err)
	}
}

// expire retransmits the SYN-ACKs that are due, and reports whether there were any.
func (l *Listener) expire(now tick.Time) bool {
	worked := false
	for i := range l.both {
		tl := &l.both[i]
		if tl.Deadline() > now {
			continue
		}
		var t tcp.Tuple
		for tl.Poll(now, &t, &l.stack.out) {
			l.stack.answer(&t, &l.stack.out, now)
			worked = true
		}
	}
	return worked
}

func (l *Listener) deadline() tick.Time { return min(l.both[0].Deadline(), l.both[1].Deadline()) }
