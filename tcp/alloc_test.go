package tcp_test

import (
	"testing"
	"unsafe"

	"xwarp/tcp"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// endless is a Source that always has more bytes.
type endless struct{}

func (endless) Next(room int) (int, bool) { return room, true }

// established returns the two ends of one established connection.
func established(tb testing.TB) (a, b *tcp.Conn, now tick.Time) {
	cfg := tcp.Config{RcvSpace: 1 << 20, RcvSpaceMax: 1 << 20}
	a, b = new(tcp.Conn), new(tcp.Conn)
	now = 1e9
	a.Init(&cfg, 1, 2, 100, now)
	b.Init(&cfg, 2, 1, 0xfffffff0, now)
	a.Connect(now)
	b.Connect(now) // simultaneous open
	for range 4 {
		pump(a, b, now, nil)
		pump(b, a, now, nil)
	}
	if a.State() != tcp.Established || b.State() != tcp.Established {
		tb.Fatalf("%v %v", a.State(), b.State())
	}
	return a, b, now
}

var pumped tcp.Segment

// pump passes all segments of the connection from to the connection to, and returns the number of their payload bytes.
func pump(from, to *tcp.Conn, now tick.Time, src tcp.Source) (n int) {
	var out tcp.Out
	for from.Poll(now, src, &out) {
		pumped.Header, pumped.Len = out.Header, out.Payload.Len()
		n += pumped.Len
		o := to.Input(&pumped, now)
		for _, r := range o.R[:o.N] {
			to.Keep(r)
		}
		to.Finish(now)
	}
	to.SetRcvSpace(1<<20, now)
	return n
}

func TestNoAllocation(t *testing.T) {
	a, b, now := established(t)
	var src tcp.Source = endless{}
	step := func() {
		now = now.Add(tick.Millisecond)
		pump(a, b, now, src)
		pump(b, a, now, nil)
		a.Events()
		b.Events()
		if d := min(a.Deadline(), b.Deadline()); d <= now {
			a.Expire(now)
			b.Expire(now)
		}
	}
	for range 100 {
		step()
	}
	if n := testing.AllocsPerRun(200, step); n != 0 {
		t.Errorf("%v allocations for a window of segments and their acknowledgements", n)
	}
	// With holes: every third segment is lost.
	i := 0
	lossy := func() {
		now = now.Add(tick.Millisecond)
		var out tcp.Out
		for a.Poll(now, src, &out) {
			if i++; i%3 == 0 {
				continue
			}
			pumped.Header, pumped.Len = out.Header, out.Payload.Len()
			o := b.Input(&pumped, now)
			for _, r := range o.R[:o.N] {
				b.Keep(r)
			}
			b.Finish(now)
		}
		b.SetRcvSpace(1<<20, now)
		pump(b, a, now, nil)
		a.Expire(now)
		b.Expire(now)
	}
	for range 500 {
		lossy()
	}
	if n := testing.AllocsPerRun(200, lossy); n != 0 {
		t.Errorf("%v allocations with losses", n)
	}
}

func TestConnSize(t *testing.T) {
	n := unsafe.Sizeof(tcp.Conn{})
	t.Logf("a connection takes %d bytes", n)
	if n > 4096 {
		t.Errorf("a connection takes %d bytes: a slab of 10,000 takes more than 40 MB", n)
	}
}

// BenchmarkReceive measures the receive path of one full segment, with its share of the sent acknowledgements.
func BenchmarkReceive(b *testing.B) {
	_, c, now := established(b)
	s := tcp.Segment{Len: 1448}
	s.Flags, s.Seq, s.Ack, s.Window = wire.ACK|wire.PSH, 101, c.SndNxt(), 0xffff
	s.Opt.Present = wire.HasTS
	s.Opt.TSVal = 5000
	var out tcp.Out
	b.ReportAllocs()
	for b.Loop() {
		o := c.Input(&s, now)
		c.Keep(o.R[0])
		c.Finish(now)
		s.Seq = s.Seq.Add(1448)
		c.SetRcvSpace(1<<20, now)
		for c.Poll(now, nil, &out) {
		}
	}
}

// BenchmarkSend measures the send path of one full segment, with its share of the received acknowledgements.
func BenchmarkSend(b *testing.B) {
	c, _, now := established(b)
	var src tcp.Source = endless{}
	ack := tcp.Segment{}
	ack.Flags, ack.Window = wire.ACK, 0xffff
	ack.Seq = c.RcvNxt()
	ack.Opt.Present = wire.HasTS
	var out tcp.Out
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if !c.Poll(now, src, &out) || n == 2 {
			now = now.Add(10 * tick.Microsecond)
			ack.Ack = c.SndNxt()
			ack.Opt.TSVal = uint32(now / 1e6)
			ack.Opt.TSEcr = uint32(now / 1e6)
			c.Input(&ack, now)
			c.Finish(now)
			n = 0
			continue
		}
		n++
	}
}
