package sockets

import (
	"testing"

	"xwarp/tcp/tick"
)

// rawSocket counts the options that are set on it.
type rawSocket struct{ set int }

func (r *rawSocket) Control(func(fd uintptr)) error   { r.set++; return nil }
func (r *rawSocket) Read(func(fd uintptr) bool) error { return nil }
func (r *rawSocket) Write(func(fd uintptr) bool) error {
	return nil
}

// TestKernelPromptAck: the kernel is asked to acknowledge received data at once if the worker is idle, otherwise when
// the data has waited longer than ackWait. After three replies in a row that came just too late, an acknowledgement
// waits for the next reply, at most for ackWait. If no reply came, the next acknowledgement is immediate again. The
// kernel is not asked for a connection that has ended.
func TestKernelPromptAck(t *testing.T) {
	sock := &rawSocket{}
	w := &worker{}
	c := &conn{worker: w, raw: sock}
	now := tick.Time(tick.Second)
	// turn calls acknowledge, and checks how many times the kernel has been asked so far.
	turn := func(idle bool, want int) tick.Time {
		t.Helper()
		next := w.acknowledge(now, idle)
		if sock.set != want {
			t.Fatalf("asked the kernel %d times, want %d", sock.set, want)
		}
		return next
	}
	c.noteReceived(now)
	next := turn(false, 0)
	if d := next.Sub(now); d <= ackWait || d > 2*ackWait {
		t.Errorf("looks again in %v", d)
	}
	now = next
	turn(false, 1)
	c.noteReceived(now)
	c.noteReceived(now)
	if next := turn(true, 2); next != tick.Never || len(w.unacked) != 0 {
		t.Errorf("looks again at %v, %d connections", next, len(w.unacked))
	}
	for range 3 { // replies just too late to carry the acknowledgement
		c.noteReceived(now)
		turn(true, sock.set+1)
		now = now.Add(ackWait)
		c.ack.NoteReply(now, ackWait)
	}
	asked := sock.set
	for range 100 {
		c.noteReceived(now)
		turn(true, asked)
		now = now.Add(tick.Millisecond / 10)
		c.ack.NoteReply(now, ackWait)
		turn(true, asked)
	}
	c.noteReceived(now)
	since := now
	for now = turn(true, asked); now.Sub(since) < ackWait; now = turn(true, asked) {
	}
	turn(true, asked+1)
	c.noteReceived(now)
	turn(true, asked+2) // the previous acknowledgement had no reply
	c.noteReceived(now)
	c.ended = true
	turn(true, asked+2)
	if len(w.unacked) != 0 {
		t.Error("a connection that ended is kept")
	}
}
