package impair

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"xwarp/tcp/tick"
)

// event is what a receiver sees of a flow, in order: a byte at a sequence number, or a segment without payload.
type event struct {
	seq   uint32
	value byte
	bare  bool // a segment without payload
}

// events returns the events of one segment.
func events(seq uint32, payload []byte) (es []event) {
	if len(payload) == 0 {
		return []event{{seq: seq, bare: true}}
	}
	for i, o := range payload {
		es = append(es, event{seq: seq + uint32(i), value: o})
	}
	return es
}

type flowID struct {
	v6   bool
	port uint16
}

// sender makes random segments of one flow: new data, retransmissions, data after a gap, and pure ACKs.
type sender struct {
	id   flowID
	vlan uint16
	una  uint32
	nxt  uint32
	ack  uint32
	ts   uint32
}

func (s *sender) next(r *rand.Rand, most int) segment {
	g := segment{v6: s.id.v6, vlan: s.vlan, port: s.id.port, seq: s.nxt, ack: s.ack, ts: s.ts,
		psh: r.IntN(4) == 0}
	if s.ts != 0 {
		s.ts += uint32(r.IntN(2))
	}
	switch d := r.IntN(20); {
	case d == 0: // pure ACK
		s.ack += uint32(r.IntN(1000))
		g.psh, g.ack = false, s.ack
		return g
	case d == 1 && s.nxt-s.una < 1<<20: // a retransmission from any earlier byte on
		g.seq = s.nxt - uint32(r.IntN(int(s.nxt-s.una)+1))
	case d == 2: // a gap: an earlier segment was lost before the middlebox
		g.seq += uint32(1 + r.IntN(3000))
	}
	g.payload = make([]byte, 1+r.IntN(most))
	for i := range g.payload {
		g.payload[i] = byteAt(g.seq + uint32(i))
	}
	if end := g.seq + uint32(len(g.payload)); int32(end-s.nxt) > 0 {
		s.nxt = end
	}
	return g
}

// byteAt returns the byte that every test stream has at a sequence number.
func byteAt(seq uint32) byte { return byte(seq ^ seq>>8 ^ seq>>16*31) }

func TestRecutKeepsStream(t *testing.T) {
	seed := uint64(rand.Uint32())
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	for round := range rounds {
		s := seed + uint64(round)
		if !t.Run("", func(t *testing.T) { recutRound(t, s) }) {
			t.Fatalf("seed %d", s)
		}
	}
}

func recutRound(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 99))
	mtu := []int{1280, 1500, 9000}[r.IntN(3)]
	b := newBench(t, Config{Resegment: true}, seed, mtu)
	var senders []*sender
	for i := range 1 + r.IntN(4) {
		s := &sender{id: flowID{r.IntN(2) == 0, uint16(1000 + i)}, una: r.Uint32(),
			vlan: uint16(r.IntN(2) * 7)}
		s.nxt = s.una
		if r.IntN(2) == 0 {
			s.ts = 1 + r.Uint32N(1<<30)
		}
		senders = append(senders, s)
	}
	want, got := map[flowID][]event{}, map[flowID][]event{}
	pushes, pshOut := map[flowID]map[uint32]bool{}, 0
	look := func(fs [][]byte) {
		for _, f := range fs {
			d := decode(t, f)
			if !d.sumsRight || d.ipLen > mtu {
				t.Fatalf("seed %d: checksums right %v, %d bytes at MTU %d", seed, d.sumsRight,
					d.ipLen, mtu)
			}
			id := flowID{d.v6, uint16(d.SrcPort)}
			got[id] = append(got[id], events(d.Seq, d.Payload)...)
			if d.PSH {
				pshOut++
				if len(d.Payload) > 0 && !anyPush(pushes[id], d.Seq, len(d.Payload)) {
					t.Fatalf("seed %d: PSH in a piece where no segment with PSH ended", seed)
				}
			}
		}
	}
	now, pshIn := tick.Time(0), 0
	for range 400 {
		s := senders[r.IntN(len(senders))]
		g := s.next(r, mtu-FrameOverhead-72)
		want[s.id] = append(want[s.id], events(g.seq, g.payload)...)
		if g.psh {
			pshIn++
			if pushes[s.id] == nil {
				pushes[s.id] = map[uint32]bool{}
			}
			pushes[s.id][g.seq+uint32(len(g.payload))] = true
		}
		b.push(g.build(t), now)
		if r.IntN(3) == 0 {
			now = now.Add(tick.Duration(r.IntN(300)) * tick.Microsecond)
			look(b.drain(now))
		}
	}
	look(b.finish())
	for id := range want {
		if !slices.Equal(want[id], got[id]) {
			t.Fatalf("seed %d: the bytes of flow %+v differ: %d in, %d out", seed, id,
				len(want[id]), len(got[id]))
		}
	}
	if pshIn > 0 && pshOut == 0 {
		t.Errorf("seed %d: all %d PSH are lost", seed, pshIn)
	}
	if c := b.Counters(); c.RecutIn == 0 || c.RecutOut == 0 || c.BadChecksum != 0 {
		t.Errorf("seed %d: wrong counters: %+v", seed, c)
	}
}

