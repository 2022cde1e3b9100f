package stack

import (
	"fmt"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"xwarp/engine/esp"
	"xwarp/tcp"
	"xwarp/tcp/wire"
)

// class is what gopacket finds in the IP header of a frame.
type class struct {
	dscp, ecn, hops uint8
	tcp             *layers.TCP // nil: not TCP
}

func classOf(t *testing.T, frame []byte) (c class) {
	t.Helper()
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	var tos uint8
	switch h := p.NetworkLayer().(type) {
	case *layers.IPv4:
		tos, c.hops = h.TOS, h.TTL
		if wire.Finish(wire.Sum(h.Contents, 0)) != 0 {
			t.Fatalf("checksum of %v", h)
		}
	case *layers.IPv6:
		tos, c.hops = h.TrafficClass, h.HopLimit
	}
	c.tcp, _ = p.TransportLayer().(*layers.TCP)
	c.dscp, c.ecn = tos>>2, tos&3
	return c
}

// TestDSCP: every packet has the class of its connection, of its listener or of the stack, and the hop limit of the
// stack: SYN, SYN-ACK, data, acknowledgements, retransmissions and RST. The ECN bits stay those of RFC 3168.
//
//req:rfc9293-MUST-48 rfc9293-SHLD-22 rfc9293-MUST-49
func TestDSCP(t *testing.T) {
	const own, listens, stack0, stack1, changed = 46, 10, 20, 18, 63
	for _, v6 := range []bool{false, true} {
		for _, vlan := range []uint16{0, 7} {
			t.Run(fmt.Sprintf("IPv6 %v, VLAN %d", v6, vlan), func(t *testing.T) {
				from, to := &checked{t: t}, &checked{t: t}
				to.idle = true
				want, seen, ect, drop := [2]uint8{own, listens}, map[string]int{}, 0, 0
				p := &pair{}
				watch := func(i int, frame []byte) bool {
					c := classOf(t, frame)
					kind := fmt.Sprintf("%d SYN %v ACK %v FIN %v RST %v data %v", i,
						c.tcp.SYN, c.tcp.ACK, c.tcp.FIN, c.tcp.RST, len(c.tcp.Payload) > 0)
					seen[kind]++
					if c.dscp != want[i] {
						t.Fatalf("%s: DSCP %d, want %d", kind, c.dscp, want[i])
					}
					if wants := [2]uint8{9, DefaultHopLimit}[i]; c.hops != wants {
						t.Fatalf("%s: hop limit %d, want %d", kind, c.hops, wants)
					}
					if c.ecn == uint8(tcp.ECT0) {
						ect++
					}
					drop++
					return drop%29 == 0
				}
				*p = *newTOSPair(t, vlan, v6, tcp.Config{ECN: tcp.ECNClassic, RcvSpace: 1 << 20,
					RcvSpaceMax: 1 << 20},
					[2]Upper{from, to}, own, listens, [2]uint8{stack0, stack1}, watch)
				for range 300 {
					p.turn()
				}
				if to.kept < 1<<16 || p.e.conn.AllCounters().Loss.RetransmittedBytes == 0 ||
					ect == 0 {
					t.Errorf("%d bytes, %d retransmissions, %d ECT", to.kept,
						p.e.conn.AllCounters().Loss.RetransmittedBytes, ect)
				}
				p.e.SetTOS(changed<<2 | 3)
				want[0] = changed
				for range 20 {
					p.turn()
				}
				p.e.Abort(p.now)
				p.turn()
				for _, kind := range []string{"0 SYN true ACK false", "1 SYN true ACK true",
					"0 SYN false ACK true FIN false RST false data true",
					"1 SYN false ACK true FIN false RST false data false",
					"0 SYN false ACK true FIN false RST true"} {
					n := 0
					for k, v := range seen {
						if len(k) >= len(kind) && k[:len(kind)] == kind {
							n += v
						}
					}
					if n == 0 {
						t.Errorf("no segment %q in %v", kind, seen)
					}
				}
				// Answers to segments without a connection: of the listener at port 7, else of the stack.
				for port, dscp := range map[uint16]uint8{7: listens, 8: stack1} {
					p.lose = func(int, []byte) bool { return false }
					s := tcp.Tuple{Local: pairAddr(v6, 0), Remote: pairAddr(v6, 1), LocalPort: 4000,
						RemotePort: port}
					p.k[1].Inject(segmentFrame(vlan, s, wire.ACK))
					p.now = p.now.Add(1000)
					p.s[1].Step(p.now)
					f, ok := p.k[1].Take(nil)
					if !ok {
						t.Fatalf("port %d: no answer", port)
					}
					if c := classOf(t, f); c.dscp != dscp || !c.tcp.RST {
						t.Errorf("RST of port %d: DSCP %d, want %d", port, c.dscp, dscp)
					}
				}
			})
		}
	}
}

