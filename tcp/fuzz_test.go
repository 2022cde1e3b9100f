package tcp_test

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"xwarp/engine/testkit/havoc"
	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// driver makes operations on a connection from bytes, and checks invariants after each.
type driver struct {
	t     *testing.T
	c     tcp.Conn
	now   tick.Time
	src   queue
	kept  map[int]bool // bytes kept so far, by their distance from irs+1
	base  seq.Num      // irs+1 once known
	nxt   seq.Num      // RCV.NXT at the last check
	known bool
	in    []byte
	ended bool

	full  bool      // use neither the fast path of Input nor runs
	steps int       // number of segments on the fast path or in runs
	out   []tcp.Out // all segments sent
}

func (d *driver) u8() int {
	if len(d.in) == 0 {
		return 0
	}
	v := d.in[0]
	d.in = d.in[1:]
	return int(v)
}

func (d *driver) u16() int { return d.u8()<<8 | d.u8() }

// near returns a sequence number close to one of around.
func (d *driver) near(around ...seq.Num) seq.Num {
	k := d.u8()
	return around[k%len(around)].Add(int(int16(d.u16())) >> (k >> 5))
}

func (d *driver) segment() {
	var s tcp.Segment
	s.Flags = wire.Flags(d.u16()) & wire.FlagMask
	if d.u8()%2 == 0 {
		s.Flags = []wire.Flags{fA, fA, fA, fFA, fSA, fS, fR}[d.u8()%7]
	}
	s.Seq = d.near(d.c.RcvNxt(), d.c.RcvNxt(), d.c.RcvNxt().Add(d.c.Info(d.now).RcvWnd), irs)
	s.Ack = d.near(d.c.SndUna(), d.c.SndNxt(), d.c.SndNxt())
	if d.u8()%2 == 0 {
		s.Seq, s.Ack = d.c.RcvNxt(), d.c.SndNxt()
	}
	s.Window = uint16(d.u16())
	s.Len = d.u16() % 4000
	s.ECN = tcp.ECN(d.u8() & 3)
	o := d.u8()
	if o&1 != 0 {
		s.Opt.Present |= wire.HasTS
		s.Opt.TSVal, s.Opt.TSEcr = uint32(d.u16()), uint32(d.u16())
	}
	if o&2 != 0 {
		s.Opt.Present |= wire.HasSACK
		s.Opt.NSACK = uint8(1 + d.u8()%4)
		for i := range s.Opt.NSACK {
			s.Opt.SACK[i] = seq.Range{Start: d.near(d.c.SndUna(), d.c.SndNxt()),
				End: d.near(d.c.SndUna(), d.c.SndNxt())}
		}
	}
	if s.Flags&fS != 0 {
		s.Opt.Present |= wire.OptSet(d.u8()) & (wire.HasMSS | wire.HasWScale |
			wire.HasSACKPermitted | wire.HasTS)
		s.Opt.MSS, s.Opt.WScale = uint16(d.u16()), uint8(d.u8())
	}
	if o&4 != 0 {
		s.Opt.Present |= wire.HasAccECN0
		s.Opt.NAccECN, s.Opt.AccECN[1] = 3, uint32(d.u16())
	}
	d.give(&s, o)
}

