package loss

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// path is the model of a path: a rate, a delay, a drop-tail queue and random faults. It works in virtual time, with
// random numbers from one seed.
type path struct {
	rate    int // bytes per second, 0 for infinite
	delay   tick.Duration
	queue   int     // maximum of waiting bytes
	mark    int     // number of waiting bytes from which segments are marked, 0 for never
	loss    float64 // share of segments lost at random
	ackLoss float64
	reorder float64       // share of segments delayed by late
	late    tick.Duration // extra delay of these segments
	dup     float64
}

// delivery is a segment or an acknowledgement on its way.
type delivery struct {
	at   tick.Time
	n    uint64 // order of creation, decides between equal times
	data bool
	r    seq.Range
	ts   uint32
	ce   bool
	ack  Ack
}

// sim is one transfer of total bytes from a Sender to an ideal receiver.
type sim struct {
	rng      *rand.Rand
	path     path
	s        *Sender
	cfg      Config
	now      tick.Time
	start    seq.Num
	total    int
	size     func() int // length of the next record
	free     tick.Time  // time at which the bottleneck is idle again
	heap     []delivery
	n        uint64
	rcv      receiver
	tx       int // bytes sent, all transmissions
	steps    int
	check    bool
	boundary map[seq.Num]seq.Num
	trouble  error
}

type receiver struct {
	nxt    seq.Num
	ooo    []seq.Range // sorted
	recent []seq.Range // most recently changed first
	ts     uint32
	unack  int
	flush  tick.Time // time of the delayed acknowledgement, 0 for none
}

func newSim(seed uint64, cfg Config, p path, total int) *sim {
	m := &sim{rng: rand.New(rand.NewPCG(seed, 7)), path: p, s: new(Sender), cfg: cfg, total: total,
		start: seq.Num(seed * 0x9e3779b9), now: tick.Time(tick.Second), check: true,
		boundary: map[seq.Num]seq.Num{}}
	m.size = func() int { return cfg.CC.MSS }
	m.rcv.nxt = m.start
	m.s.Init(&cfg, m.start, m.now)
	m.s.SetHandshakeRTT(2*p.delay+tick.Microsecond, false)
	return m
}

func (m *sim) push(d delivery) {
	d.n = m.n
	m.n++
	i, _ := slices.BinarySearchFunc(m.heap, d, func(a, b delivery) int {
		if a.at != b.at {
			return int(b.at - a.at)
		}
		return int(b.n) - int(a.n)
	})
	m.heap = slices.Insert(m.heap, i, d) // earliest last
}

func (m *sim) transmit(r seq.Range) {
	m.tx += r.Len()
	ts := m.cfg.Clock.TSVal(m.now)
	if m.rng.Float64() < m.path.loss {
		return
	}
	at, ce := m.now, false
	if m.path.rate > 0 {
		begin := max(m.free, m.now)
		waiting := int(int64(begin.Sub(m.now)) * int64(m.path.rate) / int64(tick.Second))
		if waiting+r.Len() > m.path.queue {
			return
		}
		ce = m.path.mark > 0 && waiting >= m.path.mark
		m.free = begin.Add(tick.Duration(r.Len()+60) * tick.Second / tick.Duration(m.path.rate))
		at = m.free
	}
	at = at.Add(m.path.delay)
	if m.rng.Float64() < m.path.reorder {
		at = at.Add(m.path.late)
	}
	m.push(delivery{at: at, data: true, r: r, ts: ts, ce: ce})
	if m.rng.Float64() < m.path.dup {
		m.push(delivery{at: at.Add(tick.Microsecond), data: true, r: r, ts: ts, ce: ce})
	}
}

// send runs the transmit loop of the package comment.
func (m *sim) send() {
	for range 100000 {
		if tx, ok := m.s.Retransmit(m.now); ok {
			r := tx.Range
			if r.Len() > m.s.mss {
				r.End = r.Start.Add(m.s.mss)
			} else if end, ok := m.boundary[r.Start]; m.check && ok && end != r.End {
				m.fail("retransmission %v of a record that ends at %v", r, end)
			}
			m.transmit(r)
			m.s.Retransmitted(r, m.now)
			continue
		}
		if m.s.Permit(m.now) == 0 {
			return
		}
		left := m.start.Add(m.total).Diff(m.s.Nxt())
		if left == 0 {
			if !m.s.NoNewData(m.now) {
				return
			}
			continue
		}
		r := seq.Of(m.s.Nxt(), min(left, m.size(), m.s.mss))
		m.boundary[r.Start] = r.End
		m.s.Sent(r, Data, r.Len() == left, m.now)
		m.transmit(r)
	}
	m.fail("the transmit loop does not end")
}

