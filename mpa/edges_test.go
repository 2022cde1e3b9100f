package mpa

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"xwarp/mpa/ulpdu"
	"xwarp/tcp/seq"
)

// TestFillSum: FillSum fails, and gives no sum, if the Sender does not have all bytes of the range, or if dst is
// shorter than the range. Otherwise it gives the sum if each FPDU is whole and has a CRC.
func TestFillSum(t *testing.T) {
	for _, c := range []struct {
		noCRC      bool
		at, n      int // the range, in a stream of four FPDUs of 508 bytes
		room       int // bytes of dst beyond n
		acked      int
		summed, ok bool
	}{
		{at: 0, n: 508, room: -1},
		{at: 0, n: 508, summed: true, ok: true},
		{at: 0, n: 508, room: 1, summed: true, ok: true},
		{at: 0, n: 508, noCRC: true, ok: true},
		{at: 508, n: 1524, summed: true, ok: true},
		{at: 508, n: 1524, noCRC: true, ok: true},
		{at: 508, n: 1528},
		{at: 508, n: 1520, ok: true},
		{at: 512, n: 1520, ok: true},
		{at: 0, n: 507, ok: true},
		{at: 1, n: 507, ok: true},
		{at: -1, n: 509},
		{at: 2031, n: 1, ok: true},
		{at: 2032, n: 1},
		{at: 0, n: 508, acked: 507, summed: true, ok: true},
		{at: 0, n: 508, acked: 508},
		{at: 508, n: 508, acked: 508, summed: true, ok: true},
	} {
		var s Sender
		src := &messageSource{left: 2000, most: 500}
		f := Framing{CRC: !c.noCRC}
		s.Init(SenderConfig{Framing: f}, 1000, 1460, src)
		for range 4 {
			s.Next(1460)
		}
		want := src.stream(f)
		s.Acked(seq.Num(1000).Add(c.acked))
		dst := make([]byte, c.n+c.room)
		sum, summed, ok := s.FillSum(seq.Of(seq.Num(1000).Add(c.at), c.n), dst)
		if summed != c.summed || ok != c.ok || !ok && sum != 0 {
			t.Errorf("%+v: sum %#x, %v, %v", c, sum, summed, ok)
		}
		if ok && !bytes.Equal(dst[:c.n], want[c.at:c.at+c.n]) {
			t.Errorf("%+v: other bytes", c)
		}
		if ok && summed && swap(fold(sum)) != onesSum(dst[:c.n]) {
			t.Errorf("%+v: sum %#x, want %#x", c, swap(fold(sum)), onesSum(dst[:c.n]))
		}
	}
}

// brokenSink is a logSink whose deliveries fail, except the first ones, whose number is at.
type brokenSink struct {
	logSink
	at, calls int
}

func (s *brokenSink) Deliver(hdr []byte, n int) *ulpdu.Error {
	if s.calls++; s.calls > s.at {
		return ulpdu.Newf(ulpdu.RDMAP, 1, 5, "delivery %d", s.calls)
	}
	return s.logSink.Deliver(hdr, n)
}

// TestDeliverFails: after an FPDU whose delivery fails nothing is delivered or kept, however the FPDUs arrived.
func TestDeliverFails(t *testing.T) {
	for _, together := range []bool{false, true} {
		for at := range 3 {
			g := newRig(t, Framing{CRC: true}, 100, 200, 300)
			sink := &brokenSink{at: at}
			g.r.Init(ReceiverConfig{Framing: g.f, Pool: NewPool(0, 0)}, 1000, sink)
			var err *ulpdu.Error
			if together {
				g.offer(0, len(g.stream))
				err = g.advance(len(g.stream))
			}
			for i := 0; i < 3 && err == nil && !together; i++ {
				g.offer(g.borders[i], g.borders[i+1])
				if err = g.advance(g.borders[i+1] - 1); err != nil {
					t.Errorf("FPDU %d is delivered before its last byte: %v", i, err)
				}
				err = g.advance(g.borders[i+1])
			}
			if err == nil || err.Layer != ulpdu.RDMAP || err.Type != 1 || err.Code != 5 {
				t.Fatalf("together %v, delivery %d: %v", together, at, err)
			}
			kept, again := g.try(g.stream, 0)
			if e := g.advance(len(g.stream)); e != err || again != err || kept != 0 ||
				sink.calls != at+1 || len(sink.delivered) != at ||
				g.r.Stats().Delivered != uint64(at+1) {
				t.Errorf("together %v, delivery %d: then %v and %v, kept %d, %d calls, %+v",
					together, at, e, again, kept, sink.calls, g.r.Stats())
			}
			g.r.Release()
			if held, records := g.r.cfg.Pool.InUse(); held != 0 || records != 0 {
				t.Errorf("%d bytes, %d records in use", held, records)
			}
		}
	}
}

