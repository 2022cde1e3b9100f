package impair

import (
	"bytes"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"xwarp/tcp/tick"
)

// TestRateAndDelay checks that rate and delay alone decide the times: of frames that come in at time 0, frame i of n
// bytes leaves the bottleneck at (i+1)*n*8/rate and comes out one delay later.
func TestRateAndDelay(t *testing.T) {
	const rate, delay = 1e9, 20 * tick.Microsecond
	b := newBench(t, Config{Rate: rate, Delay: delay}, 1, 1500)
	var n int
	for i := range 10 {
		f := numbered(t, i)
		n = len(f)
		b.push(f, 0)
	}
	for i := range 10 {
		want := tick.Time(0).Add(tick.Duration((i+1)*n*8)*tick.Second/rate + delay)
		if d := b.Deadline(); d != want {
			t.Fatalf("frame %d is due at %d, want %d", i, d, want)
		}
		if fs := b.drain(want - 1); len(fs) != 0 {
			t.Fatalf("frame %d came early", i)
		}
		if fs := b.drain(want); len(fs) != 1 || decode(t, fs[0]).Seq != uint32(i) {
			t.Fatalf("at %d came %d frames", want, len(fs))
		}
	}
	if d := b.Deadline(); d != tick.Never {
		t.Errorf("an empty path has a deadline at %d", d)
	}
	// While idle, the bottleneck accumulates no credit for later frames.
	b.push(numbered(t, 1), tick.Time(tick.Second))
	if d, want := b.Deadline(), tick.Time(tick.Second).Add(tick.Duration(n*8)+delay); d != want {
		t.Errorf("after a pause a frame is due at %d, want %d", d, want)
	}
}

func TestDelayShrinksInOrder(t *testing.T) {
	b := newBench(t, Config{Delay: 1000}, 1, 1500)
	b.push(numbered(t, 1), 0)
	if err := b.Set(Config{}); err != nil {
		t.Fatal(err)
	}
	b.push(numbered(t, 2), 10)
	fs := b.finish()
	if len(fs) != 2 || decode(t, fs[0]).Seq != 1 {
		t.Error("a shorter delay let a later frame overtake")
	}
}

func TestQueueDropsTail(t *testing.T) {
	f := numbered(t, 0)
	b := newBench(t, Config{Rate: 1e6, Queue: 5 * len(f)}, 1, 1500)
	for i := range 8 {
		b.push(numbered(t, i), 0)
	}
	if c := b.Counters(); c.QueueDropped != 3 || c.MaxQueue != 5*len(f) {
		t.Errorf("%d dropped, at most %d bytes queued: want 3 and %d", c.QueueDropped, c.MaxQueue,
			5*len(f))
	}
	for i, f := range b.finish() {
		if s := decode(t, f).Seq; s != uint32(i) {
			t.Errorf("frame %d is %d: the tail was to be dropped", i, s)
		}
	}
	// A frame larger than the queue passes an idle bottleneck. Otherwise such frames could never pass.
	b = newBench(t, Config{Rate: 1e6, Queue: 10}, 1, 1500)
	b.push(f, 0)
	if fs := b.finish(); len(fs) != 1 {
		t.Errorf("%d frames passed a queue smaller than a frame", len(fs))
	}
}

func TestMark(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, ecn := range []uint8{0, 1, 2, 3} {
			s := segment{v6: v6, ecn: ecn, payload: make([]byte, 100)}
			f := s.build(t)
			b := newBench(t, Config{Rate: 1e6, MarkAbove: 2 * len(f)}, 1, 1500)
			for range 5 {
				b.push(f, 0)
			}
			marked := 0
			for i, f := range b.finish() {
				d := decode(t, f)
				if !d.sumsRight {
					t.Errorf("checksum is wrong after marking")
				}
				switch {
				case d.ecn == ecnCE && ecn != ecnCE:
					marked++
					if i < 3 {
						t.Errorf("frame %d is marked, the queue was short", i)
					}
				case d.ecn != ecn:
					t.Errorf("ECN went from %d to %d", ecn, d.ecn)
				}
			}
			want, count := 2, uint64(2)
			if ecn == 0 || ecn == ecnCE {
				want = 0
			}
			if ecn == 0 {
				count = 0
			}
			if marked != want || b.Counters().Marked != count {
				t.Errorf("IPv6 %v, ECN %d: %d marked, counted %d", v6, ecn, marked,
					b.Counters().Marked)
			}
		}
	}
}

