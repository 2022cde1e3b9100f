package stack

import (
	"slices"
	"testing"

	"xwarp/engine/budget"
	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// ends is an Upper that counts the ends of connections.
type ends struct {
	endless
	n *int
}

func (u *ends) Event(ev tcp.Events, _ tick.Time) {
	if ev&tcp.Ended != 0 {
		*u.n++
	}
}

// TestSilentConnections: 20,000 connections of one network that stay silent after their handshake must leave room. A
// legitimate peer elsewhere is served at once, whether the listener is full or not, and no state of them remains after
// they end.
func TestSilentConnections(t *testing.T) {
	for _, startup := range []int{0, 500} {
		made, ended := 0, 0
		peers := budget.NewPeers(nil)
		h := newHost(t, func(cfg *Config) { cfg.Peers = peers })
		l := h.listen(ListenConfig{Startup: startup, Accept: func(*tcp.Tuple) (Upper, error) {
			made++
			return &ends{endless{idle: true}, &ended}, nil
		}})
		for i := range 20000 {
			h.connect(tuple(v4(198, 51, 100, byte(i)), uint16(1000+i/256)))
		}
		most := budget.DefaultNetwork.Startup
		if startup > 0 {
			most = startup
		}
		if n := h.s.Len(); n != most || l.conns != n || l.young.Len() != n || ended != made-n {
			t.Errorf(
				"%d connections, %d of the listener, %d unconfirmed, want %d; %d made, %d ended", n,
				l.conns, l.young.Len(), most, made, ended)
		}
		at := tuple(v4(203, 0, 113, 9), 1000)
		_, out := h.connect(at)
		e := h.s.conns[tcp.Tuple{Local: at.Remote, Remote: at.Local, LocalPort: 7,
			RemotePort: 1000}]
		if e == nil || slices.ContainsFunc(out, func(f []byte) bool {
			return [4]byte(f[ip.EthernetLen+16:]) == [4]byte{203, 0, 113, 9} &&
				flagsOf(f).Has(wire.RST)
		}) {
			t.Fatal("a legitimate connection is not established at once")
		}
		e.Confirm()
		for i := range 1000 {
			h.connect(tuple(v4(198, 51, 100, byte(i)), uint16(5000+i/256)))
		}
		if h.s.Find(&e.tuple) != e {
			t.Error("a confirmed connection was dropped")
		}
		list, _ := peers.State()
		i := slices.IndexFunc(list, func(s budget.PeerState) bool {
			return s.Prefix.String() == "203.0.113.9/32"
		})
		if i < 0 || list[i].Established != 1 || list[i].Startup != 0 {
			t.Errorf("the honest peer's account: %+v", list)
		}
		for _, e := range h.s.byAge(func(*Endpoint) bool { return true }) {
			e.Abort(h.now)
		}
		h.settle()
		if list, _ := peers.State(); slices.ContainsFunc(list, func(s budget.PeerState) bool {
			return s.HalfOpen+s.Startup+s.Established != 0
		}) || l.conns != 0 {
			t.Errorf("when all are gone: %d of the listener, %+v", l.conns, list)
		}
	}
}

// TestSilentPeer: one address may have only its share of the unconfirmed connections; its further connections are
// refused.
func TestSilentPeer(t *testing.T) {
	h := newHost(t, nil)
	l := h.listen(ListenConfig{})
	for port := range uint16(3000) {
		h.connect(tuple(v4(198, 51, 100, 9), 1000+port))
	}
	if n := h.s.Len(); n != budget.DefaultPeer.Startup || h.s.Stats().Refused != uint64(3000-n) ||
		l.both[0].Pending() != 0 {
		t.Errorf("%d connections, %d refused", n, h.s.Stats().Refused)
	}
}

// TestHalfOpenShare: SYNs of one network cannot fill the backlog. Those beyond its share get cookies, and its share is
// released with the listener.
func TestHalfOpenShare(t *testing.T) {
	peers := budget.NewPeers(nil)
	h := newHost(t, func(cfg *Config) { cfg.Peers = peers })
	l := h.listen(ListenConfig{})
	for i := range 2000 {
		h.give(frame(macs[1], tuple(v4(198, 51, 100, byte(i)), uint16(1000+i)),
			wire.Header{Seq: 1, Flags: wire.SYN}))
	}
	share := budget.DefaultNetwork.HalfOpen
	if n := l.both[0].Counters(); l.both[0].Pending() != share ||
		n.CookiesSent != uint64(2000-share) ||
		n.Overflows != 0 {
		t.Errorf("%d half open, want %d; %+v", l.both[0].Pending(), share, n)
	}
	h.give(frame(macs[1], tuple(v4(203, 0, 113, 9), 1000), wire.Header{Seq: 1, Flags: wire.SYN}))
	if l.both[0].Pending() != share+1 {
		t.Error("another network gets no place in the backlog")
	}
	h.s.Unlisten(ip.AddrFrom4([4]byte{}), 7)
	if list, _ := peers.State(); len(list) != 0 {
		t.Errorf("the listener disappeared: %+v", list)
	}
}

// TestListenerShare: a listener refuses connections beyond ListenConfig.Connections.
func TestListenerShare(t *testing.T) {
	h := newHost(t, nil)
	l := h.listen(ListenConfig{Connections: 3, Startup: -1})
	for port := range uint16(5) {
		h.connect(tuple(v4(198, 51, 100, 9), 1000+port))
	}
	if st := h.s.Stats(); h.s.Len() != 3 || st.Refused != 2 ||
		l.young.Len() != 0 {
		t.Errorf("%d connections, %+v", h.s.Len(), st)
	}
}

// TestDeadPeer: by default keepalive ends the connection of a peer that has disappeared silently. With keepalive off
// the connection stays.
func TestDeadPeer(t *testing.T) {
	for idle, want := range map[tick.Duration]int{0: 0, -1: 1} {
		h := newHost(t, nil)
		h.listen(ListenConfig{Conn: tcp.Config{KeepaliveIdle: idle}})
		h.connect(tuple(v4(198, 51, 100, 9), 1000))
		for range 24 {
			h.now = h.now.Add(60 * tick.Minute)
			h.give(nil)
		}
		if n := h.s.Len(); n != want {
			t.Errorf("idle %d: %d connections after a day of silence, want %d", idle, n, want)
		}
	}
}

// TestTimeWaitIsNoConnection: a connection in TIME-WAIT counts towards the limits of neither its peer nor its listener.
func TestTimeWaitIsNoConnection(t *testing.T) {
	p := newPair(t, 0, false, tcp.Config{}, [2]Upper{&endless{idle: true}, &endless{idle: true}})
	e := p.s[1].conns[tcp.Tuple{Local: pairAddr(false, 1), Remote: pairAddr(false, 0), LocalPort: 7,
		RemotePort: 1024}]
	e.Shutdown(p.now)
	p.turn()
	p.turn()
	p.e.Shutdown(p.now)
	for range 4 {
		p.turn()
	}
	if e.conn.State() != tcp.TimeWait || e.peer != nil || e.from != nil {
		t.Errorf("%v, in the accounts: %v", e.conn.State(), e.peer != nil)
	}
}