// TestPlaceFails: an FPDU in order that cannot be placed is not kept, earlier ones are delivered, and nothing after it
// is accepted.
func TestPlaceFails(t *testing.T) {
	for _, markers := range []bool{false, true} {
		g := newRig(t, Framing{CRC: true, Markers: markers}, 100, 200, 300)
		g.sink.refuse = func(u []byte, _ bool) *ulpdu.Error {
			if u[0] == 2 {
				return ulpdu.Newf(ulpdu.DDP, 1, 1, "beyond the bounds")
			}
			return nil
		}
		g.offer(0, g.borders[1])
		g.advance(g.borders[1])
		kept, err := g.try(g.stream[g.borders[1]:g.borders[2]], g.borders[1])
		if kept != 0 || err == nil || err.Layer != ulpdu.DDP || err.Code != 1 {
			t.Errorf("kept %d, %v", kept, err)
		}
		kept, again := g.try(g.stream[g.borders[2]:], g.borders[2])
		if e := g.advance(g.borders[2]); kept != 0 || again != err || e != err ||
			len(g.sink.placed) != 1 || len(g.sink.delivered) != 1 || g.r.Stats().FPDUs != 1 ||
			g.r.Stats().AfterEnd != uint64(g.borders[3]-g.borders[2]) {
			t.Errorf("kept %d, %v, %v; %d placed, %d delivered, %+v", kept, again, e,
				len(g.sink.placed), len(g.sink.delivered), g.r.Stats())
		}
	}
}

// TestReceiverWaitsForFreeRecords: held FPDUs come in order while records are used up, so that only the overdraft of
// them is placed at once. Each delivery lets more of them proceed. An error in the first of them ends the stream at
// once, an error in a later one when it is reached. Advance returns both, and earlier FPDUs are delivered.
func TestReceiverWaitsForFreeRecords(t *testing.T) {
	const fpdus = overdraft + 6
	sizes := make([]int, fpdus)
	for i := range sizes {
		sizes[i] = 40
	}
	for _, c := range []struct{ bad, placed, delivered int }{
		{fpdus, fpdus, fpdus},
		{overdraft, overdraft, overdraft},
		{overdraft + 2, fpdus - 1, overdraft + 2},
	} {
		g := newRig(t, Framing{CRC: true}, sizes...)
		g.init(ReceiverConfig{Pool: NewPool(0, 1)})
		g.sink.refuse = func(u []byte, _ bool) *ulpdu.Error {
			if int(u[0]) == c.bad+1 {
				return ulpdu.Newf(ulpdu.DDP, 1, 1, "beyond the bounds")
			}
			return nil
		}
		g.offer(g.borders[1], len(g.stream))
		g.offer(0, g.borders[1])
		if len(g.sink.placed) != overdraft || !g.r.awaitsRecords || g.r.Stats().LimitDrops != 0 {
			t.Fatalf("%d placed, %+v", len(g.sink.placed), g.r.Stats())
		}
		err := g.advance(len(g.stream))
		if bad := c.bad < fpdus; (err != nil) != bad || bad && codeOf(err) != 1 {
			t.Errorf("%+v: %v", c, err)
		}
		if e := g.advance(len(g.stream)); e != err || len(g.sink.placed) != c.placed ||
			len(g.sink.delivered) != c.delivered {
			t.Errorf("%+v: %v, then %v, %d placed, %d delivered", c, err, e, len(g.sink.placed),
				len(g.sink.delivered))
		}
		g.r.Release()
		if held, records := g.r.cfg.Pool.InUse(); held != 0 || records != 0 {
			t.Errorf("%+v: %d bytes, %d records in use", c, held, records)
		}
	}
}