func TestCorruptModes(t *testing.T) {
	for _, c := range []struct {
		name      string
		mode      CorruptMode
		sumsRight bool
		bits      func(int) bool
		byteCount int
	}{
		{"sealed", CorruptSealed, true, func(n int) bool { return n >= 1 && n <= 8 }, 1},
		{"raw", CorruptRaw, false, func(n int) bool { return n == 1 }, 1},
		{"pair", CorruptPair, true, func(n int) bool { return n == 2 }, 2},
	} {
		b := newBench(t, Config{Corrupt: 1, CorruptMode: c.mode, CorruptAbove: -1}, 8, 1500)
		for i := range 500 {
			s := segment{v6: i%2 == 0, seq: uint32(i), payload: make([]byte, 2+i)}
			for j := range s.payload {
				s.payload[j] = byteAt(uint32(i * j))
			}
			f := s.build(t)
			before := b.Counters()
			b.push(f, 0)
			got := b.drain(0)[0]
			if b.Counters().CorruptImpossible > before.CorruptImpossible {
				continue // short payload whose words do not differ in any bit
			}
			d := decode(t, got)
			byteCount, bits := 0, 0
			for j := range d.Payload {
				if x := d.Payload[j] ^ s.payload[j]; x != 0 {
					byteCount++
					for ; x != 0; x &= x - 1 {
						bits++
					}
				}
			}
			if d.sumsRight != c.sumsRight || byteCount != c.byteCount || !c.bits(bits) {
				t.Fatalf("%s, %d bytes: checksum right %v, %d bytes and %d bits differ", c.name,
					len(s.payload), d.sumsRight, byteCount, bits)
			}
			head := look(f).payload // compares headers only
			same := bytes.Equal(got[:head], f[:head])
			if sealed := c.mode == CorruptSealed; same == sealed {
				t.Fatalf("%s: headers the same: %v", c.name, same)
			}
		}
		if n := b.Counters().Corrupted; n < 490 {
			t.Errorf("%s: %d of 500 segments were damaged", c.name, n)
		}
	}
}

func TestCorruptSpares(t *testing.T) {
	b := newBench(t, Config{Corrupt: 1}, 8, 1500)
	for n := range DefaultCorruptAbove + 1 {
		s := segment{payload: make([]byte, n)}
		f := s.build(t)
		b.push(f, 0)
		if got := b.drain(0); !bytes.Equal(got[0], f) {
			t.Errorf("a segment of %d bytes was damaged", n)
		}
	}
	b = newBench(t, Config{Corrupt: 1, CorruptMode: CorruptPair}, 8, 1500)
	s := segment{payload: make([]byte, 1000)}
	b.push(s.build(t), 0)
	if c := b.Counters(); c.CorruptImpossible != 1 || c.Corrupted != 0 {
		t.Errorf("payload of zeros has no pair: %+v", c)
	}
}

func TestMTUReply(t *testing.T) {
	for _, c := range []struct {
		name       string
		seg        segment
		dontFrag   bool
		configured bool
		replies    int
	}{
		{"IPv4", segment{payload: make([]byte, 1300)}, true, true, 1},
		{"IPv4, VLAN, no router address", segment{vlan: 9, payload: make([]byte, 1300)}, true,
			false, 1},
		{"IPv4 without DF", segment{payload: make([]byte, 1300)}, false, true, 0},
		{"IPv6", segment{v6: true, payload: make([]byte, 1300)}, true, true, 1},
		{"fits", segment{payload: make([]byte, 1280-40)}, true, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := Config{MTU: 1280, MTUReply: true}
			if c.configured {
				cfg.Reply4, cfg.Reply6 = ip4B.Next(), ip6B.Next()
			}
			b := newBench(t, cfg, 1, 1500)
			f := c.seg.build(t)
			if !c.dontFrag {
				f[ethHeader+6] = 0
				setIPv4Checksum(f[ethHeader:])
			}
			b.push(f, 0)
			passed := len(b.drain(0))
			if big := b.Counters().TooBig == 1; big == (passed == 1) || big == (c.name == "fits") {
				t.Fatalf("%d frames passed, %+v", passed, b.Counters())
			}
			replies := 0
			for r := b.Reply(); r != nil; r = b.Reply() {
				replies++
				judgeReply(t, r.Data, f, c.seg.v6, cfg)
			}
			if replies != c.replies {
				t.Errorf("%d replies, want %d", replies, c.replies)
			}
		})
	}
}