// newTOSPair is newPairWith with DSCPs: own is the connection's, listens the listener's, and stacks are the stacks'.
func newTOSPair(t *testing.T, vlan uint16, v6 bool, cfg tcp.Config, upper [2]Upper, own,
	listens uint8,
	stacks [2]uint8, watch func(int, []byte) bool) *pair {
	t.Helper()
	old := [2]Upper{&checked{t: t}, &checked{t: t}}
	p := newPairWith(t, v6, cfg, old, func(i int, c *Config) {
		c.VLAN, c.TOS, c.HopLimit = vlan, stacks[i]<<2, [2]uint8{9, 0}[i]
	})
	p.e.Abort(p.now) // its DSCP is the stack's; another connection follows
	for range 8 {
		p.turn()
	}
	p.s[1].Unlisten(pairAddr(v6, 1), 7)
	listen := &ListenConfig{Conn: cfg, TOS: listens << 2, Accept: func(*tcp.Tuple) (Upper, error) {
		return upper[1], nil
	}}
	if _, err := p.s[1].Listen(pairAddr(v6, 1), 7, listen, p.now); err != nil {
		t.Fatal(err)
	}
	tuple := tcp.Tuple{Local: pairAddr(v6, 0), Remote: pairAddr(v6, 1), LocalPort: 1025,
		RemotePort: 7}
	var err error
	if p.e, err = p.s[0].Connect(tuple, &cfg, upper[0], p.now); err != nil {
		t.Fatal(err)
	}
	p.e.SetTOS(own << 2)
	p.lose = watch
	return p
}

// segmentFrame returns a segment to the second stack of a pair.
func segmentFrame(vlan uint16, s tcp.Tuple, flags wire.Flags) []byte {
	var f template
	f.init(&Config{MAC: macs[0], VLAN: vlan, HopLimit: 1}, &s)
	b := make([]byte, 256)
	o := tcp.Out{Header: wire.Header{SrcPort: s.LocalPort, DstPort: s.RemotePort, Seq: 1, Ack: 1,
		Flags: flags}}
	at := f.build(b, &o, macs[1])
	return b[:f.finish(b, at, &o, 0)]
}

// TestDSCPOfESP: the outer header of ESP has the DSCP of the packet (RFC 4301, 5.1.2.1) unless the SA of a tunnel hides
// it.
func TestDSCPOfESP(t *testing.T) {
	for _, c := range shapes {
		for _, hide := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/inner IPv6 %v/outer IPv6 %v/hide %v", c.shape.Mode, c.v6,
				c.shape.OuterV6, hide),
				func(t *testing.T) {
					from, to := &checked{t: t}, &checked{t: t}
					to.idle = true
					x := newESPPair(t, c.v6, c.shape, [2]Upper{from, to}, true,
						func(i int, cfg *Config) { cfg.TOS = 46 << 2 })
					x.policy[0].flow.HideDSCP, x.policy[1].flow.HideDSCP = hide, hide
					want := uint8(46)
					if hide && c.shape.Mode == esp.Tunnel {
						want = 0
					}
					frames := 0
					x.lose = func(i int, frame []byte) bool {
						x.inspect(i, frame)
						frames++
						wants := want
						if i == 1 && want != 0 {
							wants = 0 // that of the listener
						}
						if got := classOf(t, frame); got.dscp != wants {
							t.Fatalf("stack %d: DSCP %d, want %d", i, got.dscp, wants)
						}
						return false
					}
					for range 20 {
						x.turn()
					}
					if frames == 0 || to.kept == 0 {
						t.Errorf("%d frames, %d bytes", frames, to.kept)
					}
				})
		}
	}
}
