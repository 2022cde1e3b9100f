package control

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine/verbs"
	"xwarp/tcp"
)

// pair returns the two ends of a stream socket.
func pair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var c [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "")
		n, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.Close() })
		c[i] = n.(*net.UnixConn)
	}
	return c[0], c[1]
}

func TestFrame(t *testing.T) {
	a, b := pair(t)
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if err := NewConn(a, 0).Send(KindRequest, []byte(`{"id":1,"op":"x"}`),
		int(null.Fd())); err != nil {
		t.Fatal(err)
	}
	// PROTOCOL.md: length 17 little endian, kind 1, one descriptor, two zeros.
	const want = "1100000001010000" + "7b226964223a312c226f70223a2278227d"
	got := make([]byte, len(want)/2)
	if _, err := io.ReadFull(b, got); err != nil || hex.EncodeToString(got) != want {
		t.Errorf("frame on the wire: %x, %v, want %s", got, err, want)
	}
}

func TestReceive(t *testing.T) {
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	a, b := pair(t)
	from, to := NewConn(a, 0), NewConn(b, 1<<20)
	long := bytes.Repeat([]byte("x"), 1<<20) // more than a socket buffer holds
	sent := make(chan error, 1)
	go func() {
		sent <- errors.Join(from.Send(KindReply, []byte("{}")), from.Send(KindEvent, long,
			int(null.Fd()), int(null.Fd())), from.Send(KindReply, nil))
		a.Close()
	}()
	for _, want := range []struct {
		kind  Kind
		n     int
		files int
	}{{KindReply, 2, 0}, {KindEvent, 1 << 20, 2}, {KindReply, 0, 0}} {
		k, body, files, err := to.Receive()
		if err != nil || k != want.kind || len(body) != want.n || len(files) != want.files {
			t.Fatalf("kind %d, %d octets, %d descriptors, %v; want %+v", k, len(body), len(files),
				err, want)
		}
		for _, fd := range files {
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil ||
				flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("a received descriptor survives exec: %v", err)
			}
		}
		CloseAll(files)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if _, _, _, err := to.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v, want io.EOF", err)
	}
}

