package control

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"xwarp/ddp/rdmap"
	"xwarp/engine/testkit/havoc"
)

// TestSendSlot compares what PutSend writes with bytes made by hand from the layout in PROTOCOL.md, on a little-endian
// host. ParseSend must return the same request, and refuse slots with too many pieces or inline bytes.
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
	c := rdmap.Completion{ID: 1 << 63, Op: rdmap.WRRecv, Status: rdmap.WRFlushErr,
		Flags: rdmap.WithImm, ByteLen: 9, Invalidated: 10, Imm: [8]byte{7: 1}}
	slot := make([]byte, CompletionSlot)
	PutCompletion(slot, 5, &c)
	const want = "0000000000000080" + "05000000" + "ff040200" + "09000000" + "0a000000" +
		"0000000000000001"
	if host.String() == "LittleEndian" && !strings.HasPrefix(hex.EncodeToString(slot), want) {
		t.Errorf("completion %x, want %s...", slot, want)
	}
	if qp, again := ParseCompletion(slot); qp != 5 || again != c {
		t.Errorf("completion of queue pair %d: %+v, want %+v", qp, again, c)
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

// TestSignal: Wait on a doorbell whose eventfd the program has made blocking returns true once after any number of
// rings, false after Rouse or its time limit, and an error after Close.
func TestSignal(t *testing.T) {
	s, err := NewDoorbellEvent()
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
	for _, limit := range []time.Duration{0, time.Millisecond, time.Millisecond} { // no pending ring
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

func FuzzEntry(f *testing.F) {
	b := make([]byte, SendSlot(4, 64))
	PutSend(b, 4, &rdmap.SendWR{ID: 1, Op: rdmap.WRSend, SGL: make([]rdmap.SGE, 3),
		Inline: []byte("x")})
	f.Add(b)
	havoc.Fuzz(f, func(t *testing.T, b []byte) {
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
		ParseCompletion(slot)
	})
}

// TestBells: TakeBells reports each rung bell below its limit once, even if it was rung twice.
func TestBells(t *testing.T) {
	mem := make([]byte, DoorbellLen)
	for _, bell := range []uint32{0, 31, 32, 100, 100, MaxBells - 1} {
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
	TakeBells(mem, MaxBells, take)
	TakeBells(mem, MaxBells, take)
	if d := cmp.Diff([]int{100, MaxBells - 1}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestChannel: unread signals do not block the daemon, and a program cannot send to the daemon's end.
func TestChannel(t *testing.T) {
	c, peer, err := NewChannel()
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		c.Ring() // must not block, although nobody reads
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

// TestWake: Disarm and Wake, as a producer calls them, end the sleep of a consumer on its ring before its timeout, and
// leave 0 in the word that it sleeps on. Wake without a sleeper does nothing.
func TestWake(t *testing.T) {
	g := NewGeometry(0, 4, CompletionSlot)
	mem, err := unix.Mmap(-1, 0, g.Len(), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	p, err := NewProducer(mem, g)
	if err != nil {
		t.Fatal(err)
	}
	w := p.Waits()
	Wake(w) // no sleeper
	slept := make(chan unix.Errno)
	limit := unix.Timespec{Sec: 60}
	go func() {
		atomic.StoreUint32(w, 1)
		_, _, e := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), 0, 1,
			uintptr(unsafe.Pointer(&limit)), 0, 0)
		slept <- e
	}()
	for atomic.LoadUint32(w) == 0 {
		time.Sleep(time.Millisecond)
	}
	if !Disarm(w) {
		t.Error("the consumer does not sleep")
	}
	Wake(w)
	if e := <-slept; e != 0 && e != unix.EAGAIN {
		t.Errorf("the consumer's sleep ended with %v", e)
	}
	if v := atomic.LoadUint32(w); v != 0 {
		t.Errorf("the word is %d after the wake-up", v)
	}
}