func (d *driver) give(s *tcp.Segment, how int) {
	wasSynSent := d.c.State() == tcp.SynSent
	edge := d.c.RcvNxt().Add(d.c.Info(d.now).RcvWnd)
	input := d.c.Input
	if d.full {
		input = d.c.InputInFull
	} else if d.c.TakesFastPath(s, d.now) {
		d.steps++
	}
	o := input(s, d.now)
	if wasSynSent && d.c.State() != tcp.SynSent && d.c.State() != tcp.Closed {
		_, d.base = d.c.DataStart()
		d.nxt, d.known = d.base, true
		edge = d.c.RcvNxt().Add(d.c.Info(d.now).RcvWnd)
	}
	last := s.Start()
	for _, r := range o.R[:o.N] {
		if r.Empty() || r.Start.Less(last) || s.Start().Add(s.Len).Less(r.End) ||
			edge.Less(r.End) || r.Start.Less(d.c.RcvNxt()) {
			d.t.Fatalf("offer %+v of %v len %d, RCV.NXT %d, edge %d", o, &s.Header, s.Len,
				d.c.RcvNxt(), edge)
		}
		last = r.End
		for x := r.Start; x != r.End; x++ {
			if d.kept[x.Diff(d.base)] {
				d.t.Fatalf("byte %d is offered again", x)
			}
		}
		if how&8 != 0 { // keep a part
			r = seq.Range{Start: r.Start.Add(d.u8() % r.Len()), End: r.End}
			r.End = r.Start.Add(d.u16() % (r.Len() + 1))
		}
		if how&16 == 0 {
			d.c.Keep(r)
			for x := r.Start; x != r.End; x++ {
				d.kept[x.Diff(d.base)] = true
			}
		}
	}
	d.c.Finish(d.now)
}

func (d *driver) check() {
	i := d.c.Info(d.now)
	if d.c.State() == tcp.Closed {
		if !d.ended && d.c.Cause() == tcp.CauseNone && d.known {
			d.t.Fatal("closed without a cause")
		}
		if d.c.Deadline() != tick.Never {
			d.t.Fatalf("CLOSED with deadline %d", d.c.Deadline())
		}
		return
	}
	if d.c.SndNxt().Less(d.c.SndUna()) || i.RcvWnd < 0 || i.Holes > tcp.MaxHoles+tcp.MaxOffer {
		d.t.Fatalf("una %d nxt %d: %+v", d.c.SndUna(), d.c.SndNxt(), i)
	}
	if !d.known {
		return
	}
	if d.c.RcvNxt().Less(d.nxt) {
		d.t.Fatalf("RCV.NXT moves back from %d to %d", d.nxt, d.c.RcvNxt())
	}
	end := d.c.RcvNxt()
	if d.c.PeerFIN() {
		end--
	}
	for x := d.nxt; x.Less(end); x++ {
		if !d.kept[x.Diff(d.base)] {
			d.t.Fatalf("RCV.NXT passed byte %d, which was never kept", x)
		}
	}
	d.nxt = seq.Max(d.nxt, end)
}

