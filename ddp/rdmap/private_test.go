package rdmap

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"xwarp/ddp"
	"xwarp/mpa/ulpdu"
)

// private are the Params of two ends that agreed to private messages.
var private = Params{Version: ddp.IETF, IRD: 4, ORD: 4, Private: true}

// TestSendWithImmediate: a Send with immediate data takes one receive, with and without payload. It is refused if the
// ends did not agree to private messages.
func TestSendWithImmediate(t *testing.T) {
	a, b := twins(t, nil, private)
	near, far := a.region(300, ddp.Attr{}), b.region(300, ddp.Attr{Access: ddp.LocalWrite})
	b.recv(1, sge(far, 0, 300))
	b.recv(2)
	a.send(SendWR{ID: 3, Op: WRSendImm, Flags: Signaled, SGL: []SGE{sge(near, 0, 300)},
		Imm: [ImmLen]byte{1, 2, 3, 4}})
	a.send(SendWR{ID: 4, Op: WRSendImmSE, Flags: Signaled, Imm: [ImmLen]byte{5}})
	settle(a, b, 200)
	want := []Completion{
		{ID: 1, Op: WRRecv, Flags: WithImm | OfSend, ByteLen: 300,
			Imm: [ImmLen]byte{1, 2, 3, 4}},
		{ID: 2, Op: WRRecv, Flags: WithImm | OfSend | Solicited, Imm: [ImmLen]byte{5}},
	}
	if got := b.take(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if !bytes.Equal(b.held(far), a.held(near)) {
		t.Error("the payload differs")
	}
	if got := a.take(); len(got) != 2 || got[0].ID != 3 || got[1].ID != 4 {
		t.Errorf("sender: %+v", got)
	}
	a, b = twins(t, nil, Params{})
	if err := a.qp.PostSend(&SendWR{Op: WRSendImm}); err != ErrOp {
		t.Errorf("posting without the peer's consent: %v, want %v", err, ErrOp)
	}
	b.recv(1)
	for _, u := range []string{untagged(12, 0, 1, 0, 0), untagged(13, 0, 1, 0, 0),
		"415e 00010000 00000004 00000000 00000000"} {
		_, b = twins(t, nil, Params{})
		if err := b.inject(unhex(t, u)); err == nil {
			t.Errorf("%s is taken without consent", u)
		}
	}
}

// TestWriteWithImmediateTellsLength: the receive of a Write with immediate data reports the length of the Write.
func TestWriteWithImmediateTellsLength(t *testing.T) {
	a, b := twins(t, nil, private)
	b.recv(1)
	a.send(SendWR{Op: WRImm, Imm: [ImmLen]byte{9, 9, 9, 9, 0, 1, 0, 2}})
	settle(a, b, 200)
	if got := b.take(); len(got) != 1 || got[0].ByteLen != 0x10002 ||
		got[0].Imm != [ImmLen]byte{9, 9, 9, 9} || got[0].Flags != WithImm {
		t.Errorf("%+v", got)
	}
}

// TestCompletionMeansPlaced: a Write completes when the peer reports that it has placed the Write, not when the peer's
// TCP acknowledges its bytes.
func TestCompletionMeansPlaced(t *testing.T) {
	a, b := twins(t, nil, private)
	near, far := a.region(300, ddp.Attr{}), b.region(300, ddp.Attr{Access: ddp.RemoteWrite})
	a.send(SendWR{ID: 1, Op: WRWrite, Flags: Signaled, SGL: []SGE{sge(near, 0, 300)},
		RemoteSTag: far.STag(), RemoteTO: far.Base()})
	frames := a.pullAll(200)
	for _, f := range frames { // TCP has them
		a.qp.ReleaseULPDU(f.ref)
	}
	if got := a.take(); len(got) != 0 {
		t.Fatalf("complete before it is placed: %+v", got)
	}
	b.push(nil, frames...)
	reports := b.pullAll(200)
	if len(reports) != 1 || len(reports[0].b) != ddp.UntaggedLen {
		t.Fatalf("%d ULPDUs instead of one Report", len(reports))
	}
	if err := placeAhead(a, reports[0].b); err != nil { // behind a message that waits
		t.Fatal(err)
	}
	if got := a.take(); len(got) != 1 || got[0].Status != Success {
		t.Errorf("with the Report: %+v", got)
	}
}

// TestReportReleasesNothing: a Report covers a Write that TCP may still read from memory. The Write completes only when
// TCP releases it.
func TestReportReleasesNothing(t *testing.T) {
	a, b := twins(t, nil, private)
	near, far := a.region(300, ddp.Attr{}), b.region(300, ddp.Attr{Access: ddp.RemoteWrite})
	a.send(SendWR{ID: 1, Op: WRWrite, Flags: Signaled, SGL: []SGE{sge(near, 0, 300)},
		RemoteSTag: far.STag(), RemoteTO: far.Base()})
	frames := a.pullAll(200)
	b.push(nil, frames...)
	a.push(nil, b.pullAll(200)...)
	if got := a.take(); len(got) != 0 {
		t.Fatalf("complete while TCP has it: %+v", got)
	}
	for _, f := range frames {
		a.qp.ReleaseULPDU(f.ref)
	}
	if got := a.take(); len(got) != 1 || got[0].Status != Success {
		t.Errorf("released: %+v", got)
	}
}

// TestMessagesAskSeldom: of a chain of Writes, few ask for a Report. Unsignaled ones ask for each half of the queue,
// signaled ones for each quarter and each reportEvery bytes. Both ask where no message follows at once, and at the end.
func TestMessagesAskSeldom(t *testing.T) {
	const third = reportEvery / 3
	for _, c := range []struct {
		signaled string // character i is 1: Write i is signaled
		len      int
		fence    int // number of the Write that is fenced
		asks     string
	}{
		{"0000000000000000", 0, -1, "0000000010000001"},
		{"1111111111111111", 0, -1, "0000100001000011"},
		{"1111111111111111", third, -1, "0010010010010011"},
		{"0000000000000000", third, -1, "0000000010000001"},
		{"0000000001000000", third, -1, "0000000010010001"},
		{"1111111111111111", 0, 3, "0010000100001001"},
	} {
		a, b := twins(t, func(c *Config) { c.SendDepth = 16 }, private)
		near := a.region(third, ddp.Attr{})
		far := b.region(third, ddp.Attr{Access: ddp.RemoteWrite})
		for i, s := range c.signaled {
			wr := SendWR{ID: uint64(i), Op: WRWrite, SGL: []SGE{sge(near, 0, c.len)},
				RemoteSTag: far.STag(), RemoteTO: far.Base()}
			if s == '1' {
				wr.Flags |= Signaled
			}
			if i == c.fence {
				wr.Flags |= Fence
			}
			a.send(wr)
		}
		asks := ""
		for f := a.pull(1 << 15); f != nil; f = a.pull(1 << 15) {
			if ddp.Control(f.b[0]).Last() {
				asks += fmt.Sprint(f.b[1] & controlAsk / controlAsk)
			}
			b.push(a, f)
		}
		if asks != c.asks {
			t.Errorf("%+v: Writes that ask: %s", c, asks)
		}
		settle(a, b, 200)
		if got := a.take(); len(got) != strings.Count(c.signaled, "1") || a.qp.Busy() {
			t.Errorf("%+v: %d completions, busy %v", c, len(got), a.qp.Busy())
		}
	}
}

// TestErrorReachesItsWrite: of several equal Writes, the one that the peer refused gets the error.
func TestErrorReachesItsWrite(t *testing.T) {
	a, b := twins(t, nil, private)
	far := b.region(100, ddp.Attr{Access: ddp.RemoteWrite})
	for id := range uint64(4) {
		a.send(SendWR{ID: id, Op: WRWrite, Flags: Signaled * WRFlags(id&1), Inline: []byte{1},
			RemoteSTag: far.STag(), RemoteTO: far.Base()})
	}
	frames := a.pullAll(200)
	b.push(a, frames[:2]...)
	b.qp.Deny(ddp.RemoteWrite)
	b.push(a, frames[2:]...)
	a.push(b, b.pullAll(200)...)
	var got []string
	for _, c := range a.take() {
		got = append(got, fmt.Sprint(c.ID, " ", c.Status))
	}
	want := "1 SUCCESS, 2 REM_ACCESS_ERR, 3 WR_FLUSH_ERR"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("%s, want %s", s, want)
	}
}

