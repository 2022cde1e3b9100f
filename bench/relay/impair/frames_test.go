package impair

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"xwarp/tcp/tick"
)

// The tests build and check frames with gopacket, which shares no code with this package.

var (
	macA = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	macB = net.HardwareAddr{2, 0, 0, 0, 0, 2}
	ip4A = netip.MustParseAddr("192.0.2.1")
	ip4B = netip.MustParseAddr("192.0.2.2")
	ip6A = netip.MustParseAddr("2001:db8:77::1")
	ip6B = netip.MustParseAddr("2001:db8:77::2")
)

// segment describes a TCP segment to build.
type segment struct {
	v6      bool
	vlan    uint16 // 0 for none
	port    uint16
	seq     uint32
	ack     uint32
	syn     bool
	fin     bool
	psh     bool
	rst     bool
	ts      uint32 // TSval of the timestamp option; 0 for no option
	ecn     uint8
	payload []byte
}

func (s *segment) build(t testing.TB) []byte {
	t.Helper()
	var ls []gopacket.SerializableLayer
	etherType := layers.EthernetTypeIPv4
	if s.v6 {
		etherType = layers.EthernetTypeIPv6
	}
	eth := &layers.Ethernet{SrcMAC: macA, DstMAC: macB, EthernetType: etherType}
	ls = append(ls, eth)
	if s.vlan != 0 {
		eth.EthernetType = layers.EthernetTypeDot1Q
		ls = append(ls, &layers.Dot1Q{VLANIdentifier: s.vlan, Type: etherType})
	}
	tcp := &layers.TCP{SrcPort: layers.TCPPort(s.port), DstPort: 4711, Seq: s.seq, Ack: s.ack,
		ACK: !s.syn, SYN: s.syn,
		FIN: s.fin, PSH: s.psh, RST: s.rst, Window: 1000}
	if s.ts != 0 {
		d := binary.BigEndian.AppendUint32(nil, s.ts)
		tcp.Options = []layers.TCPOption{{OptionType: layers.TCPOptionKindNop},
			{OptionType: layers.TCPOptionKindNop},
			{OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10,
				OptionData: binary.BigEndian.AppendUint32(d, 77)}}
	}
	if s.v6 {
		ip := &layers.IPv6{Version: 6, TrafficClass: s.ecn, HopLimit: 64,
			NextHeader: layers.IPProtocolTCP,
			SrcIP:      ip6A.AsSlice(), DstIP: ip6B.AsSlice()}
		tcp.SetNetworkLayerForChecksum(ip)
		ls = append(ls, ip, tcp)
	} else {
		ip := &layers.IPv4{Version: 4, TOS: s.ecn, TTL: 64, Flags: layers.IPv4DontFragment,
			Protocol: layers.IPProtocolTCP,
			SrcIP:    ip4A.AsSlice(), DstIP: ip4B.AsSlice()}
		tcp.SetNetworkLayerForChecksum(ip)
		ls = append(ls, ip, tcp)
	}
	return serialize(t, append(ls, gopacket.Payload(s.payload))...)
}

func serialize(t testing.TB, ls ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true,
		ComputeChecksums: true}, ls...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// decoded is a TCP frame as gopacket parses it.
type decoded struct {
	*layers.TCP
	v6        bool
	ecn       uint8
	ipLen     int
	sumsRight bool
}

func decode(t testing.TB, f []byte) (d decoded) {
	t.Helper()
	p := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default)
	if e := p.ErrorLayer(); e != nil {
		t.Fatalf("gopacket: %v in %x", e.Error(), f)
	}
	tcp, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if !ok {
		t.Fatalf("no TCP in %x", f)
	}
	d.TCP, d.sumsRight = tcp, true
	if ip, ok := p.NetworkLayer().(*layers.IPv4); ok {
		tcp.SetNetworkLayerForChecksum(ip)
		d.ecn, d.ipLen = ip.TOS&3, int(ip.Length)
		d.sumsRight = fold(onesSum(0, ip.Contents)) == 0
	} else if ip, ok := p.NetworkLayer().(*layers.IPv6); ok {
		tcp.SetNetworkLayerForChecksum(ip)
		d.v6, d.ecn, d.ipLen = true, ip.TrafficClass&3, int(ip.Length)+40
	}
	sum, err := tcp.ComputeChecksum() // over the segment with its checksum in it
	if err != nil {
		t.Fatal(err)
	}
	d.sumsRight = d.sumsRight && sum == 0
	return d
}

// bench is a path under test with the pool of its buffers.
type bench struct {
	*Path
	pool *Pool
	t    testing.TB
}

func newBench(t testing.TB, cfg Config, seed uint64, mtu int) *bench {
	t.Helper()
	pool := NewPool(mtu + FrameOverhead)
	p, err := New(cfg, Options{Seed: seed, LinkMTU: mtu, Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	return &bench{Path: p, pool: pool, t: t}
}

func (b *bench) push(f []byte, now tick.Time) {
	x := b.pool.Get(len(f))
	copy(x.Data, f)
	b.Push(x, now)
}

// drain pops all frames that are due now and returns copies of them.
func (b *bench) drain(now tick.Time) (fs [][]byte) {
	for x := b.Pop(now); x != nil; x = b.Pop(now) {
		fs = append(fs, append([]byte(nil), x.Data...))
		b.pool.Put(x)
	}
	return fs
}

// finish advances the time from deadline to deadline until no frame is inside, and returns the frames that came out.
func (b *bench) finish() (fs [][]byte) {
	for range 1 << 20 {
		d := b.Deadline()
		if d == tick.Never {
			break
		}
		fs = append(fs, b.drain(d)...)
	}
	if b.Held() != 0 {
		b.t.Fatalf("%d frames are inside and no deadline is set", b.Held())
	}
	b.conserved()
	return fs
}

// conserved checks the equation in the comment of Counters.
func (b *bench) conserved() {
	b.t.Helper()
	c := b.Counters()
	in := c.In + c.Duplicated + c.RecutOut
	out := c.Out + c.RecutIn - uint64(b.recut.held()) + c.Lost + c.QueueDropped + c.TooBig +
		c.Blackholed + uint64(b.Held())
	if in != out {
		b.t.Fatalf("frames are not conserved: %d came, %d went or are inside: %+v", in, out, c)
	}
}