func (d *driver) poll() {
	var out tcp.Out
	for n := 0; d.c.Poll(d.now, &d.src, &out); n++ {
		if out.Run == tcp.RunNext {
			d.steps++
		}
		d.out = append(d.out, out.Plain())
		if n > 5000 {
			d.t.Fatalf("Poll does not end in %v", d.c.State())
		}
		if out.Len() > wire.MaxHeaderLen {
			d.t.Fatalf("%d bytes of header: %v", out.Len(), &out.Header)
		}
		options := out.Opt.Len()
		if out.Opt.Present&wire.HasTS != 0 {
			options -= wire.TimestampsLen // EMSS leaves room for it
		}
		if k := out.Payload.Len(); k > 0 && k+options > d.c.EMSS() && !out.MTUProbe {
			d.t.Fatalf("%d bytes, %d of options, EMSS %d", k, options, d.c.EMSS())
		}
		if out.Flags&fA != 0 && d.known && d.c.RcvNxt().Less(out.Ack) {
			d.t.Fatalf("acknowledges %d, RCV.NXT %d", out.Ack, d.c.RcvNxt())
		}
		for _, r := range out.Opt.SACK[:btoi(out.Opt.Present.Has(wire.HasSACK))*int(
			out.Opt.NSACK)] {
			for x := r.Start; x != r.End; x++ {
				if r.Len() > 1<<20 || !d.kept[x.Diff(d.base)] {
					d.t.Fatalf("SACK %v of bytes that were not kept", r)
				}
			}
		}
		if d.full {
			out = tcp.Out{}
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (d *driver) run() {
	for len(d.in) > 0 {
		switch op := d.u8(); op % 16 {
		default:
			d.segment()
		case 8, 9:
			d.poll()
		case 10:
			d.now = d.now.Add(tick.Duration(d.u16()) * tick.Millisecond)
			if d.c.Deadline() <= d.now {
				d.c.Expire(d.now)
				if d.c.Deadline() <= d.now {
					d.t.Fatalf("deadline is due after Expire in %v", d.c.State())
				}
			}
		case 11:
			d.src.sizes = append(d.src.sizes, 1+d.u16()%3000)
			d.src.split = op&16 != 0
		case 12:
			d.c.SetRcvSpace(d.u16(), d.now)
		case 13:
			d.c.ICMP(&ip.ICMPError{Kind: ip.ICMPKind(d.u8() % 10), MTU: d.u16(),
				Seq: d.near(d.c.SndUna(), d.c.SndNxt())}, d.now)
		case 14:
			switch op >> 4 {
			case 0, 1, 2, 3, 4:
				d.c.Shutdown(d.now)
				d.src.split = true
			case 5:
				d.c.Detach(d.now)
			case 6:
				d.c.Abort(d.now)
				d.ended = true
			}
		case 15:
			d.c.PathMTU(d.u16(), d.now)
		}
		d.check()
	}
	d.poll()
	d.check()
}

// runDriver runs the same operations with and without fast path and runs, and compares the results. It returns the
// number of segments on the fast path or in runs.
func runDriver(t *testing.T, in []byte) int {
	a, b := drive(t, in, true), drive(t, in, false)
	if !slices.Equal(a.out, b.out) || !tcp.Same(&a.c, &b.c) {
		for i := range min(len(a.out), len(b.out)) {
			if a.out[i] != b.out[i] {
				t.Fatalf("segment %d with first steps:\n%+v\nnot:\n%+v", i, b.out[i], a.out[i])
			}
		}
		t.Fatalf("%d segments, and with first steps %d:\n%+v\n%+v", len(a.out), len(b.out),
			a.c.Info(a.now), b.c.Info(b.now))
	}
	return b.steps
}

func drive(t *testing.T, in []byte, full bool) *driver {
	d := &driver{t: t, now: 1e9, kept: map[int]bool{}, in: in, full: full}
	how := d.u8()
	cfg := tcp.Config{NoTimestamps: how&1 != 0, NoSACK: how&2 != 0, ECN: tcp.ECNMode(how >> 2 & 3),
		MaxHoles: 8, QuickAcks: how>>4 - 1,
		ProbeMTU: how&64 != 0, KeepaliveIdle: tick.Duration(how>>7) * tick.Second}
	d.c.Init(&cfg, 1, 2, iss, d.now)
	d.c.Connect(d.now)
	d.poll()
	if how&32 != 0 { // begin established
		s := tcp.Segment{}
		s.Flags, s.Seq, s.Ack, s.Window = fSA, irs, iss+1, 0xffff
		s.Opt.Present, s.Opt.MSS, s.Opt.WScale = wire.HasMSS|wire.HasSACKPermitted|wire.HasWScale,
			1000, 2
		d.give(&s, 0)
		d.check()
		d.poll()
	}
	d.run()
	return d
}

// FuzzConn passes any sequence of segments, times and calls to a connection.
func FuzzConn(f *testing.F) {
	r := rand.New(rand.NewPCG(9, 9))
	for range 30 {
		f.Add(randomOps(r, 400))
	}
	havoc.Fuzz(f, func(t *testing.T, in []byte) { runDriver(t, in) })
}

func randomOps(r *rand.Rand, n int) []byte {
	b := make([]byte, 0, n+8)
	b = append(b, byte(r.Uint32()|32))
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return b
}

// TestRandomOps runs the fuzzer's driver over random operations.
func TestRandomOps(t *testing.T) {
	n := 3000
	if testing.Short() {
		n = 300
	}
	steps := 0
	for seed := range uint64(n) {
		in := randomOps(rand.New(rand.NewPCG(seed, 5)), 600)
		if !t.Run("", func(t *testing.T) { t.Logf("seed %d", seed); steps += runDriver(t, in) }) {
			return
		}
	}
	if t.Logf("%d first steps", steps); steps < n/10 {
		t.Errorf("%d first steps", steps)
	}
}