// TestChainedFailsOnce: two chained requests complete as one, with the status of the first if that fails. If the first
// fails before the second is posted, nothing completes, and FlushStatus returns its status.
func TestChainedFailsOnce(t *testing.T) {
	for _, late := range []bool{false, true} {
		a, b := twins(t, nil, private)
		a.send(SendWR{ID: 1, Op: WRWrite, Flags: Chained, Inline: []byte{1}, RemoteSTag: 77})
		if !late {
			a.send(SendWR{ID: 1, Op: WRImm, Flags: Signaled})
		}
		settle(a, b, 200)
		st := a.qp.FlushStatus()
		got, want := fmt.Sprint(st), "REM_ACCESS_ERR"
		for _, c := range a.take() {
			got += fmt.Sprint(", ", c.Op, " ", c.Status)
		}
		if !late {
			want = "WR_FLUSH_ERR, imm REM_ACCESS_ERR"
		}
		if got != want {
			t.Errorf("late %v: %s, want %s", late, got, want)
		}
	}
}

// TestReceiverNotReady: a Send without a receive waits, and the sender begins no other message once a Report says so.
// Both continue when there is a receive.
func TestReceiverNotReady(t *testing.T) {
	a, b := newHost(t, 1), newHost(t, 2)
	var told []string
	a.open(func(c *Config) {
		c.PeerWaits = func(waits bool, timer uint8) {
			told = append(told, fmt.Sprint(waits, timer))
		}
	}, private)
	b.open(func(c *Config) { c.Starved, c.RNRTimer = func() {}, 12 }, private)
	near, far := a.region(8, ddp.Attr{}), b.region(8, ddp.Attr{Access: ddp.LocalWrite})
	for id := range uint64(2) {
		a.send(SendWR{ID: id, Op: WRSend, Flags: Signaled, SGL: []SGE{sge(near, 0, 8)}})
	}
	waiting := a.pull(200)
	v := ulpdu.ViewOf(waiting.b)
	for range 3 { // MPA offers it again and again
		if err := b.qp.Place(&v, true); err != ulpdu.NotReady {
			t.Fatalf("without a receive: %v", err)
		}
	}
	a.push(b, b.pullAll(200)...)
	if a.qp.ULPDUWaiting() {
		t.Error("another message begins")
	}
	if n := b.qp.Counters.ReceiverNotReady; n != 1 || a.qp.Counters.PeerNotReady != 1 {
		t.Errorf("counted %d and %d, want 1 message", n, a.qp.Counters.PeerNotReady)
	}
	b.recv(1, sge(far, 0, 8))
	b.recv(2, sge(far, 0, 8))
	b.push(a, waiting)
	settle(a, b, 200)
	if got := a.take(); len(got) != 2 || len(b.take()) != 2 {
		t.Errorf("afterwards: %+v", got)
	}
	if want := "[true 12 false 0]"; fmt.Sprint(told) != want {
		t.Errorf("told %v, want %v", told, want)
	}
}

