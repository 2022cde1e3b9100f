package monitor

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"xwarp/engine/testkit/havoc"
	"xwarp/ring"
)

var (
	us   = netip.MustParseAddrPort("192.0.2.1:40000")
	them = netip.MustParseAddrPort("192.0.2.2:7174")
)

// frame returns a frame with a TCP segment and tags VLAN tags. flags has the letters F, S, R and A of FIN, SYN, RST and
// ACK.
func frame(t testing.TB, from, to netip.AddrPort, flags, payload string, tags int) []byte {
	t.Helper()
	list := []gopacket.SerializableLayer{}
	kind, v6 := layers.EthernetTypeIPv4, from.Addr().Is6()
	if v6 {
		kind = layers.EthernetTypeIPv6
	}
	outer := kind
	if tags > 0 {
		outer = layers.EthernetTypeDot1Q
	}
	list = append(list, &layers.Ethernet{SrcMAC: make(net.HardwareAddr, 6),
		DstMAC: make(net.HardwareAddr, 6), EthernetType: outer})
	for i := range tags {
		inner := kind
		if i+1 < tags {
			inner = layers.EthernetTypeDot1Q
		}
		list = append(list, &layers.Dot1Q{VLANIdentifier: uint16(7 + i), Type: inner})
	}
	var ip gopacket.NetworkLayer
	if v6 {
		l := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP,
			SrcIP: from.Addr().AsSlice(), DstIP: to.Addr().AsSlice()}
		list, ip = append(list, l), l
	} else {
		l := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP,
			SrcIP: from.Addr().AsSlice(), DstIP: to.Addr().AsSlice()}
		list, ip = append(list, l), l
	}
	has := func(f string) bool { return strings.Contains(flags, f) }
	tcp := &layers.TCP{SrcPort: layers.TCPPort(from.Port()), DstPort: layers.TCPPort(to.Port()),
		FIN: has("F"), SYN: has("S"), RST: has("R"), ACK: has("A"),
		Options: []layers.TCPOption{{OptionType: layers.TCPOptionKindNop}}}
	tcp.SetNetworkLayerForChecksum(ip)
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true,
		ComputeChecksums: true}, append(list, tcp, gopacket.Payload(payload))...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// host is a Port of a Hub over a fake kernel.
type host struct {
	t   testing.TB
	hub *Hub
	p   *Port
	k   *ring.FakeKernel
	now int64
	out []byte
}

func newHost(t testing.TB) *host {
	t.Helper()
	h := &host{t: t, k: ring.NewFakeKernel(ring.FakeConfig{}), out: make([]byte, 0, 4096)}
	s, err := ring.OpenFake(ring.Config{RxFrames: 64, TxSlots: 64, TxSlot: 3}, h.k)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	h.hub = NewHub(func() int64 { h.now++; return h.now })
	h.p = h.hub.Wrap(s, "eth0 queue 0")
	return h
}

func (h *host) rx(b []byte) {
	h.t.Helper()
	h.k.Inject(b)
	var batch [4]ring.Packet
	if n := h.p.Recv(batch[:]); n != 1 {
		h.t.Fatalf("%d packets received", n)
	}
	h.p.Release(&batch[0])
	h.p.Refill()
}

func (h *host) tx(b []byte) {
	h.t.Helper()
	buf, ok := h.p.AllocTx()
	if !ok {
		h.t.Fatal("no transmit slot")
	}
	h.p.Send(buf, copy(buf.Data, b))
	h.p.Flush()
	if h.out, ok = h.k.Take(h.out[:0]); !ok {
		h.t.Fatal("nothing was sent")
	}
	h.p.Reap()
}

const (
	request = "MPA ID Req Frame\x40\x02\x00\x00"
	reply   = "MPA ID Rep Frame\x40\x02\x00\x00"
)

// connect passes the frames of a new connection that us opens, up to the first FPDU of each side, and returns them.
func (h *host) connect(us, them netip.AddrPort, tags int) (frames [][]byte) {
	f := func(out bool, flags, payload string) {
		from, to := us, them
		if !out {
			from, to = them, us
		}
		b := frame(h.t, from, to, flags, payload, tags)
		frames = append(frames, b)
		if out {
			h.tx(b)
		} else {
			h.rx(b)
		}
	}
	f(true, "S", "")
	f(false, "SA", "")
	f(true, "A", "")
	f(true, "A", request)
	f(false, "A", reply)
	f(true, "A", "first of ours")
	f(false, "A", "first of theirs")
	return frames
}

func (h *host) start(cfg Config) *Capture {
	h.t.Helper()
	c, err := h.hub.Start(cfg)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(c.Stop)
	return c
}

// rest returns all frames that a capture has now, each as the text of its direction, length and bytes.
func rest(c *Capture) (list []string) {
	for {
		f, ok := c.Poll()
		if !ok {
			return list
		}
		list = append(list, fmt.Sprintf("%d %d %x", f.Direction, f.Length, f.Data))
	}
}