func (m *sim) fail(f string, a ...any) {
	if m.trouble == nil {
		m.trouble = fmt.Errorf("at %v: "+f, append([]any{m.now}, a...)...)
	}
}

// run simulates until all bytes are acknowledged, and returns an error if they are not within limit.
func (m *sim) run(limit tick.Duration) error {
	end := m.now.Add(limit)
	m.send()
	for m.s.Una() != m.start.Add(m.total) && m.trouble == nil {
		next := m.s.Deadline()
		if f := m.rcv.flush; f != 0 && f < next &&
			(len(m.heap) == 0 || f < m.heap[len(m.heap)-1].at) {
			m.now = max(m.now, f)
			m.acknowledge(seq.Range{}, false)
			continue
		}
		isNet := len(m.heap) > 0 && m.heap[len(m.heap)-1].at <= next
		if isNet {
			next = m.heap[len(m.heap)-1].at
		}
		if next == tick.Never || next > end {
			return fmt.Errorf("stuck at %v: una %d of %d bytes, next event %v, %+v", m.now,
				m.s.Una().Diff(m.start), m.total, next, m.s.Info(m.now))
		}
		m.now = max(m.now, next)
		if isNet {
			d := m.heap[len(m.heap)-1]
			m.heap = m.heap[:len(m.heap)-1]
			if d.data {
				m.receive(d)
			} else {
				if m.n%8 != 0 {
					m.s.Ack(&d.ack, m.now)
				} else if _, err := ackTwice(m.s, &d.ack, m.now); err != nil {
					m.fail("%v", err)
				}
			}
		} else if m.s.Expire(m.now); m.s.Deadline() <= m.now {
			m.fail("deadline %v is not after Expire", m.s.Deadline())
		}
		m.send()
		if m.steps++; m.check {
			if err := invariants(m.s); err != nil {
				m.fail("%w", err)
			}
		}
	}
	return m.trouble
}

func (m *sim) receive(d delivery) {
	v := &m.rcv
	dup := seq.Range{}
	if d.r.End.LessEq(v.nxt) {
		dup = d.r
	}
	for _, o := range v.ooo {
		if o.Covers(d.r) {
			dup = d.r
		}
	}
	gap := len(v.ooo) > 0 || v.nxt.Less(d.r.Start)
	if d.r.Start.LessEq(v.nxt) {
		v.ts = d.ts
	}
	v.add(d.r)
	v.unack++
	if !gap && dup.Empty() && v.unack < 2 && !d.ce && v.nxt != m.start.Add(m.total) {
		v.flush = m.now.Add(delayedAck)
		return
	}
	m.acknowledge(dup, d.ce)
}

const delayedAck = tick.Millisecond

func (m *sim) acknowledge(dup seq.Range, ce bool) {
	v := &m.rcv
	a := Ack{HasTS: m.cfg.Clock.Tick > 0}
	v.unack, v.flush = 0, 0
	a.Ack, a.TSEcr, a.ECE = v.nxt, v.ts, ce
	if !dup.Empty() {
		a.SACK[0], a.NSACK = dup, 1
	}
	for _, r := range v.recent {
		if a.NSACK < 3 {
			a.SACK[a.NSACK] = r
			a.NSACK++
		}
	}
	if m.cfg.Mode == NoSACK {
		a.NSACK = 0
	}
	if m.rng.Float64() < m.path.ackLoss {
		return
	}
	m.push(delivery{at: m.now.Add(m.path.delay), ack: a})
}

