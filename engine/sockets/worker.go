package sockets

import (
	"fmt"
	"net"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/fair"
	"xwarp/engine/guard"
	"xwarp/engine/internal/core"
	"xwarp/engine/verbs"
	"xwarp/tcp/tick"
)

// worker runs some connections of a device on one goroutine, which reads and writes their sockets itself.
type worker struct {
	drv   *Driver
	shard *core.Shard
	poll  *poller

	stop  atomic.Bool
	ended chan struct{}
	slots []*conn // indexed by the slot of the poller's events; nil: free
	turns fair.Queue[core.Carrier]
	free  []int        // indices of free slots
	conns atomic.Int32 // number of slots that are not free

	notifications []func() // functions to run at the end of the turn
	turnsEnded    bool     // the last turn has ended

	unacked []*conn // connections with received bytes that may be unacknowledged, see promptAck

	in      []byte   // read buffer
	buffers [][]byte // free write buffers
	iov     [maxPieces]unix.Iovec
	msg     unix.Msghdr // header of a system call that sends iov
}

func newWorker(k *Driver) (w *worker, err error) {
	w = &worker{drv: k, ended: make(chan struct{}), in: make([]byte, readBlock)}
	if w.poll, err = newPoller(w.pending); err != nil {
		return nil, err
	}
	w.shard = core.NewShard(w)
	return w, nil
}

func (w *worker) Wake() { w.poll.wake() }

// Notify implements core.Worker. It defers f to the end of the turn, so that a woken goroutine finds the work of all
// connections at once.
func (w *worker) Notify(f func()) {
	if w.turnsEnded {
		f()
		return
	}
	w.notifications = append(w.notifications, f)
}

// runNotifications runs the notifications of this turn and lets the woken goroutines run first, so that the next turn
// writes what they post.
func (w *worker) runNotifications() {
	if len(w.notifications) == 0 {
		return
	}
	for i, f := range w.notifications {
		w.notifications[i] = nil
		f()
	}
	w.notifications = w.notifications[:0]
	runtime.Gosched()
}

// workLoop is the body of the goroutine that owns the connections.
func (w *worker) workLoop() {
	defer close(w.ended)
	defer w.poll.close()
	debug.SetPanicOnFault(true) // see core.Device.regionLost
	w.shard.RecordGoroutine()
	for !w.stop.Load() {
		now := core.Now()
		w.shard.StartTurn(now)
		w.shard.RunPosted()
		w.shard.EnterPlace(core.AtTimers)
		next, idle := w.stepConns(now)
		w.runNotifications()
		if idle = idle && !w.pending(); len(w.unacked) > 0 {
			next = min(next, w.acknowledge(now, idle))
		}
		if !idle {
			w.onEvents(w.poll.poll())
			continue
		}
		w.shard.GoIdle()
		var deadline time.Time
		if next != tick.Never {
			deadline = core.Epoch.Add(time.Duration(next))
		}
		w.onEvents(w.poll.wait(deadline))
	}
	w.runNotifications()
	w.turnsEnded = true
	w.abortAll()
	w.shard.CloseMailbox() // a posted function may add a connection
	w.abortAll()
}

func (w *worker) pending() bool { return w.shard.HasPosted() || w.stop.Load() }

// onEvents records socket readiness.
func (w *worker) onEvents(events []unix.EpollEvent) {
	for i := range events {
		if c := w.slots[events[i].Fd]; c != nil {
			c.onEvents(events[i].Events)
		}
	}
}

