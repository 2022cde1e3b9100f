package mpa

import (
	"bytes"
	"fmt"
	"slices"

	"xwarp/mpa/ulpdu"
	"xwarp/tcp/checksum"
	"xwarp/tcp/seq"
)

// smallStart lets sequence numbers wrap inside every small stream.
const smallStart = seq.Num(0xfffffff9)

// smallCase is one way in which a small stream arrives.
type smallCase struct {
	ends  []int // ends of the segments
	order []int // segments in the order in which they come
	again int   // segment that comes twice, -1 for none
	after int   // index in order behind which it comes the second time
	wrong int   // byte that is wrong the first time that it comes, -1 for none
}

func (c smallCase) String() string {
	return fmt.Sprintf("segments to %v in order %v, %d again after %d, byte %d wrong", c.ends,
		c.order, c.again, c.after, c.wrong)
}

// sinkKind is the reaction of the layer above to each FPDU.
type sinkKind uint8

const (
	deliverAll sinkKind = iota
	mixedSink           // the second and fifth are silent, the third and fourth refused out of order
)

func (k sinkKind) silent(i int) bool  { return k == mixedSink && i%3 == 1 }
func (k sinkKind) refuses(i int) bool { return k == mixedSink && (i == 2 || i == 3) }

// ulpduOf returns ULPDU i, each byte of which is i+1.
func ulpduOf(i, n int) []byte { return bytes.Repeat([]byte{byte(i + 1)}, n) }

// smallSink checks that only sent bytes are placed, once, and delivered in order.
type smallSink struct {
	w         *smallStream
	placed    uint // bit i: FPDU i is placed
	delivered int  // FPDUs, those that need no delivery included once they are passed
	fault     string
	sent      [][]byte
	scratch   []byte
}

func (s *smallSink) Place(v *ulpdu.View, inOrder bool) *ulpdu.Error {
	got := s.scratch[:v.Len()]
	v.CopyTo(got, 0)
	i := int(got[0]) - 1
	switch {
	case i < 0 || i >= len(s.sent) || !bytes.Equal(got, s.sent[i]):
		s.fault = fmt.Sprintf("placed %x, which was not sent", got)
		return nil
	case !inOrder && s.w.sink.refuses(i):
		return &ulpdu.Error{Layer: ulpdu.DDP}
	case s.placed&(1<<i) != 0:
		s.fault = fmt.Sprintf("placed %d twice", i)
	}
	s.placed |= 1 << i
	return nil
}

func (s *smallSink) Silent(hdr []byte, _ int) bool { return s.w.sink.silent(int(hdr[0]) - 1) }

func (s *smallSink) Deliver(hdr []byte, n int) *ulpdu.Error {
	i := int(hdr[0]) - 1
	// A silent FPDU may be delivered, when it was placed in order; otherwise it is passed.
	for s.delivered < i && s.w.sink.silent(s.delivered) {
		s.delivered++
	}
	if i != s.delivered || n != s.w.sizes[i] || s.placed&(1<<i) == 0 {
		s.fault = fmt.Sprintf("delivered %d of %d bytes when %d was due", i, n, s.delivered)
	}
	s.delivered = i + 1
	return nil
}

// smallRun tries cases of one stream.
type smallRun struct {
	w    *smallStream
	r    Receiver
	sink smallSink
	have []int // bytes of each segment that were kept
	buf  []byte
	edge int // TCP's left edge
	err  *ulpdu.Error
	harm bool       // a wrong byte was kept
	hurt bool       // the wrong byte came
	held [][2]int64 // where bytes were kept and not placed, for state
	// spoil gives the receiver a defect: it runs after each offer of n bytes, and returns how many were kept.
	spoil func(x *smallRun, kept, n int) int
}

func newSmallRun(w *smallStream) smallRun {
	run := smallRun{w: w, buf: make([]byte, len(w.stream))}
	for i, n := range w.sizes {
		run.sink.sent = append(run.sink.sent, ulpduOf(i, n))
	}
	run.sink.w, run.sink.scratch = w, make([]byte, MaxULPDU)
	return run
}

// begin makes x ready for c.
func (x *smallRun) begin(c smallCase) {
	x.sink.placed, x.sink.delivered, x.sink.fault = 0, 0, ""
	x.r.Init(x.w.cfg, smallStart, &x.sink)
	x.have = append(x.have[:0], make([]int, len(c.ends))...)
	x.edge, x.err, x.harm, x.hurt = 0, nil, false, false
	x.held = x.held[:0]
}