// TestReceiveLeaksNothing sends what is refused, with descriptors, and counts them.
func TestReceiveLeaksNothing(t *testing.T) {
	count := func() int {
		e, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(e)
	}
	a, b := pair(t)
	before := count()
	for _, octets := range []string{"\x02\x00\x00\x00\x01\x00\x00\x00{}",
		"\xff\xff\xff\xff\x01\x01\x00\x00", "\x00\x00\x00\x00\x07\x01\x00\x00"} {
		a.WriteMsgUnix([]byte(octets), unix.UnixRights(0, 1), nil)
		_, _, files, err := NewConn(b, 100).Receive()
		if !errors.Is(err, ErrFrame) || len(files) != 2 {
			t.Errorf("%x: %d descriptors, %v", octets, len(files), err)
		}
		CloseAll(files)
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// args are the types of the requests' arguments, for the examples in the text.
var args = map[Op]func() any{
	OpHello: func() any {
		return &HelloArgs{}
	}, OpAllocPD: nil, OpFreePD: object, OpRegMR: func() any {
		return &RegMRArgs{}
	}, OpDeregMR: object,
	OpCreateCQ: func() any {
		return &CreateCQArgs{}
	}, OpDestroyCQ: object, OpCreateQP: func() any { return &CreateQPArgs{} }, OpDestroyQP: object,
	OpConnect: func() any {
		return &ConnectArgs{}
	}, OpDisconnect: object, OpQueryQP: object, OpListen: func() any { return &ListenArgs{} },
	OpCloseListener: object, OpGetRequest: object, OpAccept: func() any {
		return &AcceptArgs{}
	}, OpReject: func() any { return &AcceptArgs{} },
	OpCancel: func() any {
		return &CancelArgs{}
	}, OpSnapshot: nil, OpFlush: func() any { return &FlushArgs{} },
	OpCapture: func() any {
		return &CaptureArgs{}
	}, OpEndCapture: func() any { return &Object{} }, OpConfirm: nil,
}

func object() any { return &Object{} }

var results = map[Op]func() any{
	OpHello: func() any {
		return &HelloResult{}
	}, OpAllocPD: object, OpRegMR: func() any {
		return &RegMRResult{}
	}, OpCreateCQ: func() any { return &CreateCQResult{} },
	OpCreateQP: func() any {
		return &CreateQPResult{}
	}, OpListen: func() any {
		return &ListenResult{}
	}, OpGetRequest: func() any { return &RequestResult{} },
	OpCapture: func() any {
		return &Object{}
	}, OpEndCapture: func() any { return &CaptureResult{} },
	OpConfirm: func() any { return &ConfirmResult{} },
}

func examples(t testing.TB) (list []string) {
	t.Helper()
	text, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		if e, ok := strings.CutPrefix(line, "    {"); ok {
			list = append(list, "{"+e)
		}
	}
	return list
}

// TestText checks that the examples of PROTOCOL.md are what this package reads and writes, octet by octet.
func TestText(t *testing.T) {
	ops := map[uint64]Op{}
	seen := map[Op]bool{}
	again := func(line string, v any, make func() any, part json.RawMessage) {
		t.Helper()
		if make == nil {
			if part != nil {
				t.Errorf("%s: arguments or a result where there are none", line)
			}
			return
		}
		inner := make()
		if err := decode(part, inner); err != nil {
			t.Errorf("%s: %v", line, err)
			return
		}
		if got := string(Marshal(inner)); got != string(part) {
			t.Errorf("%s\n inner object printed: %s", line, got)
		}
		if got := string(Marshal(v)); got != line {
			t.Errorf("%s\nprinted: %s", line, got)
		}
	}
	for _, line := range examples(t) {
		switch {
		case strings.Contains(line, `"op"`):
			r, err := ParseRequest([]byte(line))
			if err != nil {
				t.Errorf("%s: %v", line, err)
				continue
			}
			ops[r.ID] = r.Op
			seen[r.Op] = true
			again(line, r, args[r.Op], r.Args)
		case strings.Contains(line, `"result"`):
			r, err := ParseReply([]byte(line))
			if err != nil {
				t.Errorf("%s: %v", line, err)
				continue
			}
			again(line, r, results[ops[r.ID]], r.Result)
		default:
			e, err := ParseEvent([]byte(line))
			if err != nil || e.Event != EventDown || string(Marshal(e)) != line {
				t.Errorf("%s: %v, printed %s", line, err, Marshal(e))
			}
		}
	}
	for op := range args {
		if !seen[op] {
			t.Errorf("%s has no example in PROTOCOL.md", op)
		}
	}
	for _, s := range sentinels {
		if text, _ := os.ReadFile("PROTOCOL.md"); !strings.Contains(string(text), "`"+
			string(s.code)+"`") {
			t.Errorf("code %s does not stand in PROTOCOL.md", s.code)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, tc := range []struct {
		err  error
		code Code
		is   error
	}{
		{verbs.ErrRejected, CodeRejected, verbs.ErrRejected},
		{verbs.ErrLapsed, CodeLapsed, verbs.ErrLapsed},
		{ddp.ErrBusy, CodeBusy, ddp.ErrBusy},
		{context.Canceled, CodeCanceled, context.Canceled},
		{unix.EADDRINUSE, CodeFailed, unix.EADDRINUSE},
		{tcp.CauseRefused, CodeFailed, unix.ECONNREFUSED},
		{verbs.ErrLapsed, CodeLapsed, unix.ECONNABORTED},
		{errors.New("other"), CodeFailed, nil},
		{&Error{Code: CodeQuota, Text: "much"}, CodeQuota, nil},
	} {
		e := AsError(errors.Join(errors.New("first"), tc.err))
		if e.Code != tc.code || !strings.Contains(e.Text, tc.err.Error()) {
			t.Errorf("%v becomes %+v", tc.err, e)
		}
		if tc.is != nil && !errors.Is(e, tc.is) {
			t.Errorf("%+v is not %v", e, tc.is)
		}
		if errors.Is(e, io.EOF) {
			t.Errorf("%+v is io.EOF", e)
		}
	}
	if AsError(nil) != nil {
		t.Error("no error becomes one")
	}
}

// TestSendSlot compares with octets made by hand from the layout in PROTOCOL.md, on a little-endian host.
func TestSendSlot(t *testing.T) {
	wr := rdmap.SendWR{
		ID: 0x1122334455667788, Op: rdmap.WRWrite, Flags: rdmap.Signaled,
		SGL:    []rdmap.SGE{{STag: 0xAABBCCDD, TO: 0x1000, Len: 0x20}},
		Inline: []byte("hey"), RemoteSTag: 0x01020304, RemoteTO: 0x2000, Invalidate: 0x05060708,
		Imm:  [8]byte{1, 2, 3, 4, 5, 6, 7, 8},
		Data: 0xD0, Mask: 0xD1, Compare: 0xD2, CompareMask: 0xD3,
	}
	const want = "8877665544332211" + "04010100" + "03000000" + "04030201" + "08070605" +
		"0020000000000000" + "0102030405060708" +
		"d000000000000000" + "d100000000000000" + "d200000000000000" + "d300000000000000" +
		"0000000000000000" +
		"ddccbbaa" + "20000000" + "0010000000000000" + "00000000000000000000000000000000" + "686579"
	b := make([]byte, SendSlot(2, 3))
	PutSend(b, 2, &wr)
	if host.String() == "LittleEndian" && hex.EncodeToString(b) != want {
		t.Errorf("slot\n%x\nwant\n%s", b, want)
	}
	var got rdmap.SendWR
	if err := ParseSend(b, 2, 3, &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(wr, got); d != "" {
		t.Errorf("parsed (-want +got):\n%s", d)
	}
	for name, spoil := range map[string]func(b []byte){
		"pieces": func(b []byte) {
			b[10] = 3
		}, "inline": func(b []byte) { b[12] = 4 }, "much inline": func(b []byte) { b[13] = 255 },
	} {
		c := bytes.Clone(b)
		spoil(c)
		if err := ParseSend(c, 2, 3, &got); !errors.Is(err, ErrEntry) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOtherSlots(t *testing.T) {
	wr := rdmap.RecvWR{ID: 7, SGL: []rdmap.SGE{{STag: 1, TO: 2, Len: 3}, {STag: 4, TO: 5, Len: 6}}}
	b := make([]byte, RecvSlot(2))
	PutRecv(b, &wr)
	var got rdmap.RecvWR
	if err := ParseRecv(b, 2, &got); err != nil || cmp.Diff(wr, got) != "" {
		t.Errorf("receive: %+v, %v", got, err)
	}
	c := Completion{ID: 1 << 63, QP: 5, Op: rdmap.WRRecv, Status: rdmap.WRFlushErr,
		Flags: rdmap.WithImm, ByteLen: 9, Invalidated: 10, Imm: [8]byte{7: 1}}
	slot := make([]byte, CompletionSlot)
	c.Put(slot)
	const want = "0000000000000080" + "05000000" + "ff040200" + "09000000" + "0a000000" +
		"0000000000000001"
	if host.String() == "LittleEndian" && !strings.HasPrefix(hex.EncodeToString(slot), want) {
		t.Errorf("completion %x, want %s...", slot, want)
	}
	var again Completion
	if again.Parse(slot); again != c {
		t.Errorf("completion: %+v, want %+v", again, c)
	}
}

func TestRing(t *testing.T) {
	m, err := NewMemory("test", 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	g := NewGeometry(0, 5, 65)
	if g.Slots != 8 || g.SlotSize != 128 {
		t.Errorf("geometry %+v", g)
	}
	p, err := NewProducer(m.Mem, g)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewConsumer(m.Mem, g)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 100 {
		for i := range g.Slots {
			slot, err := p.Next()
			if slot == nil || err != nil {
				t.Fatalf("round %d: slot %d: %v", round, i, err)
			}
			slot[0], slot[127] = byte(i), byte(round)
			p.Publish()
		}
		if slot, err := p.Next(); slot != nil || err != nil {
			t.Fatalf("a full ring has room: %v", err)
		}
		for i := range g.Slots {
			slot, err := c.Next()
			if slot == nil || err != nil || slot[0] != byte(i) || slot[127] != byte(round) {
				t.Fatalf("round %d: slot %d: %v, %v", round, i, slot, err)
			}
			c.Release()
		}
		if slot, err := c.Next(); slot != nil || err != nil {
			t.Fatalf("an empty ring has entries: %v", err)
		}
	}
	*word(m.Mem, headAt) = 900 // beyond the tail
	if _, err := p.Next(); !errors.Is(err, ErrIndex) {
		t.Errorf("a head beyond the tail: %v", err)
	}
	*word(m.Mem, tailAt) += 9
	if _, err := c.Next(); !errors.Is(err, ErrIndex) {
		t.Errorf("a tail too far ahead: %v", err)
	}
	for _, bad := range []Geometry{{}, {0, 3, 64}, {0, 4, 63}, {1, 4, 64}, {1 << 16, 4, 64},
		{0, 1 << 30, 64}, {0, 1 << 10, 1 << 10}} {
		if _, err := NewConsumer(m.Mem, bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

func TestRingAllocs(t *testing.T) {
	m, err := NewMemory("test", 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	g := NewGeometry(0, 4, SendSlot(4, 64))
	p, _ := NewProducer(m.Mem, g)
	c, _ := NewConsumer(m.Mem, g)
	wr := rdmap.SendWR{SGL: make([]rdmap.SGE, 4), Inline: make([]byte, 0, 64)}
	var got rdmap.SendWR
	buf := make([]byte, g.SlotSize)
	if n := testing.AllocsPerRun(100, func() {
		slot, _ := p.Next()
		PutSend(slot, 4, &wr)
		p.Publish()
		slot, _ = c.Next()
		copy(buf, slot)
		c.Release()
		ParseSend(buf, 4, 64, &got)
	}); n > 0 {
		t.Errorf("%v allocations for an entry", n)
	}
}

// TestSignal waits on an eventfd that the other side made block.
func TestSignal(t *testing.T) {
	s, err := NewSignal()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := s.Dup()
	if err != nil {
		t.Fatal(err)
	}
	unix.SetNonblock(fd, false)
	defer unix.Close(fd)
	s.Ring()
	s.Ring()
	if rung, err := s.Wait(0); !rung || err != nil {
		t.Fatal(rung, err)
	}
	s.Rouse()
	for _, limit := range []time.Duration{0, time.Millisecond, time.Millisecond} { // nobody rings
		if rung, err := s.Wait(limit); rung || err != nil {
			t.Fatal(rung, err)
		}
	}
	s.Ring()
	if rung, err := s.Wait(0); !rung || err != nil {
		t.Fatal(rung, err)
	}
	ended := make(chan error)
	go func() {
		_, err := s.Wait(0)
		ended <- err
	}()
	s.Close()
	if err := <-ended; err == nil {
		t.Error("Wait after Close succeeds")
	}
}

func TestCounters(t *testing.T) {
	got := Counters(&struct {
		RxFrames, NoHop uint64
		TCP             struct{ SRTT int32 }
		Name            string
		LastErrno       uint16
		Negative        int
	}{1, 2, struct{ SRTT int32 }{3}, "x", 4, -1})
	want := map[string]uint64{"rx_frames": 1, "no_hop": 2, "srtt": 3, "last_errno": 4}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func FuzzFrame(f *testing.F) {
	for _, e := range examples(f) {
		h := header{length: len(e), kind: KindRequest}
		b := make([]byte, headerLen)
		h.put(b)
		f.Add(append(b, e...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headerLen {
			return
		}
		h, err := parseHeader(b, MaxRequest)
		if err != nil {
			return
		}
		again := make([]byte, headerLen)
		if h.put(again); !bytes.Equal(again, b[:headerLen]) {
			t.Errorf("header %x is printed as %x", b[:headerLen], again)
		}
		r, err := ParseRequest(b[headerLen:])
		if err != nil {
			return
		}
		if make := args[r.Op]; make != nil {
			r.ParseArgs(make())
		}
	})
}

func FuzzEntry(f *testing.F) {
	b := make([]byte, SendSlot(4, 64))
	PutSend(b, 4, &rdmap.SendWR{ID: 1, Op: rdmap.WRSend, SGL: make([]rdmap.SGE, 3),
		Inline: []byte("x")})
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		slot := make([]byte, SendSlot(4, 64))
		copy(slot, b)
		var s rdmap.SendWR
		if err := ParseSend(slot, 4, 64, &s); err == nil && (len(s.SGL) > 4 || len(s.Inline) > 64) {
			t.Errorf("%d pieces, %d inline", len(s.SGL), len(s.Inline))
		}
		var r rdmap.RecvWR
		if err := ParseRecv(slot, 4, &r); err == nil && len(r.SGL) > 4 {
			t.Errorf("%d pieces", len(r.SGL))
		}
		var c Completion
		c.Parse(slot)
	})
}

// TestBells takes each bell that rang once.
func TestBells(t *testing.T) {
	mem := make([]byte, DoorbellLen)
	for _, bell := range []uint32{0, 31, 32, 100, 100, MaxQPs - 1} {
		RingBell(mem, bell)
	}
	var got []int
	take := func(bell int) { got = append(got, bell) }
	TakeBells(mem, 100, take)
	if d := cmp.Diff([]int{0, 31, 32}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	got = nil
	RingBell(mem, 100)
	TakeBells(mem, MaxQPs, take)
	TakeBells(mem, MaxQPs, take)
	if d := cmp.Diff([]int{100, MaxQPs - 1}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestChannel has a program leave signals unread, and send what it may not.
func TestChannel(t *testing.T) {
	c, peer, err := NewChannel()
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		c.Ring() // would block for ever
	}
	if err := unix.Sendmsg(peer, []byte{1}, unix.UnixRights(0), nil,
		unix.MSG_NOSIGNAL); err == nil {
		t.Error("a program can send to the daemon's end")
	}
	r, err := OpenChannel(peer)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Wait(); err != nil {
		t.Error(err)
	}
	c.Ring()
	if err := r.Wait(); err != nil {
		t.Error(err)
	}
	c.Close()
	c.Ring()
	for err == nil {
		err = r.Wait()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

// TestClosedConn: who uses a connection after its end hears of that, in words of its own.
func TestClosedConn(t *testing.T) {
	end, _ := pair(t)
	a := NewConn(end, 100)
	a.Close()
	if err := a.Send(KindRequest, nil); !errors.Is(err, ErrConnClosed) {
		t.Errorf("Send: %v", err)
	}
	if _, _, _, err := a.Receive(); !errors.Is(err, ErrConnClosed) {
		t.Errorf("Receive: %v", err)
	}
}