// stepConns steps connections that have work or whose deadline has passed, up to StepsPerTurn. It returns the next
// deadline, and idle when no connection has more work. After a panic idle is false.
func (w *worker) stepConns(now tick.Time) (next tick.Time, idle bool) {
	defer guard.Recover(w.shard.ContainPanic)
	for _, c := range w.slots {
		if c != nil && !c.queued && (c.hasWork || c.deadline() <= now) {
			c.queued = true
			w.turns.Push(core.ConnClass[core.Carrier](c.share), c)
		}
	}
	for range core.StepsPerTurn {
		next, ok := w.turns.Next()
		if !ok {
			break
		}
		c := next.(*conn)
		c.queued = false
		w.shard.Current = c
		c.step(now)
	}
	next, rest := tick.Never, true
	for i, c := range w.slots {
		switch {
		case c == nil || c.queued:
			rest = rest && c == nil
		case c.ended:
			w.removeConn(i)
		default:
			next, rest = min(next, c.deadline()), rest && !c.hasWork
		}
	}
	return next, rest
}

// addConn gives c a free slot.
func (w *worker) addConn(c *conn) (slot int) {
	w.conns.Add(1)
	if n := len(w.free); n > 0 {
		slot, w.free = w.free[n-1], w.free[:n-1]
		w.slots[slot] = c
		return slot
	}
	w.slots = append(w.slots, c)
	return len(w.slots) - 1
}

func (w *worker) removeConn(slot int) {
	w.conns.Add(-1)
	w.slots[slot], w.free = nil, append(w.free, slot)
}

func (w *worker) abortAll() {
	for _, c := range w.slots {
		if c != nil {
			c.iw.Abort(core.Now())
			c.end(verbs.ErrClosed)
		}
	}
}

func (w *worker) onConnected(c *core.Conn, sock net.Conn, err error) {
	if c.Ended { // Dial was aborted meanwhile
		if err == nil {
			sock.Close()
		}
		return
	}
	if err == nil {
		err = w.adopt(c, sock)
		if err != nil {
			sock.Close()
		}
	}
	if err != nil {
		c.Release()
		c.Report(err)
	}
}

// adopt makes an iwarp.Conn for a connected socket.
func (w *worker) adopt(c *core.Conn, sock net.Conn) error {
	c.Local, c.Remote = core.AddrPort(sock.LocalAddr()), core.AddrPort(sock.RemoteAddr())
	if t, ok := sock.(*net.TCPConn); ok {
		if err := t.SetKeepAliveConfig(w.drv.base.Options().Keepalive.SocketConfig()); err != nil {
			return fmt.Errorf("SO_KEEPALIVE: %w", err)
		}
	}
	kc, err := newConn(w, c, sock)
	if err != nil {
		return err
	}
	if tos := c.TOS(); tos != 0 { // an accepted socket may be older than the mark of its listener
		kc.SetTOS(tos)
	}
	slot := w.addConn(kc)
	if err := w.bind(c, kc, slot); err != nil {
		w.removeConn(slot)
		return err
	}
	w.shard.Sums.AddConn(c)
	kc.iw.Begin(kc, kc.snd, kc.rcv, core.Now())
	return nil
}

func (w *worker) bind(c *core.Conn, kc *conn, slot int) error {
	if err := w.poll.watch(kc.raw, slot); err != nil {
		return err
	}
	if err := c.Bind(w.shard, &kc.iw, kc); err != nil {
		return err
	}
	c.Startup.LongFPDUs = w.drv.cfg.EMSS == 0
	return kc.iw.Init(w.drv.base.IWARPConfig(c, w.shard, true))
}

// segmentBytes returns the payload of a segment of the socket (TCP_MAXSEG), or fallbackEMSS if it is not a TCP socket.
func segmentBytes(sock syscall.RawConn) int {
	n := 0
	err := sock.Control(func(fd uintptr) {
		n, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG)
	})
	if err != nil || n <= 0 {
		return fallbackEMSS
	}
	return n
}

// fallbackEMSS is the payload of a segment on Ethernet.
const fallbackEMSS = 1448

// Leftovers returns the number of connections, or of slots in use if there are more; see core.Leftovers.
func (w *worker) Leftovers() int { return max(int(w.conns.Load()), len(w.slots)-len(w.free)) }
