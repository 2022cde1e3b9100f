package iwarp

import (
	"encoding/binary"
	"strings"
	"testing"

	"xwarp/ddp/rdmap"
	"xwarp/mpa/startup"
	"xwarp/tcp/checksum"
	"xwarp/tcp/tick"
)

// midway returns an initiator and a responder after the start-up, and an FPDU of the initiator that has not been
// delivered yet.
func midway(t *testing.T, timeout tick.Duration, reliable bool) (i, r *side, fpdu []byte) {
	t.Helper()
	cfg := startup.Config{IRD: 2, ORD: 2, RTRs: startup.RTRRead}
	i, r = newSide(t, false, cfg), newSide(t, true, cfg)
	k := r.cfg
	k.FPDUTimeout, k.Reliable = timeout, reliable
	if err := r.Init(k); err != nil {
		t.Fatal(err)
	}
	r.Begin(r, 1000, 1000, 0)
	meet(t, i, r, 1<<16, nil)
	if r.Deadline() != tick.Never || r.qp.State() != rdmap.RTS {
		t.Fatalf("deadline %v after the start-up, %s", r.Deadline(), r.describe())
	}
	if err := i.qp.PostSend(&rdmap.SendWR{Op: rdmap.WRWrite}); err != nil {
		t.Fatal(err)
	}
	return i, r, i.transmit()
}

// TestFPDUTimeout: an FPDU of which the rest does not come ends the connection after FPDUTimeout. The error has the
// length field and the number of bytes that arrived, and the peer gets the Terminate 2/0/02. The same holds for an FPDU
// whose length was changed on the path.
func TestFPDUTimeout(t *testing.T) {
	for _, timeout := range []tick.Duration{0, 20 * tick.Second} {
		want := tick.Time(timeout)
		if timeout == 0 {
			want = tick.Time(DefaultFPDUTimeout)
		}
		for _, c := range []struct {
			name string
			n    int // bytes of the FPDU that arrive
			text string
		}{
			{"one byte", 1, ": 1 bytes arrived"},
			{"its length", 2, "length field 14: 2 bytes arrived"},
			{"all but one", -1, "length field 14: 19 bytes arrived"},
			{"a longer length", 0, "length field 30000: 20 bytes arrived"},
		} {
			i, r, fpdu := midway(t, timeout, true)
			switch {
			case c.n == 0:
				binary.BigEndian.PutUint16(fpdu, 30000)
			case c.n < 0:
				fpdu = fpdu[:len(fpdu)+c.n]
			default:
				fpdu = fpdu[:c.n]
			}
			r.receive(t, fpdu[:1], 1)
			r.Settle(0)
			r.receive(t, fpdu[1:], 3)
			r.Settle(1)
			if r.Deadline() != want {
				t.Errorf("%s: deadline %v, want %v", c.name, r.Deadline(), want)
			}
			r.Expire(want)
			i.receive(t, r.transmit(), 1<<16)
			i.Settle(want)
			if r.restAt != tick.Never {
				t.Errorf("%s: the wait continues after the end", c.name)
			}
			if got := r.qp.Err(); got == nil || !strings.Contains(got.Error(), c.text) {
				t.Errorf("%s: %v, want %q", c.name, got, c.text)
			}
			const heard = "peer said: terminate 2/0/02"
			if got := i.qp.Err(); got == nil || !strings.Contains(got.Error(), heard) {
				t.Errorf("%s: the peer's error is %v", c.name, got)
			}
		}
	}
}

// TestFPDUInTime: completing an FPDU ends the wait, and the next FPDU has its own timeout.
func TestFPDUInTime(t *testing.T) {
	i, r, fpdu := midway(t, tick.Second, true)
	r.receive(t, fpdu[:10], 10)
	r.Settle(0)
	r.receive(t, fpdu[10:], 10)
	if r.Settle(9); r.Deadline() != tick.Never {
		t.Errorf("deadline %v after a whole FPDU", r.Deadline())
	}
	for at := range tick.Time(5) {
		if err := i.qp.PostSend(&rdmap.SendWR{Op: rdmap.WRWrite}); err != nil {
			t.Fatal(err)
		}
		next := i.transmit()
		r.receive(t, next[:7], 7)
		r.Settle(at)
		if r.Deadline() != at.Add(tick.Second) {
			t.Errorf("FPDU %d: deadline %v", at, r.Deadline())
		}
		r.receive(t, next[7:], 1<<16)
		r.Settle(at)
		i.Acked(i.sndNxt)
		i.Settle(at)
	}
	if r.Deadline() != tick.Never || r.qp.State() != rdmap.RTS {
		t.Errorf("deadline %v, %s", r.Deadline(), r.describe())
	}
}

// TestFPDUForEver: with a timeout of tick.Forever the wait does not end.
func TestFPDUForEver(t *testing.T) {
	_, r, fpdu := midway(t, -1, true)
	r.receive(t, fpdu[:10], 10)
	if r.Settle(0); r.Deadline() != tick.Never {
		t.Errorf("deadline %v", r.Deadline())
	}
}

