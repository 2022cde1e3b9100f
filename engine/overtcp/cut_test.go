package overtcp_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine/iwarp"
	"xwarp/engine/overtcp"
	"xwarp/engine/stack"
	"xwarp/mpa"
	"xwarp/mpa/startup"
	"xwarp/mpa/ulpdu"
	"xwarp/ring"
	"xwarp/tcp"
	"xwarp/tcp/checksum"
	"xwarp/tcp/ip"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// talker is an upper layer of TCP that sends the bytes of out, and collects received bytes.
type talker struct {
	out   []byte
	in    []byte
	next  int
	first seq.Num
	ep    *stack.Endpoint
}

func (s *talker) Next(room int) (int, bool) {
	n := min(room, len(s.out)-s.next)
	s.next += n
	return n, s.next < len(s.out)
}

func (s *talker) Fill(r seq.Range, dst []byte) (uint64, bool) {
	copy(dst, s.out[r.Start.Diff(s.first):])
	return 0, false
}

func (s *talker) Start(e *stack.Endpoint, snd, _ seq.Num, _ tick.Time) { s.ep, s.first = e, snd }
func (s *talker) Offer(_ seq.Num, pieces [][]byte, n int, _ checksum.Known) int {
	s.in = append(s.in, bytes.Join(pieces, nil)[:n]...)
	return n
}
func (s *talker) Acked(seq.Num)                        {}
func (s *talker) Advance(seq.Num)                      {}
func (s *talker) Space() int                           { return 1 << 20 }
func (s *talker) Attach(*stack.Endpoint)               {}
func (s *talker) Recover(any) bool                     { return false }
func (s *talker) Abandon(error)                        {}
func (s *talker) WantsCRC(seq.Num, [][]byte, int) bool { return false }
func (s *talker) Settle(tick.Time)                     {}
func (s *talker) Event(tcp.Events, tick.Time)          {}
func (s *talker) Expire(tick.Time)                     {}
func (s *talker) Deadline() tick.Time                  { return tick.Never }

// write returns the FPDU of a Write of n bytes.
func write(n int) []byte {
	h := ddp.Tagged{Control: ddp.MakeControl(true, true, ddp.IETF), ULP: 1 << 6, STag: 0x100}
	ulpdu := make([]byte, ddp.TaggedLen+n)
	h.Put(ulpdu)
	return fpdu(ulpdu)
}

// fpdu returns the FPDU of a ULPDU.
func fpdu(ulpdu []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(len(ulpdu)))
	b = append(b, ulpdu...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	b = append(b, 0, 0, 0, 0)
	seal(b)
	return b
}

// seal sets the CRC of an FPDU.
func seal(fpdu []byte) {
	end := len(fpdu) - 4
	binary.LittleEndian.PutUint32(fpdu[end:],
		crc32.Checksum(fpdu[:end], crc32.MakeTable(crc32.Castagnoli)))
}

// hearer is a responder: a connection with its queue pair.
type hearer struct {
	overtcp.Conn
	qp     rdmap.QP
	up     bool
	closed bool
	err    error
}

func (h *hearer) Complete(*rdmap.Completion) {}
func (h *hearer) Request(s *iwarp.Conn, _ *startup.Request) {
	s.Accept(&h.qp, startup.Answer{IRD: 1, ORD: 1})
}
func (h *hearer) Established(*iwarp.Conn, *startup.Params) { h.up = true }
func (h *hearer) Disconnected(*iwarp.Conn, error)          {}
func (h *hearer) TakePosted()                              {}
func (h *hearer) Closed(_ *iwarp.Conn, err error)          { h.closed, h.err = true, err }

// hosts is a talker and a hearer on two stacks, and the wire between them.
type hosts struct {
	t    *testing.T
	s    [2]*stack.Stack
	k    [2]*ring.FakeKernel
	now  tick.Time
	talk talker
	hear hearer
	mem  []byte // the target of Writes
}

// Request and Forget implement stack.Resolver for both.
func (h *hosts) Request(dst ip.Addr) {
	for _, s := range h.s {
		s.SetHop(dst, [6]byte{2, 0, 0, 0, 0, dst[15]}, nil)
	}
}
func (h *hosts) Forget(ip.Addr) {}

