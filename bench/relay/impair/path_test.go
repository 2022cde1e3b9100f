package impair

import (
	"bytes"
	"hash/fnv"
	"math"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"xwarp/engine/testkit/havoc"
	"xwarp/tcp/tick"
)

// numbered returns a TCP segment whose sequence number is n.
func numbered(t testing.TB, n int) []byte {
	s := segment{port: 1, seq: uint32(n), payload: bytes.Repeat([]byte{byte(n)}, 200)}
	return s.build(t)
}

func TestCleanPath(t *testing.T) {
	b := newBench(t, Config{}, 1, 1500)
	for i := range 100 {
		f := numbered(t, i)
		b.push(f, tick.Time(i))
		if got := b.drain(tick.Time(i)); len(got) != 1 || !bytes.Equal(got[0], f) {
			t.Fatalf("frame %d did not pass whole and at once: %d frames", i, len(got))
		}
	}
	b.conserved()
}

// TestFractions checks that the number of hits of each stage is within five standard deviations of its fraction, and
// that the counters account for every frame.
func TestFractions(t *testing.T) {
	const n, fraction = 20000, 0.03
	margin := 5 * math.Sqrt(n*fraction*(1-fraction))
	for _, c := range []struct {
		name  string
		cfg   Config
		count func(*Counters) uint64
	}{
		{"loss", Config{Loss: fraction}, func(c *Counters) uint64 { return c.Lost }},
		{"duplicate", Config{Duplicate: fraction}, func(c *Counters) uint64 {
			return c.Duplicated
		}},
		{"reorder", Config{Reorder: fraction}, func(c *Counters) uint64 { return c.Reordered }},
		{"corrupt", Config{Corrupt: fraction}, func(c *Counters) uint64 { return c.Corrupted }},
	} {
		b := newBench(t, c.cfg, 42, 1500)
		f := numbered(t, 1)
		for i := range n {
			b.push(f, tick.Time(i))
			b.drain(tick.Time(i))
		}
		b.finish()
		counters := b.Counters()
		if got := float64(c.count(&counters)); math.Abs(got-n*fraction) > margin {
			t.Errorf("%s: %v of %d, want %v +- %.0f", c.name, got, n, n*fraction, margin)
		}
	}
}

func TestReorderIsBounded(t *testing.T) {
	const depth = 4
	b := newBench(t, Config{Reorder: 0.2, ReorderDepth: depth, ReorderHold: 50}, 9, 1500)
	var got []int
	note := func(fs [][]byte) {
		for _, f := range fs {
			got = append(got, int(decode(t, f).Seq))
		}
	}
	const n = 2000
	for i := range n {
		b.push(numbered(t, i), tick.Time(i))
		note(b.drain(tick.Time(i)))
	}
	note(b.finish())
	seen, late := make([]bool, n), 0
	for at, i := range got {
		if seen[i] {
			t.Fatalf("frame %d came twice", i)
		}
		seen[i] = true
		// Up to depth frames that are not held pass a held one. Frames that are held beside it may come out first too.
		if at-i > 4*depth {
			t.Errorf("frame %d came at place %d", i, at)
		}
		if at > 0 && i < got[at-1] {
			late++
		}
	}
	if len(got) != n || late == 0 {
		t.Errorf("%d frames of %d came, %d late", len(got), n, late)
	}
}

// TestReorderHold checks that a held frame comes out after ReorderHold even if no frame passes it.
func TestReorderHold(t *testing.T) {
	b := newBench(t, Config{Reorder: 1, ReorderHold: 700}, 1, 1500)
	b.push(numbered(t, 1), 1000)
	if d := b.Deadline(); d != 1700 {
		t.Errorf("deadline is %d, want 1700", d)
	}
	if fs := b.drain(1699); len(fs) != 0 {
		t.Error("the frame came early")
	}
	if fs := b.drain(1700); len(fs) != 1 || b.Counters().Reordered != 0 {
		t.Errorf("%d frames came, %+v", len(fs), b.Counters())
	}
}