// wantHole checks that the connection ended by RST because a hole was not filled, and that no bytes are held
// afterwards.
func (s *side) wantHole(t *testing.T) {
	t.Helper()
	const text = "although later ones arrived"
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), text) || !s.rst {
		t.Errorf("the hole ends with %v, RST %v", err, s.rst)
	}
	if n := s.Stats().HeldBytes; n != 0 {
		t.Errorf("%d bytes are held after the end", n)
	}
}

// TestHoleTimeout: bytes after a hole are held for FPDUTimeout. If the hole is not filled by then, the connection ends.
func TestHoleTimeout(t *testing.T) {
	_, r, fpdu := midway(t, tick.Second, false)
	for range 2 { // bytes outside a known FPDU are held only if they arrive twice
		r.Offer(r.at.Add(4), [][]byte{fpdu[4:]}, len(fpdu)-4, checksum.Known{})
	}
	if n := r.Stats().HeldBytes; n != len(fpdu)-4 {
		t.Fatalf("%d bytes are held after the hole", n)
	}
	if r.Settle(5); r.Deadline() != tick.Time(5).Add(tick.Second) {
		t.Errorf("deadline %v", r.Deadline())
	}
	r.Expire(r.Deadline())
	r.wantHole(t)
}

// TestRestInLastTurn: if the rest of an FPDU arrives after the deadline, but before Expire, it is in time.
func TestRestInLastTurn(t *testing.T) {
	_, r, fpdu := midway(t, tick.Second, true)
	r.receive(t, fpdu[:10], 10)
	r.Settle(0)
	due := r.Deadline()
	r.receive(t, fpdu[10:], 10)
	r.Expire(due)
	if r.Settle(due); r.Err() != nil || r.Deadline() != tick.Never {
		t.Errorf("%v, RST %v, deadline %v", r.Err(), r.rst, r.Deadline())
	}
}

// TestHoleInFPDU: a hole in the middle of an FPDU is reported as a TCP hole, not as an incomplete FPDU.
func TestHoleInFPDU(t *testing.T) {
	_, r, fpdu := midway(t, tick.Second, false)
	for _, b := range [][2]int{{0, 6}, {10, len(fpdu)}} {
		for range 2 {
			r.Offer(r.at.Add(b[0]), [][]byte{fpdu[b[0]:b[1]]}, b[1]-b[0], checksum.Known{})
		}
	}
	r.Advance(r.at.Add(6))
	r.Settle(0)
	r.Expire(r.Deadline())
	r.wantHole(t)
}

// TestSlowFill: a peer that completes an FPDU occasionally, and fills no hole, cannot make the receiver hold bytes
// forever.
func TestSlowFill(t *testing.T) {
	i, r, next := midway(t, tick.Minute, false)
	far := make([]byte, 1400)
	for range 2 {
		r.Offer(r.at.Add(1<<16), [][]byte{far}, len(far), checksum.Known{})
	}
	r.Settle(0)
	due := r.Deadline()
	for now := tick.Time(0); r.Err() == nil; now = now.Add(30 * tick.Second) {
		if now > due {
			t.Fatalf("%d bytes are held after %v", r.Stats().HeldBytes, now)
		}
		if r.Deadline() <= now {
			r.Expire(now)
			continue
		}
		r.receive(t, next, 1<<16)
		r.Settle(now)
		i.Acked(i.sndNxt)
		i.Settle(now)
		if err := i.qp.PostSend(&rdmap.SendWR{Op: rdmap.WRWrite}); err != nil {
			t.Fatal(err)
		}
		next = i.transmit()
	}
	r.wantHole(t)
}

// TestReceiveTimeout: a message for which no receive is posted waits for one. After ReceiveTimeout it is an error (RFC
// 5041, 7.1), and the peer gets the Terminate 1/2/02. The next message has its own timeout.
func TestReceiveTimeout(t *testing.T) {
	cfg := startup.Config{IRD: 2, ORD: 2, RTRs: startup.RTRRead}
	i, r := newSide(t, false, cfg), newSide(t, true, cfg)
	k := r.cfg
	k.ReceiveTimeout = tick.Second
	if err := r.Init(k); err != nil {
		t.Fatal(err)
	}
	r.Begin(r, 1000, 1000, 0)
	meet(t, i, r, 1<<16, nil)
	for at := range tick.Time(3) {
		if err := i.qp.PostSend(&rdmap.SendWR{Op: rdmap.WRSend}); err != nil {
			t.Fatal(err)
		}
		r.receive(t, i.transmit(), 1<<16)
		for now := at; now < at+2; now++ {
			if r.Settle(now); r.Deadline() != at.Add(tick.Second) {
				t.Errorf("message %d: deadline %v", at, r.Deadline())
			}
		}
		if at == 2 {
			break
		}
		if err := r.qp.PostRecv(&rdmap.RecvWR{}); err != nil {
			t.Fatal(err)
		}
		if r.Settle(at + 3); r.Deadline() != tick.Never {
			t.Errorf("message %d has a receive: deadline %v", at, r.Deadline())
		}
	}
	r.Expire(tick.Time(2).Add(tick.Second))
	i.receive(t, r.transmit(), 1<<16)
	i.Settle(0)
	if got := i.qp.Err(); got == nil || !strings.Contains(got.Error(), "terminate 1/2/02") {
		t.Errorf("the peer's error is %v", got)
	}
}
