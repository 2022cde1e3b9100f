package rdmap

import (
	"fmt"
	"testing"

	"xwarp/ddp"
	"xwarp/mpa/ulpdu"
)

// victim is a queue pair with regions of every kind, whose STags are fixed.
func victim(t testing.TB) *host {
	h := newHost(t, 3).open(func(c *Config) {
		c.Stream = 1
	}, Params{Version: ddp.IETF, IRD: 2, ORD: 2})
	other, err := h.table.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	h.region(4096, ddp.Attr{STag: 0x100, Base: 0x1000, Access: ddp.RemoteRead | ddp.RemoteWrite |
		ddp.RemoteAtomic})
	h.region(64, ddp.Attr{STag: 0x101, Access: ddp.LocalWrite})
	h.region(64, ddp.Attr{STag: 0x102, Access: ddp.RemoteRead | ddp.RemoteWrite | ddp.RemoteAtomic,
		Stream: 2})
	if _, err := h.table.Register(other, make([]byte, 64),
		ddp.Attr{STag: 0x103, Access: ddp.RemoteRead | ddp.RemoteWrite}); err != nil {
		t.Fatal(err)
	}
	buf := h.region(32, ddp.Attr{STag: 0x104, Access: ddp.LocalWrite})
	h.recv(1, sge(buf, 0, 10), sge(buf, 10, 6))
	h.recv(2)
	return h
}

func write(stag, to uint64, n int) string {
	return fmt.Sprintf("c140 %08x %016x", stag, to) + zeros(n)
}

func untagged(op, qn, msn, mo uint64, n int) string {
	return fmt.Sprintf("41%02x 00000000 %08x %08x %08x", 0x40|op, qn, msn, mo) + zeros(n)
}

func readRequest(stag, to, size uint64) string {
	return untagged(1, 1, 1, 0, 0) + fmt.Sprintf("00000001 0000000000000000 %08x %08x %016x", size,
		stag, to)
}

func fetchAdd(op, stag, to uint64) string {
	return untagged(10, 1, 1, 0, 0) + fmt.Sprintf("%08x 00000001 %08x %016x", op, stag,
		to) + zeros(32)
}