// try runs c until everything has arrived, and returns the fault, if any.
func (x *smallRun) try(c smallCase) string {
	x.begin(c)
	for at, seg := range c.order {
		if why := x.arrive(c, seg, false); why != "" {
			return fmt.Sprintf("segment %d: %s", seg, why)
		}
		if c.again >= 0 && c.after == at {
			if why := x.arrive(c, c.again, true); why != "" {
				return fmt.Sprintf("segment %d again: %s", c.again, why)
			}
		}
	}
	return x.rest(c)
}

// rest retransmits refused segments until everything has arrived, and returns the fault, if any.
func (x *smallRun) rest(c smallCase) string {
	for round := 0; x.edge < len(x.w.stream) && x.err == nil; round++ {
		if round > 8 {
			return fmt.Sprintf("no progress at byte %d: %+v", x.edge, x.r.Stats())
		}
		for seg := range c.ends {
			if why := x.arrive(c, seg, false); why != "" {
				return fmt.Sprintf("segment %d sent again: %s", seg, why)
			}
		}
	}
	return x.finish(c)
}

// arrive offers the receiver the bytes of segment seg that were not kept before, as TCP would. With raw it offers a
// segment that was kept whole again.
func (x *smallRun) arrive(c smallCase, seg int, raw bool) string {
	start := 0
	if seg > 0 {
		start = c.ends[seg-1]
	}
	p, q := start+x.have[seg], c.ends[seg]
	if raw && p == q {
		return x.twice(c, start, q)
	}
	if p == q || x.err != nil {
		return ""
	}
	b := x.buf[:q-p]
	copy(b, x.w.stream[p:q])
	wrong := c.wrong >= p && c.wrong < q && !x.hurt
	if wrong {
		b[c.wrong-p] ^= 0x21
		x.hurt = true
	}
	half := len(b) / 2 // in two pieces, as from two buffers
	kept, err := x.r.Offer(smallStart.Add(p), [][]byte{b[:half], b[half:]}, len(b),
		checksum.Known{})
	clear(b)
	if x.spoil != nil {
		kept = x.spoil(x, kept, q-p)
	}
	if kept < 0 || kept > q-p || err == nil && !x.hurt && kept < q-p {
		return fmt.Sprintf("kept %d of %d", kept, q-p)
	}
	if wrong && kept > c.wrong-p && p == x.edge && x.areWholeFPDUs(p, q) &&
		!isLength(&x.r, x.w.borders, c.wrong) {
		return fmt.Sprintf("byte %d is wrong, and was kept", c.wrong)
	}
	x.have[seg] += kept
	x.harm = x.harm || wrong && kept > c.wrong-p
	x.edge = x.leftEdge(c)
	if e := x.r.Advance(smallStart.Add(x.edge)); err == nil {
		err = e
	}
	x.err = err
	if x.sink.fault != "" {
		return x.sink.fault
	}
	if why := x.hold(c); why != "" {
		return why
	}
	if err := x.r.Audit(smallStart.Add(x.edge)); err != nil {
		return err.Error()
	}
	return x.check(c)
}

// leftEdge returns the offset up to which all bytes were kept.
func (x *smallRun) leftEdge(c smallCase) (edge int) {
	start := 0
	for seg, end := range c.ends {
		if edge = start + x.have[seg]; edge < end {
			break
		}
		start = end
	}
	return edge
}

// twice offers bytes that were kept before, against Offer's rule. They must not change the receiver's state.
func (x *smallRun) twice(c smallCase, p, q int) string {
	b := x.buf[:q-p]
	copy(b, x.w.stream[p:q])
	before, placed := x.r.Stats(), x.sink.placed
	_, err := x.r.Offer(smallStart.Add(p), [][]byte{b}, len(b), checksum.Known{})
	clear(b)
	s := x.r.Stats()
	if err != nil && x.err == nil || placed != x.sink.placed || s.FPDUs != before.FPDUs ||
		s.HeldBytes != before.HeldBytes || s.Records != before.Records ||
		s.Holes != before.Holes {
		return fmt.Sprintf("bytes that were there changed it from %+v to %+v, %v", before, s, err)
	}
	if x.sink.fault != "" {
		return x.sink.fault
	}
	return x.hold(c)
}