// TestOldReportsHaveNoEffect: Reports that arrive late or twice change nothing. Impossible ones end the stream.
func TestOldReportsHaveNoEffect(t *testing.T) {
	a := newHost(t, 1).open(nil, private)
	for range 3 {
		a.send(SendWR{Op: WRWrite, Flags: Signaled, RemoteSTag: 1})
	}
	for _, f := range a.pullAll(200) {
		a.qp.ReleaseULPDU(f.ref)
	}
	for _, c := range []struct {
		word, count uint32
		done        int
		fails       bool
	}{
		{2 << 16, 2, 2, false}, {1<<16 | 1<<31, 1, 2, false}, {2 << 16, 3, 2, false},
		{3 << 16, 1, 2, true}, {3 << 16, 4, 2, true},
	} {
		u := unhex(t, fmt.Sprintf("415e %08x 00000004 %08x 00000000", c.word, c.count))
		v := ulpdu.ViewOf(u)
		if err := a.qp.Place(&v, true); (err != nil) != c.fails || len(a.cqes) != c.done {
			t.Errorf("%08x %d: %v, %d completions", c.word, c.count, err, len(a.cqes))
		}
	}
	if a.qp.peerWaits {
		t.Error("an old Report stops the queue")
	}
}

// TestReportGoesBeforeFIN: a Report that is due when a program closes its queue pair is sent before the FIN, because
// the peer's Send was delivered.
func TestReportGoesBeforeFIN(t *testing.T) {
	a, b := twins(t, nil, private)
	b.recv(1)
	a.send(SendWR{ID: 7, Op: WRSend, Flags: Signaled})
	b.push(a, a.pullAll(200)...)
	b.qp.Close()
	if b.qp.State() != Closing || b.qp.Actions()&ActFIN == 0 || !b.qp.ULPDUWaiting() {
		t.Fatalf("%v, ULPDU waiting %v", b.qp.State(), b.qp.ULPDUWaiting())
	}
	a.push(b, b.pullAll(200)...)
	a.qp.PeerClosed(nil)
	if got := a.take(); len(got) != 1 || got[0].ID != 7 || got[0].Status != Success {
		t.Errorf("%+v, want the Send to have succeeded", got)
	}
	if b.qp.ULPDUWaiting() {
		t.Error("there is a second Report")
	}
}

