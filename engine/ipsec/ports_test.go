package ipsec

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"xwarp/engine/esp"
	"xwarp/engine/host/xfrm"
	"xwarp/engine/stack"
	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
)

// portPolicies gives the hosts policies for some ports of the second host, with one ReqID.
func (n *network) portPolicies(reqID uint32, ports ...uint16) {
	for i, h := range n.h {
		for _, out := range []bool{true, false} {
			for _, port := range ports {
				p := &xfrm.Policy{Out: out, Local: netip.PrefixFrom(addr(i), 32),
					Remote: netip.PrefixFrom(addr(1-i), 32), ReqID: reqID,
					Src: netip.IPv4Unspecified(), Dst: netip.IPv4Unspecified()}
				at := &p.RemotePort
				if i == 1 {
					at = &p.LocalPort
				}
				*at = xfrm.Ports{Port: port, Mask: 0xffff}
				h.state.Policies = append(h.state.Policies, p)
			}
		}
	}
}

// install gives the hosts SAs with a ReqID.
func (n *network) install(reqID uint32) {
	for i, h := range n.h {
		n.spi++
		key := make([]byte, 20)
		for j := range key {
			key[j] = byte(rand.Uint32())
		}
		sa := xfrm.SA{SA: esp.SA{SPI: n.spi, Keymat: key, ESN: true}, Src: addr(i),
			Dst: addr(1 - i), Window: 64, ReqID: reqID}
		out, in := sa, sa
		h.state.Outbound = append(h.state.Outbound, &out)
		n.h[1-i].state.Inbound = append(n.h[1-i].state.Inbound, &in)
	}
	for _, h := range n.h {
		state := h.state
		h.m.Update(&state)
	}
}

// TestPortsOfPolicies: an SA carries only the connections of its policies, in both directions. Connections of another
// policy request their own SAs, and those without a policy wait.
func TestPortsOfPolicies(t *testing.T) {
	n := newNetwork(t, everything)
	for _, h := range n.h {
		h.state.Policies = nil
	}
	n.portPolicies(1, 7, 8)
	n.portPolicies(2, 9)
	n.install(1)
	conns := map[uint16]*stack.Endpoint{}
	dial := func(port uint16) {
		cfg := tcp.Config{RcvSpace: 1 << 20, RcvSpaceMax: 1 << 20}
		to := ip.Addr(addr(1).As16())
		l := &stack.ListenConfig{Conn: cfg, Accept: func(*tcp.Tuple) (stack.Upper, error) {
			return &stream{}, nil
		}}
		if _, err := n.h[1].s.Listen(to, port, l, n.now); err != nil {
			t.Fatal(err)
		}
		e, err := n.h[0].s.Connect(tcp.Tuple{Local: ip.Addr(addr(0).As16()), Remote: to,
			LocalPort: 1024, RemotePort: port}, &cfg, &stream{sends: true}, n.now)
		if err != nil {
			t.Fatal(err)
		}
		conns[port] = e
	}
	check := func(established ...uint16) {
		t.Helper()
		n.turns(200)
		for port, e := range conns {
			want := tcp.SynSent
			for _, p := range established {
				if p == port {
					want = tcp.Established
				}
			}
			if e.Conn().State() != want {
				t.Errorf("port %d is %v, want %v", port, e.Conn().State(), want)
			}
		}
		n.drops(t)
	}
	for _, port := range []uint16{7, 8, 9, 10} {
		dial(port)
	}
	check(7, 8)
	if n.h[0].acquired != 1 { // for port 9; port 10 has no policy for a request
		t.Errorf("%d requests, want 1", n.h[0].acquired)
	}
	n.install(2)
	for range 100 { // SYNs are retransmitted
		n.now = n.now.Add(100_000_000)
		n.turn()
	}
	check(7, 8, 9)

	// Packets that arrive through another policy's SA are dropped.
	a := n.h[0]
	seven, nine := conns[7].Flow(), conns[9].Flow()
	if seven == nine || conns[8].Flow() != seven {
		t.Fatal("policies share a flow")
	}
	before := n.h[1].s.Stats().DropPolicy
	a.s.SetOut(seven, nine.Out())
	n.turns(20)
	if n.h[1].s.Stats().DropPolicy == before {
		t.Error("segments by an SA for another port were accepted")
	}
}

// TestPoliciesOfAnotherGroup: a connection older than the policies for its ports switches to the SAs of these policies.
// Without a policy it keeps its SAs. When these are deleted, the Manager reports the missing policy, and the connection
// ends by the user timeout.
//
//req:rfc5044-9.4-1
func TestPoliciesOfAnotherGroup(t *testing.T) {
	n := newNetwork(t, everything)
	n.ike = true
	e, to := n.connect()
	n.turns(50)
	update := func(reqID uint32, ports ...uint16) {
		for _, h := range n.h {
			h.state.Policies = nil
		}
		n.portPolicies(reqID, ports...)
		for _, h := range n.h {
			state := h.state
			h.m.Update(&state)
		}
	}
	check := func(what string) {
		t.Helper()
		before := to.received
		for range 100 {
			n.now = n.now.Add(100 * tick.Millisecond)
			n.turn()
		}
		if to.received == before || e.Conn().State() != tcp.Established || n.clear > 0 {
			t.Fatalf("%s: %d bytes arrive, %v, %d frames in the clear", what, to.received-before,
				e.Conn().State(), n.clear)
		}
		if spi := e.Flow().Out().SPI(); spi != n.spi-1 {
			t.Errorf("%s: sends with SPI %#x, the newest is %#x", what, spi, n.spi-1)
		}
	}
	check("policies for all ports")

	n.ike = false // from here on the test acts as the IKE daemon
	for _, h := range n.h {
		h.state.Outbound, h.state.Inbound = nil, nil
	}
	update(5, 7)
	n.install(5)
	check("policies for the port")

	update(5, 3, 7)
	check("another least port of the group")

	var failed error
	n.h[0].m.cfg.Failed = func(err error) { failed = err }
	update(6, 9)
	check("no policy")
	for _, h := range n.h {
		h.state.Outbound = nil
	}
	update(6, 9)
	n.turns(20)
	if !errors.Is(failed, errNoPolicy) || len(n.h[0].m.Waiting()) != 1 {
		t.Errorf("%v", failed)
	}
	before := to.received
	for range 1000 {
		n.now = n.now.Add(tick.Second)
		n.turn()
	}
	err := e.Err()
	if to.received != before || !errors.Is(err, tcp.CauseTimeout) ||
		!strings.Contains(err.Error(), "wait for an SA") || n.clear > 0 {
		t.Errorf("%d bytes without SAs, %v, %d frames in the clear", to.received-before, err,
			n.clear)
	}
}

// TestConnectWithoutSAs: a connection that never gets an SA ends by the user timeout, with that reason.
func TestConnectWithoutSAs(t *testing.T) {
	n := newNetwork(t, everything)
	e, _ := n.connect()
	begun := n.now
	for e.Conn().State() == tcp.SynSent && n.now.Sub(begun) < 10*tick.Minute {
		n.now = n.now.Add(tick.Second)
		n.turn()
	}
	d := n.now.Sub(begun)
	if err := e.Err(); !errors.Is(err, tcp.CauseTimeout) || d < 5*tick.Minute ||
		d > 6*tick.Minute || !strings.Contains(err.Error(), "wait for an SA") || n.clear > 0 {
		t.Errorf("after %d s: %v", d/tick.Second, err)
	}
}
