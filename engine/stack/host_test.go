package stack

import (
	"encoding/binary"
	"testing"

	"xwarp/ring"
	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// host is one stack on a fake kernel.
type host struct {
	t   *testing.T
	s   *Stack
	r   *resolver // all hops are macs[1]
	k   *ring.FakeKernel
	now tick.Time
}

func newHost(t *testing.T, change func(*Config)) *host {
	t.Helper()
	h := &host{t: t, r: newResolver(macs[1]), k: ring.NewFakeKernel(ring.FakeConfig{Budget: 256}),
		now: tick.Time(tick.Second)}
	sock, err := ring.OpenFake(ring.Config{RxFrames: 256, TxSlots: 256, TxSlot: ring.SlotFor(1522)},
		h.k)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Port: sock, MAC: macs[0], MTU: 1500, Resolver: h.r}
	if change != nil {
		change(&cfg)
	}
	if h.s, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	h.r.s = h.s
	return h
}

// listen accepts connections to port 7 of every address.
func (h *host) listen(l ListenConfig) *Listener {
	h.t.Helper()
	if l.Accept == nil {
		l.Accept = func(*tcp.Tuple) (Upper, error) { return &endless{idle: true}, nil }
	}
	var got *Listener
	for _, any := range []ip.Addr{{}, ip.AddrFrom4([4]byte{})} {
		var err error
		if got, err = h.s.Listen(any, 7, &l, h.now); err != nil {
			h.t.Fatal(err)
		}
	}
	return got
}

// give delivers f, unless it is nil, runs three turns, and returns the frames that leave.
func (h *host) give(f []byte) (out [][]byte) {
	if f != nil {
		h.k.Inject(f)
	}
	for range 3 {
		h.now = h.now.Add(20 * tick.Microsecond)
		h.s.Step(h.now)
		for b, ok := h.k.Take(nil); ok; b, ok = h.k.Take(nil) {
			out = append(out, b)
		}
	}
	return out
}

// frame returns a segment in an IP packet in an Ethernet frame from mac, with the given tags.
func frame(mac [6]byte, t tcp.Tuple, h wire.Header, tags ...ip.VLANTag) []byte {
	e := ip.Ethernet{Dst: macs[0], Src: mac, Type: ip.TypeIPv4, NVLAN: uint8(len(tags))}
	copy(e.VLAN[:], tags)
	x := ip.Header{Src: t.Local, Dst: t.Remote, V6: !t.Remote.Is4(), Proto: ip.ProtoTCP, TTL: 64,
		PayloadLen: h.Len()}
	if x.V6 {
		e.Type = ip.TypeIPv6
	}
	h.SrcPort, h.DstPort, h.Window = t.LocalPort, t.RemotePort, 60000
	b := make([]byte, 200)
	n := e.Put(b)
	n += x.Put(b[n:])
	at := n
	n += h.Put(b[n:])
	wire.PutChecksum(b[at:], wire.Finish(wire.Sum(b[at:n], x.PseudoSum(n-at))))
	return b[:n]
}

// synAck reports whether f, untagged, is a reply to a SYN.
func synAck(f []byte) bool {
	at := ip.EthernetLen + ip.Len4
	if f[ip.EthernetLen]>>4 == 6 {
		at = ip.EthernetLen + ip.Len6
	}
	return wire.Flags(f[at+13]).Has(wire.SYN | wire.ACK)
}

func v4(a, b, c, d byte) ip.Addr { return ip.AddrFrom4([4]byte{a, b, c, d}) }

// tuple returns a connection of peer to port 7 of our host, from the peer's side.
func tuple(peer ip.Addr, port uint16) tcp.Tuple {
	return tcp.Tuple{Local: peer, Remote: v4(192, 0, 2, 1), LocalPort: port, RemotePort: 7}
}

// connect completes a handshake and returns its ACK and the reply to that. Without a reply to the SYN both are nil.
func (h *host) connect(t tcp.Tuple) (ack []byte, out [][]byte) {
	for _, f := range h.give(frame(macs[1], t, wire.Header{Seq: 1000, Flags: wire.SYN})) {
		if synAck(f) {
			ack = frame(macs[1], t, wire.Header{Seq: 1001, Ack: issOf(f).Add(1), Flags: wire.ACK})
			return ack, h.give(ack)
		}
	}
	return nil, nil
}

// issOf returns the sequence number of an IPv4 frame.
func issOf(f []byte) seq.Num {
	return seq.Num(binary.BigEndian.Uint32(f[ip.EthernetLen+ip.Len4+wire.SeqAt:]))
}

// flagsOf returns the TCP flags of an IPv4 frame.
func flagsOf(f []byte) wire.Flags { return wire.Flags(f[ip.EthernetLen+ip.Len4+13]) }

// settle steps until no timer runs.
func (h *host) settle() (out [][]byte) {
	for h.s.Deadline() != tick.Never {
		h.now = h.s.Deadline()
		out = append(out, h.give(nil)...)
	}
	return out
}