// judgeReply checks with gopacket the ICMP error r that answers frame f.
func judgeReply(t *testing.T, r, f []byte, v6 bool, cfg Config) {
	t.Helper()
	p := gopacket.NewPacket(r, layers.LayerTypeEthernet, gopacket.Default)
	if e := p.ErrorLayer(); e != nil {
		t.Fatalf("gopacket: %v", e.Error())
	}
	eth := p.LinkLayer().(*layers.Ethernet)
	if !bytes.Equal(eth.DstMAC, macA) || !bytes.Equal(eth.SrcMAC, macB) {
		t.Errorf("MACs %v to %v", eth.SrcMAC, eth.DstMAC)
	}
	v := look(f)
	quoted := f[v.ip:]
	if v6 {
		ip := p.NetworkLayer().(*layers.IPv6)
		m := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6)
		m.SetNetworkLayerForChecksum(ip)
		sum := transportSum(r, &view{v6: true, ip: v.ip, l4: v.ip + ipv6Header, end: len(r)},
			protoICMPv6)
		if m.TypeCode.Type() != layers.ICMPv6TypePacketTooBig ||
			!ip.SrcIP.Equal(cfg.Reply6.AsSlice()) || !ip.DstIP.Equal(ip6A.AsSlice()) || sum != 0 {
			t.Errorf("%v from %v to %v, sum %#x", m.TypeCode, ip.SrcIP, ip.DstIP, sum)
		}
		if int(ip.Length)+40 != 1280 || !bytes.Equal(m.Payload[:4], []byte{0, 0, 5, 0}) ||
			!bytes.HasPrefix(quoted, m.Payload[4:]) {
			t.Errorf("%d bytes, MTU % x", ip.Length, m.Payload[:4])
		}
		return
	}
	ip := p.NetworkLayer().(*layers.IPv4)
	m := p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
	from := cfg.Reply4
	if !from.IsValid() {
		from = ip4B
	}
	if !ip.SrcIP.Equal(from.AsSlice()) || !ip.DstIP.Equal(ip4A.AsSlice()) ||
		fold(onesSum(0, ip.Contents)) != 0 || fold(onesSum(0, ip.Payload)) != 0 {
		t.Errorf("from %v to %v, checksums %#x %#x", ip.SrcIP, ip.DstIP,
			fold(onesSum(0, ip.Contents)), fold(onesSum(0, ip.Payload)))
	}
	if m.TypeCode != layers.CreateICMPv4TypeCode(3, 4) || m.Seq != 1280 ||
		!bytes.HasPrefix(quoted, m.Payload) || len(m.Payload) != 548 {
		t.Errorf("%v, MTU %d, %d bytes quoted", m.TypeCode, m.Seq, len(m.Payload))
	}
}

// TestChecksumVectors checks examples of the standards: the tests' own sum functions by the sum 0xddf2 of RFC 1071,
// section 3, and updated by the corner case of RFC 1624, section 4.
func TestChecksumVectors(t *testing.T) {
	if got := ^fold(onesSum(0, []byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6,
		0xf7})); got != 0xddf2 {
		t.Errorf("RFC 1071: %#x", got)
	}
	if got := updated(0xdd2f, 0x5555, 0x3285); got != 0x0000 {
		t.Errorf("RFC 1624: %#x", got)
	}
}