func newHosts(t *testing.T) *hosts {
	h := &hosts{t: t, now: tick.Time(tick.Second)}
	table := ddp.NewTable(rand.New(rand.NewPCG(1, 2)))
	pd, err := table.AllocPD()
	fail := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	fail(err)
	h.mem = make([]byte, 1<<18)
	_, err = table.Register(pd, h.mem,
		ddp.Attr{Access: ddp.RemoteWrite | ddp.RemoteRead, STag: 0x100})
	fail(err)
	fail(h.hear.qp.Init(rdmap.Config{Table: table, PD: pd, Stream: 1, SendDepth: 1, RecvDepth: 1,
		MaxSGE: 1, MaxIRD: 1, MaxORD: 1, Completer: &h.hear}))
	fail(h.hear.Init(iwarp.Config{Responder: true, Startup: startup.Config{IRD: 1, ORD: 1},
		Pool: mpa.NewPool(0, 0), Handler: &h.hear}))
	var ini startup.Initiator
	fail(ini.Init(startup.Config{Revision: startup.RevIETF}))
	h.talk.out = ini.Output()
	macs := [2][6]byte{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}}
	addrs := [2]ip.Addr{ip.AddrFrom4([4]byte{192, 0, 2, 1}), ip.AddrFrom4([4]byte{192, 0, 2, 2})}
	for i := range h.s {
		h.k[i] = ring.NewFakeKernel(ring.FakeConfig{Budget: 256})
		sock, err := ring.OpenFake(ring.Config{RxFrames: 128, TxSlots: 128,
			TxSlot: ring.SlotFor(1522)}, h.k[i])
		fail(err)
		h.s[i], err = stack.New(stack.Config{Port: sock, MAC: macs[i], MTU: 1500, Resolver: h})
		fail(err)
	}
	listen := &stack.ListenConfig{Accept: func(*tcp.Tuple) (stack.Upper, error) {
		return &h.hear, nil
	}}
	_, err = h.s[1].Listen(addrs[1], 7, listen, h.now)
	fail(err)
	_, err = h.s[0].Connect(tcp.Tuple{Local: addrs[0], Remote: addrs[1], LocalPort: 1000,
		RemotePort: 7}, &tcp.Config{}, &h.talk, h.now)
	fail(err)
	h.run(10*tick.Millisecond, func() bool { return h.hear.up })
	if !h.hear.up {
		t.Fatal("not established")
	}
	return h
}

// run runs both hosts until done returns true, but at most for the simulated time d.
func (h *hosts) run(d tick.Duration, done func() bool) {
	for end := h.now.Add(d); h.now < end && !done(); h.now = h.now.Add(100 * tick.Microsecond) {
		for i, s := range h.s {
			s.Step(h.now)
			for f, ok := h.k[i].Take(nil); ok; f, ok = h.k[i].Take(nil) {
				h.k[1-i].Inject(f)
			}
		}
	}
}

// say sends b and waits for its acknowledgement.
func (h *hosts) say(b []byte) {
	h.talk.out = append(h.talk.out, b...)
	h.talk.ep.Schedule()
	h.run(10*tick.Millisecond, func() bool {
		return h.talk.ep.Conn().SndUna() == h.talk.first.Add(len(h.talk.out))
	})
}

// TestCutByFIN: the peer ends its stream inside an FPDU. The FIN is in the segment with the last bytes that are sent,
// or follows alone. "Advance RCV.NXT over the FIN, and send an acknowledgment for the FIN" (RFC 9293, 3.10.7.4), at
// once. The stream ends with a Terminate of MPA's error 1, "FIN received" (RFC 5044, 8).
//
//req:rfc9293-MUST-43 rfc9293-3.10.7.4-7 rfc5044-8-1
func TestCutByFIN(t *testing.T) {
	for _, c := range []struct {
		byteCount int   // number of bytes that the peer sends of the cut FPDU
		apart     []int // sizes of the first segments with them; the segment with the FIN has the rest
	}{{1, nil}, {10, nil}, {500, nil}, {1, []int{1}}, {40, []int{40}}, {500, []int{500}},
		{500, []int{460}}, {500, []int{200, 260}}} {
		h := newHosts(t)
		for range 10 {
			h.say(write(1000))
		}
		h.talk.in = nil
		head := write(1000)[:c.byteCount]
		for _, n := range c.apart {
			h.talk.out = append(h.talk.out, head[:n]...)
			head = head[n:]
			h.talk.ep.Schedule()
			h.run(200*tick.Microsecond, func() bool { return false })
		}
		h.talk.out = append(h.talk.out, head...)
		h.talk.ep.Shutdown(h.now)
		from := h.now
		h.run(5*tick.Second, func() bool { return h.hear.closed })
		var e *ulpdu.Error
		if !errors.As(h.hear.err, &e) || e.Layer != ulpdu.MPA || e.Code != ulpdu.CodeClosed {
			t.Errorf("%v: closed %v, %v, want MPA's error for a cut FPDU", c, h.hear.closed,
				h.hear.err)
		}
		if l := h.talk.ep.Conn().Info(h.now).Loss.Counters; l.Retransmitted != 0 ||
			h.now.Sub(from) > tick.Millisecond {
			t.Errorf("%v: the end took %d us, and %d segments were retransmitted", c,
				h.now.Sub(from)/tick.Microsecond, l.Retransmitted)
		}
		if n := len(h.talk.in); n < 24 || h.talk.in[3] != 0x47 ||
			!bytes.Equal(h.talk.in[20:22], []byte{0x20, 0x01}) {
			t.Errorf("%v: the peer got % x, want a Terminate 2/0/01", c, h.talk.in)
		}
	}
}

