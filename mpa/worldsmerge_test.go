package mpa

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
)

// tally is a number of cases, and of those that failed.
type tally struct{ cases, failed uint64 }

func (t *tally) add(o tally) { t.cases, t.failed = t.cases+o.cases, t.failed+o.failed }

// merged tries all cases of a stream as paths through a graph. A node is the part of the past that still matters: the
// state of the run, the gaps that are still to be filled and with how many segments, the segments that must come again,
// and whether a fault may still come. Paths that meet in a node are continued once, and each of them counts. A gap is
// cut only when a segment of it comes, so that cuts share what they have in common.
type merged struct {
	smallRun
	places []int  // where the stream may be cut
	second []bool // second[p]: p is cut only if p-1 is, because the two places are alike
	c      smallCase
	at     place
	path   []arrival
	saved  [maxSegments + 2][]byte // the state at each depth
	seeds  [2]maphash.Seed
	memo   map[[2]uint64]tally
	fills  map[[2]int][maxSegments + 1]uint64 // ways to cut a gap, by the number of segments
	key    []byte
	nodes  uint64 // tried
	first  string // the first case that failed
}

const (
	maxSegments = 6
	memoLimit   = 4 << 20 // nodes that are remembered; when there are more, all are forgotten
	noFault     = -1
)

// place is the part of a node apart from the states of receiver and sink: the segments that have come, and the gaps.
type place struct {
	n          int              // segments and gaps
	ends       [maxSegments]int // of each segment or gap
	have       [maxSegments]int // bytes that were kept
	come       uint             // bit i: it is a segment that has come, not a gap
	left       int              // segments that may still come
	fault      bool             // a fault may still come
	hurt, harm bool
}

// arrival is one step of a case: the segment [from, to) comes, perhaps again. Its byte at offset wrong is changed,
// unless that is noFault.
type arrival struct {
	from, to, wrong int
	again           bool
}

func (a arrival) String() string {
	switch {
	case a.again:
		return fmt.Sprintf("%d-%d again", a.from, a.to)
	case a.wrong != noFault:
		return fmt.Sprintf("%d-%d with byte %d wrong", a.from, a.to, a.wrong)
	}
	return fmt.Sprintf("%d-%d", a.from, a.to)
}

func newMerged(w *smallStream) *merged {
	m := &merged{smallRun: newSmallRun(w), memo: map[[2]uint64]tally{},
		fills:  map[[2]int][maxSegments + 1]uint64{},
		second: make([]bool, len(w.stream)+1)}
	m.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	for _, s := range w.slots {
		for k := range min(s.n, maxSegments) {
			m.places = append(m.places, s.at+k)
			m.second[s.at+k] = k > 0
		}
	}
	return m
}

// enumerate tries every cut, order and fault within b.
func (m *merged) enumerate(b bound) tally {
	clear(m.memo)
	m.c = smallCase{ends: []int{len(m.w.stream)}, again: noFault, wrong: noFault}
	m.empty()
	m.begin(m.c)
	m.at = place{n: 1, left: b.segments, fault: b.faults}
	m.at.ends[0] = len(m.w.stream)
	return m.visit("")
}

// visit counts the cases that continue from the current node. why is the fault that the step to this node showed, or
// empty.
func (m *merged) visit(why string) (t tally) {
	copy(m.at.have[:], m.have)
	m.at.hurt, m.at.harm = m.hurt, m.harm
	whole := m.at.come == 1<<m.at.n-1
	all := whole && !m.at.fault && m.edge == len(m.w.stream)
	if why == "" && (all || m.err != nil) { // nothing more is offered, so all cases end alike
		n := m.ways()
		if why = m.rest(m.c); why == "" {
			return tally{cases: n}
		}
	}
	if why != "" {
		return m.failed(why, m.ways())
	}
	depth := len(m.path)
	c := code{b: m.saved[depth][:0]}
	m.state(&c)
	m.saved[depth] = c.b
	key := m.hash(c.b)
	if t, ok := m.memo[key]; ok {
		return t
	}
	m.nodes++
	at := m.at
	if whole {
		m.restore(depth, &at)
		if why := m.rest(m.c); why != "" {
			t = m.failed(why, 1)
		} else {
			t.cases = 1
		}
		m.at = at
	}
	m.next(func(a arrival, to *place, seg int) {
		m.restore(depth, to)
		m.path = append(m.path, a)
		m.c.wrong = a.wrong
		t.add(m.visit(m.arrive(m.c, seg, a.again)))
		m.c.wrong = noFault
		m.path = m.path[:depth]
		m.at = at
	})
	if len(m.memo) >= memoLimit {
		clear(m.memo)
	}
	m.memo[key] = t
	return t
}

// restore makes the run's state the one at depth, and its place to.
func (m *merged) restore(depth int, to *place) {
	m.at = *to
	m.state(&code{b: m.saved[depth], reading: true})
	m.c.ends = append(m.c.ends[:0], to.ends[:to.n]...)
	m.have = append(m.have[:0], to.have[:to.n]...)
	m.hurt, m.harm, m.sink.fault = to.hurt, to.harm, ""
	m.edge = m.leftEdge(m.c)
}

// next calls do with each arrival that is possible now, the place after it, and the number of its segment there.
func (m *merged) next(do func(a arrival, to *place, seg int)) {
	at, start := m.at, 0
	spare := at.left // segments that no gap needs
	for i := range at.n {
		if at.come&(1<<i) == 0 {
			spare -= m.fewest(start, at.ends[i])
		}
		start = at.ends[i]
	}
	start = 0
	for i := range at.n {
		a, b := start, at.ends[i]
		start = b
		if at.come&(1<<i) == 0 {
			m.cut(&at, i, a, b, spare+m.fewest(a, b), do)
		} else if at.fault {
			to := at
			to.fault = false
			do(arrival{a, b, noFault, true}, &to, i)
		}
	}
}

