package tcp_test

import (
	"bytes"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"xwarp/engine/bytestream/stream"
	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// host is one end of a pipe: a connection, its buffers and an application that sends data and closes.
type host struct {
	name  string
	c     tcp.Conn
	l     *tcp.Listener // answers SYNs until the connection exists
	open  bool
	snd   stream.Send
	rcv   stream.Recv
	ready bool // buffers are set up

	data     []byte // not written yet
	want     []byte // what must arrive
	got      int
	closed   bool
	readSize int // maximum of bytes per read; 0: no limit
	pause    tick.Time
	readGap  tick.Duration
	recvMax  int
	nagle    bool
	events   tcp.Events
	badCRC   float64 // share of segments whose bytes are not kept, as after a wrong CRC
	fin      bool
	noShut   bool
	autosize bool          // the receive buffer follows WantRcvSpace
	doneAt   tick.Time     // time at which our FIN was acknowledged
	records  *recordSource // source of data instead of a plain stream
}

// source returns the Source for Poll.
func (h *host) source() tcp.Source {
	if h.records != nil {
		return h.records
	}
	return &h.snd
}

type packet struct {
	at  tick.Time
	n   int // order of sending
	to  *host
	b   []byte // TCP header and payload
	ecn tcp.ECN
}

type packets []packet

func (p packets) Len() int { return len(p) }
func (p packets) Less(i, j int) bool {
	return p[i].at < p[j].at || p[i].at == p[j].at && p[i].n < p[j].n
}
func (p packets) Swap(i, j int) { p[i], p[j] = p[j], p[i] }
func (p *packets) Push(x any)   { *p = append(*p, x.(packet)) }
func (p *packets) Pop() any {
	o := *p
	x := o[len(o)-1]
	*p = o[:len(o)-1]
	return x
}

// pipe joins two hosts by a path with delay, loss, duplication and reordering in virtual time.
type pipe struct {
	t    *testing.T
	rng  *rand.Rand
	a, b host
	now  tick.Time
	fly  packets
	sent int

	markedBytes int // payload bytes sent to B with CE

	delay   tick.Duration
	jitter  tick.Duration
	loss    float64
	dup     float64
	mark    float64 // share of ECT packets that arrive with CE
	markAll bool    // all packets arrive with CE, except those of the handshake
	resize  float64 // share of data segments cut in two by a middlebox
	mtu     int     // larger packets are lost; 0: no limit
	icmp    bool    // report them by ICMP
	batch   int     // segments processed before Poll
	drop    func(from *host, h *wire.Header, n int) bool
	trace   *strings.Builder
	opened  tcp.Tuple

	cuts   bool           // records may be cut, since EMSS may fall
	onSend func(*tcp.Out) // sees each segment

	full     bool // use neither the fast path of Input nor runs
	expected int  // segments with data on the fast path
	acks     int  // segments without data on the fast path
	runs     int  // segments of runs from Poll
	inRuns   int  // segments from PollRun
}

const (
	portA = 40000
	portB = 7
)

func newPipe(t *testing.T, seed uint64, ca, cb tcp.Config) *pipe {
	p := &pipe{t: t, rng: rand.New(rand.NewPCG(seed, 1)), now: tick.Time(seed%1000) * 1e6,
		delay: tick.Millisecond, batch: 1}
	p.a.name, p.b.name = "A", "B"
	p.a.recvMax, p.b.recvMax = 1<<16, 1<<16
	iss := func() seq.Num { return seq.Num(p.rng.Uint32()) }
	ca.TSOffset, cb.TSOffset = p.rng.Uint32(), p.rng.Uint32()
	p.a.c.Init(&ca, portA, portB, iss(), p.now)
	p.b.l = new(tcp.Listener)
	t.Cleanup(func() { countedUp(t, p.a.c.Counters(), p.b.c.Counters(), p.b.l.Counters()) })
	lc := tcp.ListenConfig{Conn: cb}
	for i := range lc.Key {
		lc.Key[i] = byte(p.rng.Uint32())
	}
	p.b.l.Init(&lc, p.now)
	p.a.open = true
	p.opened = tcp.Tuple{Local: ip.AddrFrom4([4]byte{10, 0, 0, 2}),
		Remote: ip.AddrFrom4([4]byte{10, 0, 0, 1}), LocalPort: portB, RemotePort: portA}
	return p
}

func (p *pipe) traceOn() { p.trace = new(strings.Builder) }

func (p *pipe) log(format string, a ...any) {
	if p.trace != nil && p.trace.Len() < 1<<20 {
		fmt.Fprintf(p.trace, "%10.3f ", float64(p.now)/1e6)
		fmt.Fprintf(p.trace, format+"\n", a...)
	}
}

func (p *pipe) other(h *host) *host {
	if h == &p.a {
		return &p.b
	}
	return &p.a
}

// send puts a segment on the path.
func (p *pipe) send(from *host, out *tcp.Out) {
	if p.onSend != nil {
		p.onSend(out)
	}
	n := out.Payload.Len()
	b := make([]byte, out.Len()+n)
	off := out.Put(b)
	if off != out.Len() {
		p.t.Fatalf("Put wrote %d bytes, Len says %d: %v", off, out.Len(), &out.Header)
	}
	if n > 0 {
		if !out.Payload.Start.Add(0).LessEq(out.Seq) || out.Payload.Start != out.Seq {
			p.t.Fatalf("payload %v does not begin at seq %d", out.Payload, out.Seq)
		}
		from.snd.Fill(out.Payload, b[off:])
		// A receiver may keep only a part of a record, and a middlebox may deliver only a part: the rest is then
		// retransmitted.
		begins := func(s *recordSource) bool {
			return s.ends[out.Payload.Start] || out.Retransmit &&
				out.Payload.Start == from.c.SndUna()
		}
		if s := from.records; s != nil && !p.cuts && !(begins(s) && s.ends[out.Payload.End]) {
			p.fail("%s: segment %v does not begin and end with a record", from.name, out.Payload)
		}
		if n > from.c.EMSS() && !out.MTUProbe {
			p.t.Fatalf("%s: %d bytes in a segment, EMSS %d", from.name, n, from.c.EMSS())
		}
	}
	p.log("%s> %v len %d retrans %v", from.name, &out.Header, n, out.Retransmit)
	p.put(from, b, off, out.ECN, &out.Header)
}

func (p *pipe) put(from *host, b []byte, off int, ecn tcp.ECN, h *wire.Header) {
	p.sent++
	if p.drop != nil && p.drop(from, h, len(b)-off) || p.rng.Float64() < p.loss {
		p.log("   lost")
		return
	}
	if p.mtu > 0 && len(b)+20 > p.mtu {
		if p.icmp {
			from.c.ICMP(&ip.ICMPError{Kind: ip.PacketTooBig, MTU: p.mtu, Seq: h.Seq}, p.now)
		}
		p.log("   too big")
		return
	}
	if ecn == tcp.ECT0 && p.rng.Float64() < p.mark {
		ecn = tcp.CE
		if from == &p.a {
			p.markedBytes += len(b) - off
		}
	}
	if n := from.c.Counters(); p.markAll && h.Flags&wire.SYN == 0 && n.BytesIn+n.BytesOut > 0 {
		ecn = tcp.CE
	}
	copies := 1
	if p.rng.Float64() < p.dup {
		copies = 2
	}
	for range copies {
		if n := len(b) - off; n > 1 && p.rng.Float64() < p.resize {
			cut := 1 + p.rng.IntN(n-1)
			first := append([]byte(nil), b[:off+cut]...)
			first[13] &^= byte(wire.FIN | wire.PSH)
			second := append(append([]byte(nil), b[:off]...), b[off+cut:]...)
			s := uint32(h.Seq) + uint32(cut)
			second[4], second[5], second[6], second[7] = byte(s>>24), byte(s>>16), byte(s>>8),
				byte(s)
			p.push(from, first, ecn)
			p.push(from, second, ecn)
			continue
		}
		p.push(from, b, ecn)
	}
}

func (p *pipe) push(from *host, b []byte, ecn tcp.ECN) {
	d := p.delay
	if p.jitter > 0 {
		d += tick.Duration(p.rng.Int64N(int64(p.jitter)))
	}
	heap.Push(&p.fly, packet{at: p.now.Add(d), n: p.sent, to: p.other(from), b: b, ecn: ecn})
}

// setUp initializes a host's buffers once its connection knows the initial sequence numbers.
func (h *host) setUp() {
	if h.ready {
		return
	}
	h.ready = true
	s, r := h.c.DataStart()
	h.snd.Init(s, 4096, 1<<18)
	h.snd.SetNagle(h.nagle)
	h.rcv.Init(r, 4096, h.recvMax)
	if h.records != nil {
		h.c.KeepBoundaries(true)
		h.snd.SetNagle(false)
		h.records.ends[s] = true
	}
}

// receive passes one packet to a host.
func (p *pipe) receive(h *host, pk *packet) {
	var s tcp.Segment
	off, err := s.Decode(pk.b)
	if err != nil {
		p.t.Fatalf("decode: %v", err)
	}
	s.Len, s.ECN = len(pk.b)-off, pk.ecn
	if !h.open {
		var out tcp.Out
		t := p.opened
		switch h.l.Input(&t, &s, p.now, &out) {
		case tcp.Reply:
			p.send(h, &out)
			return
		case tcp.Drop:
			return
		}
		if !h.l.Accept(&t, &s, &h.c, p.now) {
			p.t.Fatal("Ready, but Accept says no")
		}
		h.open = true
	}
	input := h.c.Input
	switch {
	case p.full:
		input = h.c.InputInFull
	case !h.c.TakesFastPath(&s, p.now):
	case s.Len > 0:
		p.expected++
	default:
		p.acks++
	}
	o := input(&s, p.now)
	bad := p.rng.Float64() < h.badCRC
	for _, r := range o.R[:o.N] {
		if bad {
			break
		}
		h.setUp()
		at := r.Start.Diff(s.Start())
		n := h.rcv.Put(r.Start, pk.b[off+at:off+at+r.Len()])
		h.c.Keep(seq.Of(r.Start, n))
	}
	h.c.Finish(p.now)
}

// app runs a host's application: it reads and writes data, and closes after the last byte.
func (p *pipe) app(h *host) {
	ev := h.c.Events()
	h.events |= ev
	if ev != 0 {
		p.log("%s: events %b state %v", h.name, ev, h.c.State())
	}
	if !h.open || h.c.State() < tcp.Established && !h.ready {
		return
	}
	h.setUp()
	if ev&(tcp.EMSSChanged|tcp.Connected) != 0 {
		if h.records == nil {
			h.snd.SetEMSS(h.c.EMSS())
		}
	}
	if ev&tcp.Acked != 0 {
		h.snd.Acked(h.c.SndUna())
	}
	h.rcv.Advance(h.c.RcvNxt())
	if ev&tcp.FINAcked != 0 {
		h.doneAt = p.now
	}
	if h.autosize {
		h.rcv.SetLimit(max(h.recvMax, h.c.WantRcvSpace()))
	}
	if ev&tcp.PeerClosed != 0 {
		h.fin = true
	}
	if h.pause <= p.now {
		p.read(h)
	}
	h.c.SetRcvSpace(h.rcv.Space(), p.now)
	if n := h.snd.Write(h.data); n > 0 {
		h.data = h.data[n:]
	}
	if len(h.data) == 0 && !h.closed && !h.noShut {
		h.closed = true
		h.snd.Close()
		h.c.Shutdown(p.now)
	}
}

func (p *pipe) read(h *host) {
	n := h.rcv.Ready()
	if h.readSize > 0 && n > h.readSize {
		n = h.readSize
	}
	buf := make([]byte, n)
	h.rcv.Read(buf)
	if !bytes.Equal(buf, h.want[h.got:min(len(h.want), h.got+n)]) {
		p.t.Fatalf("%s: bytes %d..%d are wrong", h.name, h.got, h.got+n)
	}
	h.got += n
	if h.readGap > 0 {
		h.pause = p.now.Add(h.readGap)
	}
}

func (p *pipe) poll(h *host) {
	if !h.open {
		return
	}
	var out tcp.Out
	for i := 0; ; i++ {
		if p.full {
			out = tcp.Out{}
		}
		if !h.c.Poll(p.now, h.source(), &out) {
			return
		}
		if out.Run == tcp.RunNext {
			p.runs++
		}
		p.send(h, &out)
		if !p.full && h.records == nil && !h.c.PeerFIN() {
			p.pollRun(h, &out)
		}
		if i > 100000 {
			p.t.Fatalf("%s: Poll does not end; state %v", h.name, h.c.State())
		}
	}
}

// pollRun sends the segments that PollRun adds to the run in out.
func (p *pipe) pollRun(h *host, out *tcp.Out) {
	first, flags := out.Payload.End, out.Flags
	size := out.Payload.Len()
	n := h.c.PollRun(p.now, runs{h}, out, 1+h.c.Info(p.now).Unacked/max(size, 1)%9)
	p.inRuns += n
	last := *out
	for i := range n {
		o := last
		o.Payload = seq.Of(first.Add(i*size), size)
		if o.Seq = o.Payload.Start; i < n-1 {
			o.Flags = flags
		}
		p.send(h, &o)
	}
}

// runs is a host's send buffer as a tcp.RunSource.
type runs struct{ h *host }

func (r runs) Next(room int) (int, bool) { return r.h.snd.Next(room) }

func (r runs) NextRun(size, most int) (n int, more bool) {
	for more = true; n < most && size == r.h.c.EMSS() && r.h.snd.Waiting() >= size; n++ {
		_, more = r.Next(size)
	}
	return n, more
}

// step advances the time to the next event and handles it. It returns false if there is none.
func (p *pipe) step() bool {
	next := tick.Never
	if len(p.fly) > 0 {
		next = p.fly[0].at
	}
	for _, h := range []*host{&p.a, &p.b} {
		if h.open {
			next = min(next, h.c.Deadline())
			if h.readGap > 0 && h.ready && h.rcv.Ready() > 0 {
				next = min(next, h.pause)
			}
		}
		if h.l != nil && !h.open {
			next = min(next, h.l.Deadline())
		}
	}
	if next == tick.Never {
		return false
	}
	p.now = max(p.now, next)
	for k := 0; len(p.fly) > 0 && p.fly[0].at <= p.now && k < p.batch; k++ {
		pk := heap.Pop(&p.fly).(packet)
		p.receive(pk.to, &pk)
	}
	for _, h := range []*host{&p.a, &p.b} {
		if h.open && h.c.Deadline() <= p.now {
			p.log("%s: timer", h.name)
			h.c.Expire(p.now)
			if h.c.Deadline() <= p.now {
				p.t.Fatalf("%s: deadline is still due after Expire, state %v", h.name, h.c.State())
			}
		}
		if h.l != nil && !h.open {
			var t tcp.Tuple
			var out tcp.Out
			for h.l.Poll(p.now, &t, &out) {
				p.send(h, &out)
			}
		}
		p.app(h)
		p.poll(h)
		p.app(h)
	}
	return true
}

func (p *pipe) connect() {
	p.a.c.Connect(p.now)
	p.poll(&p.a)
}

// exchange makes random data for both directions: ab bytes from A to B, ba bytes from B to A.
func (p *pipe) exchange(ab, ba int) {
	mk := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(p.rng.Uint32())
		}
		return b
	}
	p.a.data, p.b.data = mk(ab), mk(ba)
	p.a.want, p.b.want = p.b.data, p.a.data
}