// check compares the placed, delivered and held bytes with those that the received bytes allow.
func (x *smallRun) check(c smallCase) string {
	if x.hurt {
		return "" // nothing can be said of the state while a wrong length may be undetected
	}
	if x.err != nil {
		return fmt.Sprintf("error %v without a fault", x.err)
	}
	want := x.known(c)
	if x.sink.placed != want {
		return fmt.Sprintf("FPDUs %05b are placed, %05b are known", x.sink.placed, want)
	}
	passed, held := 0, 0
	for i, b := range x.w.borders[1:] {
		if b <= x.edge {
			passed++
		}
		if want&(1<<i) != 0 {
			held -= b - x.w.borders[i]
		}
	}
	for _, n := range x.have {
		held += n
	}
	for d := x.sink.delivered; d < passed && x.w.sink.silent(d); d++ {
		x.sink.delivered++
	}
	if x.sink.delivered != passed {
		return fmt.Sprintf("%d delivered, TCP has passed %d", x.sink.delivered, passed)
	}
	if s := x.r.Stats(); s.HeldBytes != held {
		return fmt.Sprintf("%d bytes held, %d wait for the rest of their FPDU", s.HeldBytes, held)
	}
	return ""
}

// known returns the set of FPDUs that can be placed: those that have arrived whole and whose start is known. Starts are
// known from the first byte of the stream on, and in an island from the FPDU on that its first marker points at.
func (x *smallRun) known(c smallCase) (set uint) {
	p := 0
	for i := 0; i < len(c.ends); {
		start, end := p, p+x.have[i]
		for i < len(c.ends) && x.have[i] > 0 && end == p+x.have[i] { // the island
			p = c.ends[i]
			if i++; end == p && i < len(c.ends) {
				end += x.have[i]
			}
		}
		if start == end {
			p = c.ends[i]
			i++
			continue
		}
		set |= x.wholeFrom(x.firstStart(start, end), end, start > 0)
	}
	return set
}

// firstStart returns the index of the first FPDU that begins in the bytes [start, end) and whose start they show: by a
// marker, or because they begin the stream. It returns the number of FPDUs if there is none.
func (x *smallRun) firstStart(start, end int) int {
	w := x.w
	if start == 0 {
		return 0
	}
	if !w.cfg.Markers {
		return len(w.sizes)
	}
	for m := int(firstMarker(int64(start))); m+MarkerLen <= end; m += MarkerInterval {
		i := 0
		for w.borders[i+1] <= m {
			i++
		}
		if w.borders[i] >= start {
			return i
		}
	}
	return len(w.sizes)
}

// wholeFrom returns the set of FPDUs, from first on, that end at or before end. behind means behind a hole: FPDUs that
// the sink refuses there are left out.
func (x *smallRun) wholeFrom(first, end int, behind bool) (set uint) {
	for i := first; i < len(x.w.sizes) && x.w.borders[i+1] <= end; i++ {
		if !behind || !x.w.sink.refuses(i) {
			set |= 1 << i
		}
	}
	return set
}

// finish closes the receiver and checks the outcome of c. It returns the fault, if any.
func (x *smallRun) finish(c smallCase) string {
	w, all := x.w, uint(1)<<len(x.w.sizes)-1
	whole := x.err == nil && x.sink.placed == all
	for whole && x.sink.delivered < len(w.sizes) && w.sink.silent(x.sink.delivered) {
		x.sink.delivered++
	}
	whole = whole && x.sink.delivered == len(w.sizes)
	if err := x.r.Closed(smallStart.Add(x.edge)); x.err == nil {
		x.err = err // a wrong length may wait for bytes beyond the end
	}
	if held, records := w.cfg.Pool.InUse(); held != 0 || records != 0 {
		return fmt.Sprintf("%d bytes and %d records are left in the pool", held, records)
	}
	switch {
	case whole && x.harm:
		return "a wrong byte was acknowledged without an error"
	case whole && x.err == nil:
		return ""
	case whole || !x.hurt || x.err == nil:
		return fmt.Sprintf("placed %05b, %d delivered, %v", x.sink.placed, x.sink.delivered, x.err)
	case x.err.Code != ulpdu.CodeCRC && x.err.Code != ulpdu.CodeMarker &&
		x.err.Code != ulpdu.CodeClosed:
		return fmt.Sprintf("a wrong byte ends in %v", x.err)
	case !w.cfg.Strict && !x.harm:
		return fmt.Sprintf("the wrong byte was not acknowledged, and it ended in %v", x.err)
	}
	return ""
}

// areWholeFPDUs reports whether the bytes [p, q) are whole FPDUs.
func (x *smallRun) areWholeFPDUs(p, q int) bool {
	return slices.Contains(x.w.borders, p) && slices.Contains(x.w.borders, q)
}
