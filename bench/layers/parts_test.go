package layers

import (
	"fmt"
	"hash/crc32"
	"testing"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/mpa"
	"xwarp/mpa/ulpdu"
	"xwarp/tcp"
	"xwarp/tcp/checksum"
	"xwarp/tcp/ip"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// parts are single layers, each measured alone with segments of n bytes of payload and everything in the cache. The TCP
// parts include the acknowledgements of their segments. send/headers does not include the checksum of the payload.
// both/work is the work that no receiver can avoid: checksum, CRC32C and copy.
var parts = []struct {
	name string
	run  func(b *testing.B, n int)
}{
	{"receive/parse", parse},
	{"receive/TCP", tcpReceive},
	{"receive/FPDU", func(b *testing.B, n int) { locate(b, n, false) }},
	{"receive/FPDU+CRC32C", func(b *testing.B, n int) { locate(b, n, true) }},
	{"receive/DDP", place},
	{"send/FPDU+CRC32C", frameBuild},
	{"send/headers", headerBuild},
	{"send/TCP", tcpSend},
	{"both/checksum", tcpChecksum},
	{"both/work", work},
}

// BenchmarkPart measures each part for links of two MTUs.
func BenchmarkPart(b *testing.B) {
	for _, n := range []int{1448, 8948} {
		for _, p := range parts {
			b.Run(fmt.Sprintf("%s/bytes=%d", p.name, n), func(b *testing.B) {
				b.ReportAllocs()
				p.run(b, n)
			})
		}
	}
}

// segment returns an IPv4 packet with a TCP segment of n bytes of payload.
func segment(n int) []byte {
	b := make([]byte, 20+32+n)
	h := ip.Header{Proto: ip.ProtoTCP, TTL: 64, DF: true, PayloadLen: 32 + n}
	h.Src, h.Dst = ip.Addr{10: 0xff, 11: 0xff, 12: 192, 14: 2, 15: 1}, ip.Addr{10: 0xff, 11: 0xff,
		12: 192, 14: 2, 15: 2}
	off := h.Put(b)
	t := wire.Header{SrcPort: 1, DstPort: 2, Seq: 100, Ack: 200, Flags: wire.ACK, Window: 1000}
	t.Opt.Present = wire.HasTS
	t.Put(b[off:])
	return b
}

func parse(b *testing.B, n int) {
	f := append(make([]byte, 14), segment(n)...)
	f[12] = 8
	var eth ip.Ethernet
	var h ip.Header
	var t wire.Header
	for b.Loop() {
		off, _ := eth.Decode(f)
		o, _ := h.DecodeFirst(f[off:], len(f)-off)
		t.Decode(f[off+o:])
	}
}

func tcpChecksum(b *testing.B, n int) {
	f := segment(n)[20:]
	for b.Loop() {
		sink += wire.Sum(f, 0)
	}
}

// sink keeps work from being optimised away.
var sink uint64

// endless is a tcp.Source that always has data to send.
type endless struct{}

func (endless) Next(room int) (int, bool) { return room, true }

// established returns the two ends of an established TCP connection whose segments carry up to n bytes.
func established(n int) (a, b *tcp.Conn, now tick.Time) {
	cfg := tcp.Config{RcvSpace: 1 << 20, RcvSpaceMax: 1 << 20, MTU: n + 52, StretchAck: 8}
	a, b, now = new(tcp.Conn), new(tcp.Conn), 1e9
	a.Init(&cfg, 1, 2, 100, now)
	b.Init(&cfg, 2, 1, 200, now)
	a.Connect(now)
	b.Connect(now)
	for range 4 {
		pump(a, b, now)
		pump(b, a, now)
	}
	return a, b, now
}

func pump(from, to *tcp.Conn, now tick.Time) {
	var out tcp.Out
	var s tcp.Segment
	for from.Poll(now, nil, &out) {
		s.Header, s.Len = out.Header, out.Payload.Len()
		o := to.Input(&s, now)
		for _, r := range o.R[:o.N] {
			to.Keep(r)
		}
		to.Finish(now)
	}
}

func tcpReceive(b *testing.B, n int) {
	_, c, now := established(n)
	s := tcp.Segment{Len: n}
	s.Flags, s.Seq, s.Ack, s.Window = wire.ACK|wire.PSH, 101, c.SndNxt(), 0xffff
	s.Opt.Present = wire.HasTS
	s.Opt.TSVal = 5000
	var out tcp.Out
	c.SetRcvSpace(1<<20, now) // the handshake's window is smaller than eight large segments
	for c.Poll(now, nil, &out) {
	}
	for i := 0; b.Loop(); i++ {
		o := c.Input(&s, now)
		c.Keep(o.R[0])
		c.Finish(now)
		s.Seq = s.Seq.Add(n)
		if i%8 == 7 {
			c.SetRcvSpace(1<<20, now)
			for c.Poll(now, nil, &out) {
			}
		}
	}
}

func tcpSend(b *testing.B, n int) {
	c, _, now := established(n)
	var src tcp.Source = endless{}
	ack := tcp.Segment{}
	ack.Flags, ack.Window, ack.Seq = wire.ACK, 0xffff, c.RcvNxt()
	ack.Opt.Present = wire.HasTS
	var out tcp.Out
	b.ResetTimer()
	for i := 0; i < b.N; {
		for range 8 {
			if !c.Poll(now, src, &out) { // Poll after each acknowledgement
				break
			}
			i++
		}
		now = now.Add(10 * tick.Microsecond)
		ack.Ack = c.SndNxt()
		ack.Opt.TSVal, ack.Opt.TSEcr = uint32(now/1e6), uint32(now/1e6)
		c.Input(&ack, now)
		c.Finish(now)
		c.Events()
	}
}

// nothing is an MPA sink that accepts every ULPDU and discards it.
type nothing struct{}

func (nothing) Place(*ulpdu.View, bool) *ulpdu.Error { return nil }
func (nothing) Silent([]byte, int) bool              { return false }
func (nothing) Deliver(h []byte, n int) *ulpdu.Error { return nil }

// blob is an MPA source that always has another ULPDU, as long as b and the limit allow. The first bytes of b stand for
// a tagged DDP header and are copied; the others are lent as payload in memory.
type blob struct{ b []byte }

func (s *blob) NextULPDU(max int) (ulpdu.Ref, int) { return ulpdu.Ref{}, min(max, len(s.b)) }
func (s *blob) ULPDUWaiting() bool                 { return false }
func (s *blob) ReadULPDU(_ ulpdu.Ref, dst []byte) (int, []byte) {
	return copy(dst, s.b[:ddp.TaggedLen]), s.b[ddp.TaggedLen:len(dst)]
}
func (s *blob) LendULPDU(ref ulpdu.Ref, dst []byte) (int, []byte) { return s.ReadULPDU(ref, dst) }
func (s *blob) ReleaseULPDU(ulpdu.Ref)                            {}

// locate measures MPA's receiver: it finds the FPDU in a segment, without markers. With crc it also checks the CRC.
func locate(b *testing.B, n int, crc bool) {
	f := mpa.Framing{CRC: crc}
	var s mpa.Sender
	s.Init(mpa.SenderConfig{Framing: f}, 0, n, &blob{make([]byte, n)})
	size, _ := s.Next(n)
	fpdu := make([]byte, size)
	s.Fill(seq.Of(0, size), fpdu)
	var r mpa.Receiver
	r.Init(mpa.ReceiverConfig{Framing: f, Pool: mpa.NewPool(0, 0)}, 0, nothing{})
	at, one := seq.Num(0), [1][]byte{}
	for b.Loop() {
		one[0] = fpdu
		r.Offer(at, one[:], size, checksum.Known{})
		at = at.Add(size)
		r.Advance(at)
	}
}

// place measures DDP and RDMAP at the receiver: they check a tagged segment and copy its payload to registered memory.
func place(b *testing.B, n int) {
	e, err := newQueuePair(1<<20, func(*rdmap.Completion) {})
	if err != nil {
		b.Fatal(err)
	}
	if err := e.qp.Start(rdmap.Params{Version: ddp.IETF, IRD: 1, ORD: 1}); err != nil {
		b.Fatal(err)
	}
	h := ddp.Tagged{Control: ddp.MakeControl(true, true, ddp.IETF), ULP: 0x40, STag: e.mr.STag()}
	f := append(ddp.AppendTagged(nil, h), make([]byte, n-22)...)
	v := ulpdu.ViewOf(f)
	for b.Loop() {
		if e.qp.Place(&v, true) != nil || e.qp.Deliver(f[:18], len(f)) != nil {
			b.Fatal("a valid segment was refused")
		}
	}
}

func frameBuild(b *testing.B, n int) {
	var s mpa.Sender
	s.Init(mpa.SenderConfig{Framing: mpa.Framing{CRC: true}}, 0, n, &blob{make([]byte, n)})
	dst := make([]byte, n)
	at := seq.Num(0)
	for b.Loop() {
		m, _ := s.Next(n)
		s.Fill(seq.Of(at, m), dst)
		at = at.Add(m)
		s.Acked(at)
	}
}

func headerBuild(b *testing.B, n int) {
	h := ip.Header{Proto: ip.ProtoTCP, TTL: 64, DF: true, PayloadLen: 32 + n}
	t := wire.Header{SrcPort: 1, DstPort: 2, Seq: 100, Ack: 200, Flags: wire.ACK, Window: 1000}
	t.Opt.Present = wire.HasTS
	buf := make([]byte, 60)
	for b.Loop() {
		t.Seq = t.Seq.Add(n)
		t.Put(buf[h.Put(buf):])
	}
}

func work(b *testing.B, n int) {
	src, dst := make([]byte, n), make([]byte, n)
	for b.Loop() {
		sink += wire.Sum(src, 0) + uint64(crc32.Checksum(src, castagnoli))
		copy(dst, src)
	}
}