// TestStopWaiting: after StopWaiting, the lack of a receive is an error.
func TestStopWaiting(t *testing.T) {
	b := newHost(t, 2).open(func(c *Config) { c.Starved = func() {} }, Params{Version: ddp.IETF})
	v := ulpdu.ViewOf(unhex(t, untagged(3, 0, 1, 0, 0)))
	if err := b.qp.Place(&v, true); err != ulpdu.NotReady {
		t.Fatalf("without a receive: %v", err)
	}
	if msn, bounded := b.qp.WaitingMessage(); msn != 1 || !bounded {
		t.Errorf("message %d waits, bounded %v", msn, bounded)
	}
	b.qp.StopWaiting()
	if err := b.qp.Place(&v, true); !err.Is(ddp.CauseNoBuffer.Errorf("")) {
		t.Errorf("afterwards: %v, want the error of RFC 5041", err)
	}
}

// TestReportLeavesWithAnswer: a Report waits for the program's answer if the last one had an answer, until
// ReleaseReport.
func TestReportLeavesWithAnswer(t *testing.T) {
	a, b := twins(t, nil, private)
	write := func(h *host) { h.send(SendWR{Op: WRWrite, Flags: Signaled, RemoteSTag: 1}) }
	opcodes := func(frames []*frame) (list []Opcode) {
		for _, f := range frames {
			list = append(list, Opcode(f.b[1]&0xf))
		}
		return list
	}
	ask := func() {
		t.Helper()
		write(a)
		b.push(a, a.pullAll(200)...)
	}
	check := func(held bool, want ...Opcode) {
		t.Helper()
		if b.qp.HeldReport() != held || want == nil && b.qp.ULPDUWaiting() {
			t.Errorf("held: %v, want %v", b.qp.HeldReport(), held)
		}
		if want == nil {
			return
		}
		frames := b.pullAll(200)
		if got := opcodes(frames); !slices.Equal(got, want) {
			t.Errorf("b sends %v, want %v", got, want)
		}
		a.push(b, frames...)
	}
	ask()
	check(false, OpReport)
	write(b) // the answer
	check(false, OpWrite)
	for range 3 {
		ask()
		check(true)
		write(b)
		check(true, OpReport, OpWrite)
	}
	ask()
	check(true)
	b.qp.ReleaseReport() // there is no answer
	check(false, OpReport)
	ask()
	check(false, OpReport)
	ask() // another one comes before the answer
	check(false, OpReport)
	ask()
	check(false, OpReport)
	if got := a.take(); len(got) != 8 {
		t.Errorf("%d of a's Writes are complete, want 8", len(got))
	}
}