// cut calls do with each segment that gap i may begin to be filled with. The gap is [a, b), and it may be cut into up
// to most segments.
func (m *merged) cut(at *place, i, a, b, most int, do func(a arrival, to *place, seg int)) {
	m.inside(a, b, func(p int) {
		before := 0
		if p > a {
			before = m.fewest(a, p)
		}
		m.inside(p, b, func(q int) {
			if q == p {
				q = b
			}
			after := 0
			if q < b {
				after = m.fewest(q, b)
			}
			if m.second[q] && p != q-1 || before+1+after > most {
				return
			}
			to, seg := at.split(i, a, p, q)
			do(arrival{from: p, to: q, wrong: noFault}, &to, seg)
			if at.fault {
				for wrong := range m.w.wrongBytes(p, q) {
					hurt := to
					hurt.fault = false
					do(arrival{from: p, to: q, wrong: wrong}, &hurt, seg)
				}
			}
		})
	})
}

// inside calls do with a and with each place to cut between a and b.
func (m *merged) inside(a, b int, do func(p int)) {
	do(a)
	for _, p := range m.places {
		if p > a && p < b {
			do(p)
		}
	}
}

// split returns at with the bytes [p, q) of gap i as a segment, and the number of that segment. The gap begins at a;
// its other bytes stay gaps.
func (at *place) split(i, a, p, q int) (to place, seg int) {
	to, to.n, to.come = *at, i, at.come&(1<<i-1)
	add := func(end, have int, come bool) {
		to.ends[to.n], to.have[to.n] = end, have
		if come {
			to.come |= 1 << to.n
		}
		to.n++
	}
	if p > a {
		add(p, 0, false)
	}
	seg = to.n
	add(q, 0, true)
	if q < at.ends[i] {
		add(at.ends[i], 0, false)
	}
	for k := i + 1; k < at.n; k++ {
		add(at.ends[k], at.have[k], at.come&(1<<k) != 0)
	}
	for k := to.n; k < maxSegments; k++ {
		to.ends[k], to.have[k] = 0, 0
	}
	to.left--
	return to, seg
}

// fewest returns the least number of segments that fill the gap [a, b).
func (m *merged) fewest(a, b int) (n int) {
	for n = 1; m.second[b] && a != b-1; n++ {
		b--
	}
	return n
}

// failed returns the tally of n failed cases. It records why the first case failed.
func (m *merged) failed(why string, n uint64) tally {
	if m.first == "" {
		m.first = fmt.Sprintf("arrivals %v: %s", m.path, why)
	}
	return tally{n, n}
}

// ways counts the cases that continue from the current node without trying them.
func (m *merged) ways() (n uint64) {
	at := m.at
	if !at.fault {
		return m.orders(&at)
	}
	if at.come == 1<<at.n-1 {
		n = 1
	}
	m.next(func(_ arrival, to *place, _ int) {
		m.at = *to
		n += m.ways()
	})
	m.at = at
	return n
}

// orders counts the cuts of all gaps, with all orders of their segments.
func (m *merged) orders(at *place) (n uint64) {
	by := [maxSegments + 1]uint64{1} // ways by the number of segments
	start := 0
	for i := range at.n {
		if at.come&(1<<i) == 0 {
			fill, sum := m.fill(start, at.ends[i]), [maxSegments + 1]uint64{}
			for k, ways := range by {
				for l := 0; k+l <= at.left; l++ {
					sum[k+l] += ways * fill[l]
				}
			}
			by = sum
		}
		start = at.ends[i]
	}
	factorial := uint64(1)
	for k, ways := range by[:at.left+1] {
		n += ways * factorial
		factorial *= uint64(k + 1)
	}
	return n
}

// fill counts the ways to cut the gap [a, b), by the number of segments.
func (m *merged) fill(a, b int) (by [maxSegments + 1]uint64) {
	if by, ok := m.fills[[2]int{a, b}]; ok {
		return by
	}
	m.inside(a, b, func(p int) { // the last segment is [p, b)
		switch {
		case m.second[b] && p != b-1:
		case p == a:
			by[1]++
		default:
			for k, ways := range m.fill(a, p) {
				if k < maxSegments {
					by[k+1] += ways
				}
			}
		}
	})
	m.fills[[2]int{a, b}] = by
	return by
}

// hash identifies a node by 128 bits, enough to tell millions of nodes apart.
func (m *merged) hash(state []byte) [2]uint64 {
	k := append(m.key[:0], state...)
	flag := func(b bool) {
		if k = append(k, 0); b {
			k[len(k)-1] = 1
		}
	}
	flag(m.at.fault)
	flag(m.at.hurt)
	flag(m.at.harm)
	k = append(k, byte(m.at.left))
	start := 0
	for i, end := range m.at.ends[:m.at.n] {
		come := m.at.come&(1<<i) != 0
		if !come || m.at.fault || start+m.at.have[i] < end { // it may come, or come again
			flag(come)
			k = binary.LittleEndian.AppendUint32(k, uint32(start))
			k = binary.LittleEndian.AppendUint32(k, uint32(m.at.have[i]))
			k = binary.LittleEndian.AppendUint32(k, uint32(end))
		}
		start = end
	}
	m.key = k
	return [2]uint64{maphash.Bytes(m.seeds[0], k), maphash.Bytes(m.seeds[1], k)}
}