// TestErrors gives a queue pair one bad segment each: it must name the error of RFC 5041, 7.2 or
// RFC 5040, 4.8, touch no memory, and end the stream.
//
//req:rfc5041-4.1-1 rfc5041-4.1-5 rfc5041-4.3-3 rfc5041-6.2.2-1 rfc5041-7.1-1 rfc5041-7.1-2 rfc5041-7.1-3 rfc5041-7.1-4
//req:rfc5041-7.2-1 rfc5041-8.2-1 rfc5041-8.3-2 rfc5041-8.3.1-1 rfc5040-4.1-4 rfc5040-5.1-1 rfc5040-5.2.1-1 rfc5040-5.2.1-4
//req:rfc5040-5.2.2-2 rfc5040-5.3-1 rfc5040-5.3-2 rfc5040-5.4-1 rfc5040-5.4-4 rfc5040-6.1-3 rfc5040-7-1 rfc5040-7.1-2
//req:rfc5040-7.2-1 rfc5040-7.2-3 rfc5040-8.1.1-1 rfc5040-8.1.1-2 rfc5040-8.1.1-5 rfc7306-5.1-2 rfc7306-5.2-2 rfc7306-5.2.2-1
//req:rfc7306-6.3-3 rfc7306-8.1-1 rfc7306-8.2-1
//req:rfc5042-6.1.1-2 rfc5042-6.1.1-3 rfc5042-6.4.3.3-1 rfc5042-10.2-3 rfc5040-8.1.2-7
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name, ulpdu string
		want        ddp.Cause
	}{
		{"no bytes", "", ddp.CauseCatastrophic},
		{"one byte", "c1", ddp.CauseCatastrophic},
		{"tagged header cut off", write(0x100, 0x1000, 0)[:28], ddp.CauseCatastrophic},
		{"untagged header cut off", "4143 00000000 00000000 00000001 000000",
			ddp.CauseCatastrophic},

		{"STag 0", write(0, 0x1000, 1), ddp.CauseSTag},
		{"unknown STag", write(0x999, 0x1000, 1), ddp.CauseSTag},
		{"not writable", write(0x101, 0, 1), ddp.CauseSTag},
		{"below base", write(0x100, 0xfff, 1), ddp.CauseBounds},
		{"behind end", write(0x100, 0x1fff, 2), ddp.CauseBounds},
		{"far behind end", write(0x100, 0x7fffffffffffffff, 1), ddp.CauseBounds},
		{"other stream's STag", write(0x102, 0, 1), ddp.CauseStream},
		{"other domain's STag", write(0x103, 0, 1), ddp.CauseStream},
		{"TO wraps", write(0x100, 0xffffffffffffffff, 2), ddp.CauseWrap},
		{"tagged version 0", "c040 00000100 0000000000001000 00", ddp.CauseTaggedVersion},
		{"tagged version 2", "c240 00000100 0000000000001000 00", ddp.CauseTaggedVersion},

		{"QN 4", untagged(3, 4, 1, 0, 0), ddp.CauseQN},
		{"QN high", untagged(3, 0xffffffff, 1, 0, 0), ddp.CauseQN},
		{"third of two receives", untagged(3, 0, 3, 0, 1), ddp.CauseNoBuffer},
		{"empty, without receive", untagged(3, 0, 3, 0, 0), ddp.CauseNoBuffer},
		{"MSN 0", untagged(3, 0, 0, 0, 1), ddp.CauseMSNRange},
		{"message skipped", untagged(3, 0, 2, 0, 0), ddp.CauseMSNRange},
		{"MO behind the buffer", untagged(3, 0, 1, 17, 1), ddp.CauseMO},
		{"MO skips bytes", untagged(3, 0, 1, 4, 1), ddp.CauseMO},
		{"too long", untagged(3, 0, 1, 0, 17), ddp.CauseTooLong},
		{"too long at the end", untagged(3, 0, 1, 16, 1), ddp.CauseTooLong},
		{"untagged version 0", "4043 00000000 00000000 00000001 00000000",
			ddp.CauseUntaggedVersion},
		{"untagged version 3", "4343 00000000 00000000 00000001 00000000",
			ddp.CauseUntaggedVersion},

		{"RDMAP version 0 in DDP version 1", "4103 00000000 00000000 00000001 00000000",
			CauseVersion},
		{"RDMAP version 2, tagged", "c180 00000100 0000000000001000 00", CauseVersion},
		{"tagged Send", "c143 00000100 0000000000001000", CauseOpcode},
		{"untagged Write", untagged(0, 0, 1, 0, 0), CauseOpcode},
		{"Send on queue 1", untagged(3, 1, 1, 0, 0), CauseOpcode},
		{"Read Request on queue 0", untagged(1, 0, 1, 0, 28), CauseOpcode},
		{"Terminate on queue 0", untagged(7, 0, 1, 0, 4), CauseOpcode},
		{"opcode C", untagged(12, 0, 1, 0, 0), CauseOpcode},
		{"opcode F", untagged(15, 0, 1, 0, 0), CauseOpcode},
		{"tagged opcode F", "c14f 00000100 0000000000001000", CauseOpcode},
		{"Read Response without a Read", "c142 00000100 0000000000001000 00", CauseOpcode},
		{"empty Read Response without a Read", "c142 00000001 0000000000000000",
			CauseOpcode},
		{"Atomic Response without a request", untagged(11, 3, 1, 0, 12), ddp.CauseNoBuffer},
		{"Immediate of 7 bytes", untagged(8, 0, 1, 0, 7), CauseStreamFatal},
		{"Immediate of 9 bytes", untagged(8, 0, 1, 0, 9), CauseStreamFatal},
		{"Immediate at an offset", untagged(8, 0, 1, 8, 8), ddp.CauseMO},
		{"Immediate of 9 bytes at an offset", untagged(8, 0, 1, 8, 9), ddp.CauseMO},

		{"Read of unknown STag", readRequest(0x999, 0, 1), CauseProtSTag},
		{"Read below base", readRequest(0x100, 0xfff, 1), CauseProtBounds},
		{"Read behind end", readRequest(0x100, 0x1000, 4097), CauseProtBounds},
		{"Read without right", readRequest(0x101, 0, 1), CauseProtAccess},
		{"Read of another stream's", readRequest(0x102, 0, 1), CauseProtStream},
		{"Read of another domain's", readRequest(0x103, 0, 1), CauseProtStream},
		{"Read wraps", readRequest(0x100, 0xffffffffffffff00, 0x101), CauseProtWrap},
		{"Read Request short", untagged(1, 1, 1, 0, 27), CauseStreamFatal},
		{"Read Request long", untagged(1, 1, 1, 0, 29), ddp.CauseTooLong},
		{"Read Request in parts", "01" + readRequest(0x100, 0x1000, 1)[2:], CauseStreamFatal},
		{"Read Request at an offset", untagged(1, 1, 1, 1, 27), ddp.CauseMO},
		{"Read Request MSN 0", untagged(1, 1, 0, 0, 28), ddp.CauseMSNRange},
		{"Read Request skipped", untagged(1, 1, 2, 0, 28), ddp.CauseMSNRange},
		{"Read Request beyond IRD", untagged(1, 1, 3, 0, 28), ddp.CauseNoBuffer},

		{"atomic on unknown STag", fetchAdd(0, 0x999, 0), CauseProtSTag},
		{"atomic without right", fetchAdd(0, 0x101, 0), CauseProtAccess},
		{"atomic behind end", fetchAdd(0, 0x100, 0x1ff9), CauseProtBounds},
		{"atomic on another stream's", fetchAdd(0, 0x102, 0), CauseProtStream},
		{"atomic misaligned", fetchAdd(0, 0x100, 0x1004), CauseStreamFatal},
		{"atomic operation 1", fetchAdd(1, 0x100, 0x1000), CauseOpcode},
		{"Atomic Request short", untagged(10, 1, 1, 0, 51), CauseStreamFatal},

		{"Terminate MSN 2", untagged(7, 2, 2, 0, 4), ddp.CauseMSNRange},
		{"Terminate too short", untagged(7, 2, 1, 0, 3), CauseStreamFatal},
		{"Terminate too long", untagged(7, 2, 1, 0, termPayload+1), ddp.CauseTooLong},
		{"Terminate at an offset", untagged(7, 2, 1, 4, 4), ddp.CauseMO},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := victim(t)
			before := image(h)
			wantError(t, h.inject(unhex(t, c.ulpdu)), c.want)
			if h.qp.State() != Terminated {
				t.Errorf("state %v", h.qp.State())
			}
			if image(h) != before {
				t.Error("memory was touched")
			}
			f := h.pull(MinULPDU)
			if f == nil || opcodeOf(f.b[1]) != OpTerminate ||
				ddp.MakeCause(h.qp.Err().Layer, f.b[18]&15, f.b[19]) != c.want {
				t.Fatalf("Terminate %+v", f)
			}
			checkTerminate(t, f.b[ddp.UntaggedLen:], unhex(t, c.ulpdu), c.want)
		})
	}
}