// TestTimeOutReportsHole: Incomplete includes the bytes that arrive behind a hole. TimeOut reports the hole and blames
// no FPDU.
func TestTimeOutReportsHole(t *testing.T) {
	g := newRig(t, Framing{CRC: true}, 100, 100, 100, 100, 100)
	g.offer(0, g.borders[1]+50)
	g.advance(g.borders[1] + 50)
	for _, i := range []int{4, 2} {
		g.offer(g.borders[i], g.borders[i+1])
		next, came := g.r.Incomplete()
		if next != int64(g.borders[1]) || came != int64(g.borders[5]) {
			t.Errorf("incomplete from %d to %d, want %d to %d", next, came, g.borders[1],
				g.borders[5])
		}
	}
	err := g.r.TimeOut()
	message := fmt.Sprintf("stream offset %d on are missing", g.borders[1]+50)
	if !err.Is(&ulpdu.Error{Layer: ulpdu.MPA, Code: ulpdu.CodeClosed}) ||
		!strings.Contains(err.Detail, message) {
		t.Errorf("%v, want %q", err, message)
	}
	if next, came := g.r.Incomplete(); next != came {
		t.Errorf("incomplete from %d to %d behind the end", next, came)
	}
	if kept, e := g.try(g.stream[g.borders[1]+50:], g.borders[1]+50); kept != 0 || e != err {
		t.Errorf("kept %d, %v", kept, e)
	}
}

// TestMarkerSearchEndsAtLargestFPDU: behind a hole, markers that cannot be right are read as far as the largest FPDU
// may reach, and one right marker is found up to there; behind that the length chain has to decide.
func TestMarkerSearchEndsAtLargestFPDU(t *testing.T) {
	const start = 2 * MarkerInterval
	f := Framing{Markers: true, CRC: true}
	for wrong, placed := range map[int]int{0: 1, 1: 1, maxScan: 1, maxScan + 1: 1, maxScan + 2: 0} {
		b := make([]byte, wrong*MarkerInterval)
		for m := 0; m < len(b); m += MarkerInterval {
			binary.BigEndian.PutUint16(b[m+2:], MarkerInterval) // a length field at the place of a marker
		}
		b = append(b, encode(f, start+len(b), make([]byte, 100))...)
		g := newRig(t, f)
		if kept, err := g.try(b, start); kept != len(b) || err != nil ||
			len(g.sink.placed) != placed {
			t.Errorf("%d wrong markers: kept %d of %d, %v, %d placed", wrong, kept, len(b), err,
				len(g.sink.placed))
		}
	}
}