// TestStartIsKept: a capture starts with the first frames of a connection that began before it, and continues with
// current frames: with IPv4 and IPv6, with and without VLAN tags.
func TestStartIsKept(t *testing.T) {
	us6, them6 := netip.MustParseAddrPort("[2001:db8::1]:40000"),
		netip.MustParseAddrPort("[2001:db8::2]:7174")
	for _, tc := range []struct {
		name     string
		us, them netip.AddrPort
		tags     int
	}{{"IPv4", us, them, 0}, {"IPv6", us6, them6, 0}, {"VLAN", us, them, 1},
		{"two tags", us6, them6, 2}} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			begin := h.connect(tc.us, tc.them, tc.tags)
			for range 100 {
				h.tx(frame(t, tc.us, tc.them, "A", "long before the capture", tc.tags))
			}
			if n := h.hub.starts.opening.Load(); n != 0 {
				t.Errorf("%d connections are starting", n)
			}
			c := h.start(Config{})
			if c.StartFrames() != len(begin) {
				t.Errorf("%d frames of the start, want %d", c.StartFrames(), len(begin))
			}
			now := frame(t, tc.them, tc.us, "A", "now", tc.tags)
			h.rx(now)
			got := rest(c)
			want := append(append([][]byte(nil), begin...), now)
			if len(got) != len(want) {
				t.Fatalf("%d frames, want %d", len(got), len(want))
			}
			directions := []Direction{Tx, Rx, Tx, Tx, Rx, Tx, Rx, Rx}
			for i, b := range want {
				if w := fmt.Sprintf("%d %d %x", directions[i], len(b), b); got[i] != w {
					t.Errorf("frame %d\n is %s\nwant %s", i, got[i], w)
				}
			}
			c.Stop()
			h.rx(now)
			if got := rest(c); len(got) != 0 {
				t.Errorf("after Stop: %v", got)
			}
		})
	}
}

// TestEnds: the kept frames of a connection are dropped when it ends, by FINs in both directions or our RST, and when
// we start it again. A peer's RST or SYN may be forged and drops nothing.
func TestEnds(t *testing.T) {
	type step struct {
		out   bool
		flags string
	}
	for _, tc := range []struct {
		name  string
		steps []step
		kept  int
	}{
		{"lives", nil, 7},
		{"half closed", []step{{true, "FA"}}, 7},
		{"closed", []step{{true, "FA"}, {false, "FA"}}, 0},
		{"our reset", []step{{true, "R"}}, 0},
		{"a peer's reset", []step{{false, "R"}}, 7},
		{"somebody else's SYN", []step{{false, "S"}, {true, "A"}}, 7},
		{"the same addresses again", []step{{false, "S"}, {true, "SA"}}, 1},
		{"we again", []step{{true, "S"}}, 1},
	} {
		h := newHost(t)
		h.connect(us, them, 0)
		for _, s := range tc.steps {
			if s.out {
				h.tx(frame(t, us, them, s.flags, "", 0))
			} else {
				h.rx(frame(t, them, us, s.flags, "", 0))
			}
		}
		if c := h.start(Config{}); c.StartFrames() != tc.kept {
			t.Errorf("%s: %d frames of the start, want %d", tc.name, c.StartFrames(), tc.kept)
		}
	}
}

// TestBounds: peers cannot make the hub exceed its memory limits by floods of SYNs, connections that are never
// established, many established ones, long private data or resets.
func TestBounds(t *testing.T) {
	h := newHost(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	peer := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8),
			byte(i)}), 7174)
	}
	for i := range 13_000 {
		at := peer(i)
		switch rnd.IntN(6) {
		case 0, 1:
			h.rx(frame(t, at, us, "S", "", 0))
		case 2:
			h.rx(frame(t, at, us, "S", "", 0))
			for range 30 {
				h.rx(frame(t, at, us, "A", request+strings.Repeat("x", 500), 0))
			}
		case 3:
			h.connect(us, at, 0)
			h.rx(frame(t, at, us, "R", "", 0))
		default:
			h.connect(us, at, 0)
		}
	}
	s := &h.hub.starts
	total, size := 0, 0
	for _, c := range s.conns {
		total++
		size += c.bytes
	}
	if s.open.Len() > maxOpen || s.keep.Len()+s.over.Len() > maxKept || s.over.Len() > maxOver ||
		s.bytes > maxBytes+maxOpen*maxOfOne {
		t.Errorf("open %d, kept %d, over %d, %d bytes", s.open.Len(), s.keep.Len(), s.over.Len(),
			s.bytes)
	}
	if total != s.open.Len()+s.keep.Len()+s.over.Len() || size != s.bytes ||
		int(s.opening.Load()) != s.open.Len() {
		t.Errorf("%d connections with %d bytes, counted: %d, %d, %d and %d bytes", total, size,
			s.open.Len(), s.keep.Len(), s.over.Len(), s.bytes)
	}
	if s.lost == 0 || s.keep.Len() < maxKept-maxOver {
		t.Errorf("%d lost, %d kept: the limits were not reached", s.lost, s.keep.Len())
	}
	sum := int32(0)
	for i := range s.buckets {
		sum += s.buckets[i].Load()
	}
	if sum != s.opening.Load() {
		t.Errorf("buckets hold %d, %d are open", sum, s.opening.Load())
	}
}