// checkTerminate: a Terminate has the length and the DDP header of the segment at fault unless the error is local, and
// the header of a Read Request whose memory is at fault (RFC 5040, 4.8; RFC 7306, 8.1).
func checkTerminate(t *testing.T, b, segment []byte, c ddp.Cause) {
	t.Helper()
	want := Terminate{Cause: c}
	if c.Type() != 0 {
		want.HasDDP, want.SegLen = true, uint16(len(segment))
		copy(want.DDP[:ddp.Control(segment[0]).HeaderLen()], segment)
	}
	if c.Layer() == ulpdu.RDMAP && c.Type() == 1 && opcodeOf(segment[1]) == OpReadRequest {
		want.HasRead = true
		want.Read, _, _ = ParseReadRequest(segment[ddp.UntaggedLen:])
	}
	if got, err := ParseTerminate(b); err != nil || got != want {
		t.Errorf("Terminate %v, want %v", got, want)
	}
}

// image returns the contents of all memory of a victim, except the pieces of its first receive.
func image(h *host) string {
	s := ""
	for _, stag := range []ddp.STag{0x100, 0x101, 0x102} {
		m := h.table.Lookup(stag)
		_, b, _ := h.table.Find(h.pd, h.qp.cfg.Stream, stag, m.Base(), m.Len(), 0)
		s += string(b)
	}
	_, b, _ := h.table.Find(h.pd, 0, 0x104, 16, 16, 0)
	return s + string(b)
}

