package ipsec

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"xwarp/engine/esp"
	"xwarp/engine/host/xfrm"
	"xwarp/engine/stack"
	"xwarp/tcp"
	"xwarp/tcp/ip"
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

// TestPortsOfPolicies: an SA carries the connections of its policies alone, in both directions. Those of another policy
// ask for their own, and those of no policy wait.
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
	if n.h[0].acquired != 1 { // for port 9; port 10 has no policy to ask with
		t.Errorf("%d requests, want 1", n.h[0].acquired)
	}
	n.install(2)
	for range 100 { // SYNs come again
		n.now = n.now.Add(100_000_000)
		n.turn()
	}
	check(7, 8, 9)

	// What arrives by another policy's SA is dropped.
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