// TestBehindRefused: MPA refuses an FPDU with a wrong CRC, and its segment gets no acknowledgement. The following
// segments are out of order: "A TCP receiver SHOULD send an immediate duplicate ACK when an out-of-order segment
// arrives" (RFC 5681, 4.2). Later the stream ends with MPA's error for a wrong CRC.
//
//req:rfc5681-3.2-1 rfc5681-4.2-4
func TestBehindRefused(t *testing.T) {
	h := newHosts(t)
	for range 10 {
		h.say(write(1000))
	}
	bad, next, before := write(1000), write(1000), h.talk.ep.Conn().Counters().SegsIn
	bad[500] ^= 1
	for i, b := range [][]byte{bad, next[:300], next[300:500], next[500:]} {
		h.talk.out = append(h.talk.out, b...)
		h.talk.ep.Schedule()
		h.run(200*tick.Microsecond, func() bool { return false })
		if got := h.talk.ep.Conn().Counters().SegsIn - before; got != uint64(i) {
			t.Errorf("%d acknowledgements after %d segments, want a duplicate for all but the first",
				got, i+1)
		}
	}
	var e *ulpdu.Error
	h.run(10*tick.Second, func() bool { return h.hear.closed })
	if !errors.As(h.hear.err, &e) || e.Layer != ulpdu.MPA || e.Code != ulpdu.CodeCRC {
		t.Errorf("closed %v, %v, want MPA's error for a wrong CRC", h.hear.closed, h.hear.err)
	}
}

// TestLastFPDUInPieces: the last FPDU before the FIN arrives in one, two or three segments. It is delivered, and the
// stream ends without an error and without a retransmission, also if the FPDU is the first of the stream.
//
//req:rfc9293-3.10.7.4-7 rfc5044-A.4-1
func TestLastFPDUInPieces(t *testing.T) {
	const n = 8
	fpdu := write(n)
	copy(fpdu[2+ddp.TaggedLen:], "the last")
	seal(fpdu)
	var cases [][]int
	for cut := 1; cut < len(fpdu); cut++ {
		cases = append(cases, []int{cut}, []int{cut, (cut + len(fpdu)) / 2})
	}
	for _, before := range []int{0, 1} {
		for _, cuts := range append(cases, nil) {
			h := newHosts(t)
			for range before {
				h.say(write(100))
			}
			at := 0
			for _, cut := range append(cuts[:len(cuts):len(cuts)], len(fpdu)) {
				h.talk.out = append(h.talk.out, fpdu[at:cut]...)
				at = cut
				h.talk.ep.Schedule()
				h.run(200*tick.Microsecond, func() bool { return false })
			}
			h.talk.ep.Shutdown(h.now)
			h.run(5*tick.Second, func() bool { return h.hear.closed })
			if !h.hear.closed || h.hear.err != nil || string(h.mem[:n]) != "the last" {
				t.Errorf("%d FPDUs before one cut at %v: closed %v, %v, memory %q", before, cuts,
					h.hear.closed, h.hear.err, h.mem[:n])
			}
			if l := h.talk.ep.Conn().Info(h.now).Loss.Counters; l.Retransmitted != 0 {
				t.Errorf("%d FPDUs before one cut at %v: %d segments were retransmitted", before,
					cuts, l.Retransmitted)
			}
		}
	}
}