// TestCounters checks all counters of a Receiver after events of each kind.
func TestCounters(t *testing.T) {
	g := newRig(t, Framing{Markers: true, CRC: true}, 1000, 1000, 1000, 1000, 1000, 1000, 1000)
	b := g.borders
	g.offer(0, b[1])
	want := ReceiverStats{Records: 1, RecordsHigh: 1}
	want.FPDUs, want.InOrder, want.Aligned = 1, 1, 1
	check := func(what string) {
		t.Helper()
		if got := g.r.Stats(); got != want {
			t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
		}
	}
	check("one FPDU")
	g.advance(b[1])
	want.Records, want.Delivered = 0, 1
	check("its delivery")
	g.offer(b[2], b[3])
	want.Behind, want.OutByMarker, want.FPDUs, want.Aligned = 1, 1, 2, 2
	want.Records, want.Holes = 1, 1
	check("behind a hole")
	g.offer(b[3], b[5])
	want.Behind, want.OutByChain, want.FPDUs, want.Aligned = 2, 2, 4, 3
	want.Records, want.RecordsHigh = 3, 3
	check("two behind that")
	g.offer(b[1], b[1]+400)
	want.Partial, want.HeldPartial, want.HeldBytes, want.HeldHighWater = 1, 400, 400, 400
	check("the head of an FPDU")
	g.offer(b[1]+400, b[2])
	want.Unaligned, want.Spanning, want.InOrder, want.FPDUs = 1, 1, 2, 5
	want.HeldBytes, want.Holes, want.Records, want.RecordsHigh = 0, 0, 4, 4
	check("its tail")
	g.try(g.stream[:b[5]], 0)
	check("what was kept before")
	g.advance(b[5])
	want.Delivered, want.Records = 5, 0
	check("delivery of all")
	bad := bytes.Clone(g.stream[b[5]:b[6]])
	bad[len(bad)/2+1] ^= 1
	g.try(bad, b[5])
	want.CRCDrops = 1
	check("a wrong CRC")
	at := int(firstMarker(int64(b[6]))) + MarkerLen
	g.offer(at, at+100)
	want.Behind, want.Unknown, want.HeldUnknown, want.HeldBytes, want.Holes = 3, 1, 100, 100, 1
	check("no marker")
	g.offer(at+150, at+150+80)
	want.Behind, want.Unknown, want.HeldUnknown, want.HeldBytes, want.Holes = 4, 2, 180, 180, 2
	check("another hole")
	g.r.Release()
	g.try(g.stream[b[5]:b[6]], b[5])
	want.AfterEnd, want.HeldBytes, want.Holes = uint64(b[6]-b[5]), 0, 0
	check("after the end")
}

// TestPackingNeedsRoomForMinMULPDU: another FPDU is packed only if there is room for one of MinMULPDU; otherwise the
// source is not asked. A ULPDU that waits is sent as soon as the room is exactly enough (RFC 5044, 4.5).
//
//req:rfc5044-4.5-2
func TestPackingNeedsRoomForMinMULPDU(t *testing.T) {
	for _, c := range []struct {
		markers           bool
		room, fpdus, last int // last is the limit that the source is asked for last
	}{
		{false, 108, 1, MinMULPDU}, {false, 108 + 135, 1, 234}, {false, 108 + 136, 2, 130},
		{false, 108 + 140, 2, 134}, {false, 1460, 13, 158},
		{true, 112 + 136, 2, 130}, {true, 112 + 135, 1, 234},
	} {
		var s Sender
		src := &messageSource{left: 5000, most: 100}
		s.Init(SenderConfig{Framing: Framing{Markers: c.markers}, Pack: true}, 0, 1460, src)
		n, more := s.Next(c.room)
		if s.Outstanding() != c.fpdus || len(src.asked) != c.fpdus || !more || n > c.room ||
			src.asked[len(src.asked)-1] != c.last {
			t.Errorf("%+v: %d FPDUs in %d bytes, more %v, asked for %v", c, s.Outstanding(), n,
				more, src.asked)
		}
	}
	var s Sender
	s.Init(SenderConfig{}, 0, 1460, &messageSource{left: 128})
	for _, c := range []struct {
		room, n int
		more    bool
	}{{132, 0, true}, {135, 0, true}, {136, 136, false}, {137, 0, false}} {
		if n, more := s.Next(c.room); n != c.n || more != c.more {
			t.Errorf("room %d: %d bytes, more %v, want %d", c.room, n, more, c.n)
		}
	}
}