// TestRing: the ring between worker and capture keeps each frame unchanged while there is room, and counts each one
// that it drops.
func TestRing(t *testing.T) {
	h := newHost(t)
	c := h.start(Config{Ring: 1 << 12, Snap: 100})
	rnd := rand.New(rand.NewPCG(3, 4))
	var want []string
	sent, got := 0, []string(nil)
	for range 5000 {
		b := frame(t, them, us, "A", string(bytes.Repeat([]byte{byte(sent)}, rnd.IntN(400))), 0)
		before := c.Dropped(0)
		h.rx(b)
		sent++
		if c.Dropped(0) == before {
			want = append(want, fmt.Sprintf("%d %d %x", Rx, len(b), b[:min(len(b), 100)]))
		}
		if rnd.IntN(60) == 0 {
			got = append(got, rest(c)...)
		}
	}
	got = append(got, rest(c)...)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%d frames came out, %d went in, or they differ", len(got), len(want))
	}
	if c.Seen(0) != uint64(sent) || int(c.Dropped(0)) != sent-len(want) || c.Dropped(0) == 0 {
		t.Errorf("%d seen, %d dropped, %d of %d taken", c.Seen(0), c.Dropped(0), len(want), sent)
	}
}

// TestPortsAndFilters: a capture returns the frames of several ports in order of time. Each capture has its own filter.
func TestPortsAndFilters(t *testing.T) {
	h := newHost(t)
	k := ring.NewFakeKernel(ring.FakeConfig{})
	s, err := ring.OpenFake(ring.Config{RxFrames: 64, TxSlots: 64, TxSlot: 3}, k)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	other := &host{t: t, hub: h.hub, p: h.hub.Wrap(s, "eth0 queue 1"), k: k}
	all, one := h.start(Config{}), h.start(Config{Filter: Filter{Flows: []Flow{{us, them}}}})
	away := netip.MustParseAddrPort("198.51.100.9:5")
	far := h.start(Config{Filter: Filter{Remote: netip.MustParsePrefix("198.51.100.0/24"),
		Port: 5}})
	arp := make([]byte, 60)
	arp[12], arp[13] = 8, 6
	h.rx(frame(t, them, us, "A", "1", 0))
	other.rx(frame(t, away, us, "A", "2", 0))
	h.tx(frame(t, us, them, "A", "3", 0))
	other.rx(arp)
	var last int64
	var order string
	for {
		f, ok := all.Poll()
		if !ok {
			break
		}
		if f.Time <= last {
			t.Errorf("time %d, want one after %d", f.Time, last)
		}
		last = f.Time
		order += f.Port[len(f.Port)-1:]
	}
	if order != "0101" {
		t.Errorf("queues in the order %s", order)
	}
	if n := len(rest(one)); n != 2 {
		t.Errorf("one connection: %d frames", n)
	}
	if n := len(rest(far)); n != 1 {
		t.Errorf("one peer: %d frames", n)
	}
	h.start(Config{})
	if _, err := h.hub.Start(Config{}); err != ErrBusy {
		t.Errorf("a fifth capture: %v", err)
	}
}

// Without a capture, sending a frame of an established connection neither allocates nor takes the lock of starts.
func TestNoAllocations(t *testing.T) {
	h := newHost(t)
	h.connect(us, them, 0)
	b := frame(t, them, us, "A", strings.Repeat("x", 1400), 0)
	h.hub.starts.mu.Lock() // any other attempt to lock it blocks
	defer h.hub.starts.mu.Unlock()
	if n := testing.AllocsPerRun(100, func() { h.tx(b) }); n != 0 {
		t.Errorf("%v allocations for each frame", n)
	}
}

// FuzzFrame passes arbitrary frames to a Port with a capture, once as received and once as sent. The capture must
// return both, unless the frame may be too long for its ring.
func FuzzFrame(f *testing.F) {
	f.Add(frame(f, us, them, "S", "", 0))
	f.Add(frame(f, us, them, "A", reply, 2))
	havoc.Fuzz(f, func(t *testing.T, b []byte) {
		hub := NewHub(nil)
		p := hub.Wrap(nil, "x")
		c, err := hub.Start(Config{Ring: 1 << 16})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range []Direction{Rx, Tx} {
			s, ok := parse(b)
			if p.isWatched(&s, ok, b) {
				p.onFrame(&s, ok, b, d)
			}
		}
		if got := rest(c); len(got) != 2 && len(b) < 1<<15 {
			t.Errorf("%d frames", len(got))
		}
	})
}

// BenchmarkIdle measures the check of a frame of an established connection without a capture.
func BenchmarkIdle(b *testing.B) {
	h := newHost(b)
	h.connect(us, them, 0)
	data := frame(b, them, us, "A", strings.Repeat("x", 1400), 0)
	b.ReportAllocs()
	for b.Loop() {
		if !h.p.isUnwatched(data) {
			b.Fatal("wanted")
		}
	}
}