// TestLongestReceived: a receive may be longer than the longest message. The segment with which a message would reach
// 2^32 bytes is refused before a counter wraps.
//
//req:rfc5041-5.2-2 rfc5041-7.1-1
func TestLongestReceived(t *testing.T) {
	for n, want := range map[int]ddp.Cause{1000: ddp.CauseTooLong, 999: ddp.CauseNone} {
		h := newHost(t, 1).open(nil, Params{Version: ddp.IETF, IRD: 2, ORD: 2})
		buf := h.region(1<<16, ddp.Attr{Access: ddp.LocalWrite})
		h.recv(7, sge(buf, 0, 1<<16))
		w, _ := h.qp.rq.receiveFor(1) // a receive of more than 2^32 bytes whose pieces are all the same memory
		const pieces = 1<<16 + 1
		w.mem.pieces, w.mem.total, w.mem.usable = make([][]byte, pieces), pieces<<16, pieces<<16
		for i := range w.mem.pieces {
			w.mem.pieces[i] = h.held(buf)
		}
		h.qp.msg = inboundMessage{open: true, op: OpSend, received: 1<<32 - 1000}
		err := h.inject(unhex(t, untagged(3, 0, 1, 1<<32-1000, n)))
		if want == ddp.CauseNone {
			if err != nil || len(h.cqes) != 1 || h.cqes[0].Status != Success ||
				h.cqes[0].ByteLen != MaxMessage {
				t.Errorf("the longest message: %v, %+v", err, h.cqes)
			}
			continue
		}
		if err == nil || ddp.MakeCause(err.Layer, err.Type, err.Code) != want {
			t.Errorf("a message of 2^32 bytes: %v, want %v", err, want)
		}
		h.qp.Fail(err)
		for _, c := range h.take() {
			if c.Status == Success {
				t.Errorf("a message of 2^32 bytes completes as one of %d", c.ByteLen)
			}
		}
	}
}

// TestReservedBitsAreIgnored: the reserved bits of both control bytes, and the Invalidate STag of a plain Send, are
// ignored (RFC 5041, 4.1; RFC 5040, 4.1).
//
//req:rfc5041-4.1-4 rfc5040-4.1-5 rfc5040-4.1-6
func TestReservedBitsAreIgnored(t *testing.T) {
	h := victim(t)
	b := unhex(t, write(0x100, 0x1000, 4))
	b[0] |= 0x3c
	b[1] |= 0x30
	if err := h.inject(b); err != nil {
		t.Error(err)
	}
	b = unhex(t, untagged(3, 0, 1, 0, 4))
	b[0] |= 0x3c
	b[1] |= 0x30
	b[2] = 0xff // Invalidate STag of a plain Send
	if err := h.inject(b); err != nil {
		t.Error(err)
	}
	wantCQEs(t, h, "1 recv SUCCESS")
}