// add adds the received range r to the reassembly queue.
func (v *receiver) add(r seq.Range) {
	if r.End.LessEq(v.nxt) {
		return
	}
	var keep []seq.Range
	for _, o := range v.ooo {
		if o.Start.LessEq(r.End) && r.Start.LessEq(o.End) {
			r.Start, r.End = seq.Min(r.Start, o.Start), seq.Max(r.End, o.End)
		} else {
			keep = append(keep, o)
		}
	}
	v.ooo = keep
	if r.Start.LessEq(v.nxt) {
		v.nxt = r.End
	} else {
		v.ooo = append(v.ooo, r)
	}
	recent := v.recent
	v.recent = nil
	if v.nxt.Less(r.Start) {
		v.recent = append(v.recent, r)
	}
	for _, o := range recent {
		if v.nxt.LessEq(o.Start) && !r.Covers(o) {
			v.recent = append(v.recent, o)
		}
	}
}

// invariants recomputes the sender's sums and lists from its records, and returns an error if they differ.
func invariants(s *Sender) error {
	var n, bytes [places]int
	at := s.una
	for id := s.q.head; id != s.q.tail; id++ {
		r := s.q.at(id)
		if r.start != at || r.size == 0 || r.transmissions == 0 {
			return fmt.Errorf("record %d begins at %d, not %d: %+v", id, r.start, at, *r)
		}
		at = r.end()
		n[r.place]++
		bytes[r.place] += int(r.size)
	}
	if at != s.nxt {
		return fmt.Errorf("records end at %d, nxt is %d", at, s.nxt)
	}
	for p := range s.q.list {
		l := s.q.list[p]
		if l.n != n[p] || l.bytes != bytes[p] {
			return fmt.Errorf("list %d counts %d records and %d bytes, there are %d and %d", p,
				l.n, l.bytes, n[p], bytes[p])
		}
		if place(p) == sacked {
			continue
		}
		id := l.first
		for i := range l.n {
			r := s.q.at(id)
			if r.place != place(p) {
				return fmt.Errorf("list %d has record %d of list %d", p, id, r.place)
			}
			if i > 0 && place(p) == inFlight && r.sent < s.q.at(r.prev).sent {
				return fmt.Errorf("record %d in flight, sent at %d, is behind one sent at %d",
					id, r.sent, s.q.at(r.prev).sent)
			}
			if i == l.n-1 && id != l.last {
				return fmt.Errorf("list %d ends at %d, not %d", p, id, l.last)
			}
			if id2 := r.next; i < l.n-1 && s.q.at(id2).prev != id {
				return fmt.Errorf("list %d is broken at %d", p, id)
			}
			id = r.next
		}
	}
	if i := s.Info(0); bytes[inFlight]+i.Sacked+i.Lost != s.Outstanding() {
		return fmt.Errorf("%d bytes in flight, %d SACKed and %d lost, of %d", bytes[inFlight],
			i.Sacked, i.Lost, s.Outstanding())
	}
	above, aboveN := 0, 0
	for id := s.lossMark; id != s.q.tail; id++ {
		if int32(id-s.q.head) < 0 || int32(s.q.tail-id) < 0 {
			return fmt.Errorf("lossMark %d is outside of %d..%d", s.lossMark, s.q.head, s.q.tail)
		}
		if r := s.q.at(id); r.place == sacked {
			above += int(r.size)
			aboveN++
		}
	}
	if above != s.above || aboveN != s.aboveN {
		return fmt.Errorf("above lossMark: %d bytes in %d records, counted %d in %d", above,
			aboveN, s.above, s.aboveN)
	}
	switch {
	case s.Pipe() < 0 || s.Pipe() > s.Outstanding():
		return fmt.Errorf("pipe %d of %d", s.Pipe(), s.Outstanding())
	case s.cc.Cwnd() < 1:
		return fmt.Errorf("window %d", s.cc.Cwnd())
	case s.q.len() > 0 && s.timers.rto == tick.Never:
		return fmt.Errorf("no retransmission timer with %d records", s.q.len())
	case s.q.len() == 0 && s.timers.rto != tick.Never:
		return errors.New("a retransmission timer with nothing in flight")
	case s.dups < 0 || s.dups > 0 && s.dups >= max(s.q.len(), 1):
		return fmt.Errorf("%d duplicates with %d records", s.dups, s.q.len())
	}
	return nil
}