// TestSeed checks that the same seed and arrivals give the same frames out, and that another seed gives others.
func TestSeed(t *testing.T) {
	run := func(seed uint64) uint64 {
		b := newBench(t, Config{Loss: 0.1, Duplicate: 0.1, Reorder: 0.1, Corrupt: 0.1,
			Resegment: true, Delay: 100, Rate: 1e9}, seed, 1500)
		h := fnv.New64a()
		for i := range 500 {
			s := segment{port: uint16(i % 3), seq: uint32(i / 3 * 900), payload: make([]byte, 900)}
			b.push(s.build(t), tick.Time(i)*5000)
			for _, f := range b.drain(tick.Time(i) * 5000) {
				h.Write(f)
			}
		}
		for _, f := range b.finish() {
			h.Write(f)
		}
		return h.Sum64()
	}
	if a, again, other := run(1), run(1), run(2); a != again || a == other {
		t.Errorf("hashes: seed 1 %x, again %x, seed 2 %x", a, again, other)
	}
}

// TestStagesAreIndependent checks that duplication, corruption and reordering do not change which frames are lost.
func TestStagesAreIndependent(t *testing.T) {
	lost := func(cfg Config) (seqs []uint32) {
		b := newBench(t, cfg, 6, 1500)
		came := map[uint32]bool{}
		const n = 500
		for i := range n {
			b.push(numbered(t, i), tick.Time(i))
		}
		for _, f := range b.finish() {
			came[decode(t, f).Seq] = true
		}
		for i := range uint32(n) {
			if !came[i] {
				seqs = append(seqs, i)
			}
		}
		return seqs
	}
	alone, beside := lost(Config{Loss: 0.1}), lost(Config{Loss: 0.1, Duplicate: 0.5, Corrupt: 0.5,
		Reorder: 0.5})
	if len(alone) == 0 || len(alone) != len(beside) {
		t.Fatalf("%d lost alone, %d beside other stages", len(alone), len(beside))
	}
	for i := range alone {
		if alone[i] != beside[i] {
			t.Fatalf("other frames are lost: %d and %d", alone[i], beside[i])
		}
	}
}

func TestUntouched(t *testing.T) {
	eth := func(ty layers.EthernetType) *layers.Ethernet {
		return &layers.Ethernet{SrcMAC: macA, DstMAC: macB, EthernetType: ty}
	}
	ip6 := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6,
		SrcIP: ip6A.AsSlice(), DstIP: ip6B.AsSlice()}
	icmp6 := func(ty uint8) *layers.ICMPv6 {
		m := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(ty, 0)}
		m.SetNetworkLayerForChecksum(ip6)
		return m
	}
	body := gopacket.Payload(make([]byte, 20))
	for _, c := range []struct {
		name  string
		frame []byte
		pass  bool
	}{
		{"ARP", serialize(t, eth(layers.EthernetTypeARP), &layers.ARP{AddrType: 1, Protocol: 0x800,
			HwAddressSize: 6, ProtAddressSize: 4,
			Operation: 1, SourceHwAddress: macA, SourceProtAddress: ip4A.AsSlice(),
			DstHwAddress: macB, DstProtAddress: ip4B.AsSlice()}), true},
		{"neighbour solicitation", serialize(t, eth(layers.EthernetTypeIPv6), ip6, icmp6(135),
			body), true},
		{"listener report", serialize(t, eth(layers.EthernetTypeIPv6), ip6, icmp6(143), body),
			true},
		{"LLDP", serialize(t, eth(0x88cc), body), true},
		{"cut IPv4 header", serialize(t, eth(layers.EthernetTypeIPv4), body)[:20], true},
		{"echo request", serialize(t, eth(layers.EthernetTypeIPv6), ip6, icmp6(128), body), false},
		{"TCP", numbered(t, 1), false},
	} {
		b := newBench(t, Config{Loss: 1, Delay: tick.Second}, 1, 1500)
		b.push(c.frame, 0)
		fs := b.drain(0)
		if passed := len(fs) == 1 && bytes.Equal(fs[0], c.frame); passed != c.pass {
			t.Errorf("%s: passed %v, want %v", c.name, passed, c.pass)
		}
	}
}