// TestZeroLengthTaggedIsNotChecked: STag and TO of a tagged segment, or of a Read, of no bytes are not checked (RFC
// 5041, 5.2).
//
//req:rfc5041-5.2-5
func TestZeroLengthTaggedIsNotChecked(t *testing.T) {
	h := victim(t)
	for _, s := range []string{write(0, 0, 0), write(0x103, 0xffffffffffffffff, 0),
		write(0x999, 5, 0)} {
		if err := h.inject(unhex(t, s)); err != nil {
			t.Error(err)
		}
	}
	if err := h.inject(unhex(t, readRequest(0x999, 7, 0))); err != nil {
		t.Errorf("Read of nothing: %v", err)
	}
	if f := h.pull(1500); f == nil || fmt.Sprintf("%x", f.b) != fmt.Sprintf("%x",
		unhex(t, vectorReadResp)) {
		t.Errorf("response %+v", f)
	}
}

// TestOutOfOrderPlacementErrorIsNotFatal: a segment that cannot be placed ahead of its turn, because no receive is
// posted for it, does not end the stream. It is received in its turn, because a receive was posted meanwhile.
//
//req:rfc5044-2-1
func TestOutOfOrderPlacementErrorIsNotFatal(t *testing.T) {
	h := victim(t)
	late := &frame{b: unhex(t, untagged(3, 0, 3, 0, 0))}
	if err := placeAhead(h, late.b); err == nil {
		t.Fatal("placed without a receive")
	}
	if h.qp.State() != RTS || h.qp.Err() != nil || h.qp.ULPDUWaiting() {
		t.Fatalf("state %v, error %v", h.qp.State(), h.qp.Err())
	}
	h.recv(3)
	if err := h.push(nil, &frame{b: unhex(t, untagged(3, 0, 1, 0, 0))},
		&frame{b: unhex(t, untagged(3, 0, 2, 0, 0))}, late); err != nil {
		t.Error(err)
	}
	wantCQEs(t, h, "1 recv SUCCESS", "2 recv SUCCESS", "3 recv SUCCESS")
}

// TestErrorStatus: the receive of the message at fault gets the error as its status, the others are flushed.
//
//req:rfc5040-7.1-1
func TestErrorStatus(t *testing.T) {
	for _, c := range []struct {
		ulpdu string
		want  []string
	}{
		{untagged(3, 0, 1, 0, 17), []string{"1 recv LOC_LEN_ERR", "2 recv WR_FLUSH_ERR"}},
		{untagged(8, 0, 1, 0, 7), []string{"1 recv REM_INV_REQ_ERR", "2 recv WR_FLUSH_ERR"}},
		{untagged(3, 0, 1, 17, 1), []string{"1 recv LOC_LEN_ERR", "2 recv WR_FLUSH_ERR"}},
		{untagged(3, 0, 2, 0, 1), []string{"1 recv WR_FLUSH_ERR", "2 recv LOC_LEN_ERR"}},
		{untagged(3, 0, 3, 0, 1), []string{"1 recv WR_FLUSH_ERR", "2 recv WR_FLUSH_ERR"}},
		{untagged(3, 0, 0, 0, 17), []string{"1 recv WR_FLUSH_ERR", "2 recv WR_FLUSH_ERR"}},
		{untagged(3, 1, 1, 0, 1), []string{"1 recv WR_FLUSH_ERR", "2 recv WR_FLUSH_ERR"}},
		{"4143", []string{"1 recv WR_FLUSH_ERR", "2 recv WR_FLUSH_ERR"}},
		{write(0x999, 0, 1), []string{"1 recv WR_FLUSH_ERR", "2 recv WR_FLUSH_ERR"}},
	} {
		h := victim(t)
		h.inject(unhex(t, c.ulpdu))
		wantCQEs(t, h, c.want...)
		h.qp.Closed()
		wantCQEs(t, h)
	}
}