// run runs steps until both sides are closed, at most for the time limit, and checks that all data arrived and no timer
// is left.
func (p *pipe) run(limit tick.Duration) {
	p.t.Helper()
	end := p.now.Add(limit)
	for i := 0; p.now < end && p.step(); i++ {
		if i > 300_000 {
			p.fail("no end in sight: %d packets sent", p.sent)
		}
	}
	for _, h := range []*host{&p.a, &p.b} {
		if h.c.State() != tcp.Closed || h.c.Cause() != tcp.CauseClosed || h.got != len(h.want) ||
			h.c.Deadline() != tick.Never || !h.fin {
			p.fail("%s: state %v, cause %v, %d of %d bytes, FIN %v, deadline %d", h.name,
				h.c.State(), h.c.Cause(), h.got, len(h.want), h.fin, h.c.Deadline())
		}
		if h.c.Info(p.now).HeldBytes != 0 {
			p.fail("%s: %d bytes held at the end", h.name, h.c.Info(p.now).HeldBytes)
		}
	}
	if len(p.fly) > 0 && p.now < end {
		p.fail("packets left in flight")
	}
}

func (p *pipe) fail(format string, a ...any) {
	p.t.Helper()
	if p.trace != nil {
		s := p.trace.String()
		if len(s) > 9000 {
			s = s[:2000] + "\n...\n" + s[len(s)-7000:]
		}
		p.t.Log("\n" + s)
	}
	p.t.Fatalf(format, a...)
}