// TestSpaceCountsWholeBlocks: a connection may hold a number of whole blocks, at least one and at most those of its
// worker.
func TestSpaceCountsWholeBlocks(t *testing.T) {
	for _, c := range []struct{ limit, pool, want int }{
		{0, 0, DefaultReassemblyLimit}, {-1, -1, DefaultReassemblyLimit}, {1, 0, blockSize},
		{blockSize, 0, blockSize}, {2*blockSize - 1, 0, blockSize},
		{2 * blockSize, 0, 2 * blockSize},
		{3 * blockSize, 2 * blockSize, 2 * blockSize}, {0, 1, blockSize},
		{DefaultPool + blockSize, 0, DefaultPool},
	} {
		g := newRig(t, Framing{CRC: true}, 5000)
		g.init(ReceiverConfig{ReassemblyLimit: c.limit, Pool: NewPool(c.pool, 0)})
		if got := g.r.Space(); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
		// Bytes behind a hole, from within the first block on.
		kept, err := g.try(g.stream[4:], 4)
		want := min(len(g.stream), c.want) - 4
		if s := g.r.Stats(); kept != want || err != nil || s.HeldBytes != want ||
			s.LimitDrops != uint64(len(g.stream)-4-want) {
			t.Errorf("%+v: kept %d bytes, %v, want %d; %+v", c, kept, err, want, s)
		}
		if got := g.r.Space(); got != c.want-min(c.want, 3*blockSize) {
			t.Errorf("%+v: %d bytes left", c, got)
		}
	}
	g := newRig(t, Framing{})
	if pool := g.r.cfg.Pool; g.r.cfg.RecordLimit != DefaultRecordLimit ||
		pool.recordLimit != DefaultRecords || pool.limit*blockSize != DefaultPool {
		t.Errorf("defaults %d, %d, %d", g.r.cfg.RecordLimit, pool.recordLimit, pool.limit)
	}
}

// TestStrictReceiverJudgesWrongFPDUInOrder: a strict receiver holds an FPDU with a wrong CRC behind a hole. The CRC's
// error comes when the hole is closed.
//
//req:rfc5044-8-2
func TestStrictReceiverJudgesWrongFPDUInOrder(t *testing.T) {
	g := newRig(t, Framing{Markers: true, CRC: true}, 1000, 1000)
	g.init(ReceiverConfig{Strict: true})
	bad := bytes.Clone(g.stream[g.borders[1]:])
	bad[700] ^= 1
	kept, err := g.try(bad, g.borders[1])
	if s := g.r.Stats(); kept != len(bad) || err != nil || s.CRCDrops != 0 || s.BadGuesses != 1 ||
		s.HeldBytes != len(bad) {
		t.Errorf("kept %d, %v, %+v", kept, err, s)
	}
	kept, err = g.try(g.stream[:g.borders[1]], 0)
	if kept != g.borders[1] || codeOf(err) != ulpdu.CodeCRC {
		t.Errorf("kept %d, %v", kept, err)
	}
	if e := g.advance(len(g.stream)); e != err || len(g.sink.delivered) != 1 {
		t.Errorf("%v, %d delivered", e, len(g.sink.delivered))
	}
}

// TestMarkerShowsStartBehindHole: behind a hole a marker shows where an FPDU begins, unless its pointer has two
// meanings and no CRC tells which of them is right.
//
//req:rfc5044-5.2-3 culley-markers-1
func TestMarkerShowsStartBehindHole(t *testing.T) {
	for _, any := range []bool{false, true} {
		for _, crc := range []bool{false, true} {
			g := newRig(t, Framing{Markers: true, CRC: crc}, 1000, 1000)
			g.init(ReceiverConfig{AnyMarkerOrigin: any})
			g.offer(g.borders[1], g.borders[2])
			if want := map[bool]int{true: 1}[crc || !any]; len(g.sink.placed) != want {
				t.Errorf("any origin %v, CRC %v: %d placed, want %d", any, crc, len(g.sink.placed),
					want)
			}
			g.offer(0, g.borders[1])
			if err := g.advance(len(g.stream)); err != nil || len(g.sink.delivered) != 2 {
				t.Errorf("any origin %v, CRC %v: %v, %d delivered", any, crc, err,
					len(g.sink.delivered))
			}
		}
	}
}