func TestBlackholeAndSet(t *testing.T) {
	b := newBench(t, Config{Resegment: true, Delay: 50}, 1, 1500)
	b.push(numbered(t, 1), 0)
	if err := b.Set(Config{Blackhole: true}); err != nil {
		t.Fatal(err)
	}
	b.push(numbered(t, 2), 0)
	fs := b.finish()
	if c := b.Counters(); len(fs) != 1 || c.Blackholed != 1 || decode(t, fs[0]).Seq != 1 {
		t.Errorf("%d frames came, %+v", len(fs), c)
	}
}

func TestConfigErrors(t *testing.T) {
	for _, c := range []struct {
		cfg Config
		say string
	}{
		{Config{Loss: 1.1}, "loss"},
		{Config{Duplicate: -0.1}, "duplicate"},
		{Config{Reorder: math.NaN()}, "reorder"},
		{Config{Corrupt: math.Inf(1)}, "corrupt"},
		{Config{Delay: -1}, "delay"},
		{Config{MTU: 575}, "575"},
		{Config{MTU: 9000}, "above the link"},
		{Config{CorruptMode: 3}, "mode 3"},
		{Config{MarkAbove: 1}, "rate"},
		{Config{Reply4: ip6A}, "family"},
		{Config{Reply6: netip.MustParseAddr("::ffff:1.2.3.4").Unmap()}, "family"},
	} {
		_, err := New(c.cfg, Options{Pool: NewPool(DefaultLinkMTU + FrameOverhead)})
		if err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%+v: error %v does not say %q", c.cfg, err, c.say)
		}
	}
	if _, err := New(Config{}, Options{LinkMTU: 9000, Pool: NewPool(1500)}); err == nil {
		t.Error("a pool that is too small was taken")
	}
}

func TestNoAllocation(t *testing.T) {
	b := newBench(t, Config{Loss: 0.1, Duplicate: 0.1, Reorder: 0.1, Corrupt: 0.1, Resegment: true,
		Rate: 10e9, Delay: 1000}, 1, 1500)
	s := segment{port: 1, payload: make([]byte, 1000)}
	f := s.build(t)
	now := tick.Time(0)
	step := func() {
		for range 16 {
			x := b.pool.Get(len(f))
			copy(x.Data, f)
			b.Push(x, now)
			now += 100000
			for x := b.Pop(now); x != nil; x = b.Pop(now) {
				b.pool.Put(x)
			}
		}
	}
	for range 200 {
		step()
	}
	if n := testing.AllocsPerRun(200, step); n != 0 {
		t.Errorf("%v allocations per 16 frames", n)
	}
}

// FuzzPath pushes arbitrary frames through every stage. Nothing may crash, and the counters must account for every
// frame.
func FuzzPath(f *testing.F) {
	all := Config{Loss: 0.1, Duplicate: 0.2, Reorder: 0.2, Corrupt: 1, CorruptAbove: -1,
		Resegment: true, Rate: 1e6, Queue: 4000, MarkAbove: 100,
		Delay: 1000, MTU: 1000, MTUReply: true}
	for _, s := range []segment{
		{payload: []byte("x")}, {v6: true, payload: make([]byte, 700), ts: 5}, {vlan: 3, syn: true},
		{fin: true, payload: []byte("end")},
		{payload: make([]byte, 1200)}, {v6: true, payload: make([]byte, 1200), ecn: 2},
	} {
		f.Add(s.build(f), uint64(1), uint8(0))
	}
	havoc.Fuzz(f, func(t *testing.T, frame []byte, seed uint64, mode uint8) {
		cfg := all
		cfg.CorruptMode = CorruptMode(mode % 3)
		b := newBench(t, cfg, seed, 1500)
		frame = frame[:min(len(frame), b.pool.Size())]
		for i := range 10 {
			b.push(frame, tick.Time(i)*1000)
		}
		b.finish()
		for r := b.Reply(); r != nil; r = b.Reply() {
			look(r.Data)
		}
	})
}