// anyPush reports whether one of ends, the ends of segments with PSH, is in the piece of n bytes at seq.
func anyPush(ends map[uint32]bool, seq uint32, n int) bool {
	for i := 1; i <= n; i++ {
		if ends[seq+uint32(i)] {
			return true
		}
	}
	return false
}

// TestRecutMovesBoundaries checks that many pieces end inside an original segment, and that many hold bytes of two
// original segments.
func TestRecutMovesBoundaries(t *testing.T) {
	b := newBench(t, Config{Resegment: true}, 1, 1500)
	const each, count = 1000, 200
	for i := range count {
		g := segment{port: 1, seq: uint32(i * each), payload: make([]byte, each)}
		b.push(g.build(t), tick.Time(i)*1000)
	}
	inside, across := 0, 0
	for _, f := range b.finish() {
		d := decode(t, f)
		end := int(d.Seq) + len(d.Payload)
		if end%each != 0 {
			inside++
		}
		if int(d.Seq)/each != (end-1)/each {
			across++
		}
	}
	if inside < count/4 || across < count/4 {
		t.Errorf("%d pieces end inside an old segment, %d hold bytes of two; of %d", inside,
			across, count)
	}
}

func TestRecutEndsAndPasses(t *testing.T) {
	data := []byte("0123456789")
	for _, c := range []struct {
		name string
		last segment // follows a segment of ten bytes at sequence number 100
		bad  bool    // last has a wrong checksum
		want []event // events of last; nil: those of its ten bytes
	}{
		{"FIN closes at once", segment{seq: 110, fin: true, payload: data}, false, nil},
		{"SYN passes behind", segment{seq: 500, syn: true}, false, []event{{seq: 500, bare: true}}},
		{"RST passes behind", segment{seq: 110, rst: true}, false, []event{{seq: 110, bare: true}}},
		{"wrong checksum is kept", segment{seq: 110, payload: data}, true, events(110, data)},
		{"bare FIN passes behind", segment{seq: 110, fin: true}, false,
			[]event{{seq: 110, bare: true}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, Config{Resegment: true}, 3, 1500)
			first := segment{port: 9, seq: 100, payload: data}
			b.push(first.build(t), 0)
			if fs := b.drain(0); len(fs) != 0 {
				t.Fatalf("a first segment was not held: %d frames", len(fs))
			}
			c.last.port = 9
			f := c.last.build(t)
			if c.bad {
				f[len(f)-1] ^= 1
			}
			b.push(f, 0)
			var got []event
			fins, wrong := 0, 0
			for _, f := range b.drain(0) { // no time has passed
				d := decode(t, f)
				if d.FIN {
					fins++
				}
				if !d.sumsRight {
					wrong++
				}
				got = append(got, events(d.Seq, d.Payload)...)
			}
			if c.last.fin != (fins == 1) || c.bad != (wrong == 1) || b.Held() != 0 {
				t.Errorf("%d FIN, %d wrong checksums, %d held", fins, wrong, b.Held())
			}
			want := append(events(100, data), c.want...)
			if c.want == nil {
				want = append(want, events(110, data)...)
			}
			if c.bad {
				want[len(want)-1].value ^= 1
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(event{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestRecutKeepsApart checks that segments are not merged if their headers differ or if the second does not follow the
// first.
func TestRecutKeepsApart(t *testing.T) {
	data := make([]byte, 100)
	for _, c := range []struct {
		name string
		edit func(*segment)
	}{
		{"ECN", func(s *segment) { s.ecn = 3 }},
		{"gap", func(s *segment) { s.seq++ }},
		{"overlap", func(s *segment) { s.seq-- }},
		{"VLAN", func(s *segment) { s.vlan = 5 }},
	} {
		b := newBench(t, Config{Resegment: true}, 3, 1500)
		first := segment{port: 9, seq: 1000, payload: data}
		second := segment{port: 9, seq: 1100, payload: data}
		c.edit(&second)
		b.push(first.build(t), 0)
		b.push(second.build(t), 0)
		for _, f := range b.finish() {
			d := decode(t, f)
			if d.Seq < 1099 && int(d.Seq)+len(d.Payload) > 1100 {
				t.Errorf("%s: a piece reaches from %d over the border at 1100", c.name, d.Seq)
			}
			if (d.Seq >= 1100) != (d.ecn == second.ecn) && c.name == "ECN" {
				t.Errorf("ECN of the piece at %d is %d", d.Seq, d.ecn)
			}
		}
	}
}

func TestRecutManyFlows(t *testing.T) {
	b := newBench(t, Config{Resegment: true}, 3, 1500)
	for i := range 3 * maxRuns {
		s := segment{port: uint16(i), seq: 1, payload: []byte{1}}
		b.push(s.build(t), 0)
	}
	if h := b.recut.held(); h != maxRuns {
		t.Errorf("%d segments of as many flows are held, the limit is %d", h, maxRuns)
	}
	if got := len(b.drain(0)) + len(b.finish()); got != 3*maxRuns {
		t.Errorf("%d frames came out, want %d", got, 3*maxRuns)
	}
}
