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
	"xwarp/engine/internal/core"
	"xwarp/engine/verbs"
	"xwarp/tcp/tick"
)

// worker runs some connections of a device on one goroutine, which reads and writes their sockets itself:
// nothing is handed over, and nothing is read before there is somewhere to put it.
type worker struct {
	drv  *Driver
	loop *core.Shard
	poll *poller

	stop  atomic.Bool
	ended chan struct{}
	slots []*conn // by what the poll knows them; nil: free
	turns fair.Queue[core.Carrier]
	free  []int        // slots
	conns atomic.Int32 // slots that are not free

	news []func() // to tell at the end of a turn
	quit bool     // there are no more turns

	unacked []*conn // whose acknowledgement may be due, see promptAck

	in    []byte   // what one read gave
	rooms [][]byte // for what is to be written, of connections that have nothing
	iov   [maxPieces]unix.Iovec
	msg   unix.Msghdr // of iov
}

func newWorker(k *Driver) (w *worker, err error) {
	w = &worker{drv: k, ended: make(chan struct{}), in: make([]byte, readBlock)}
	if w.poll, err = newPoller(w.pending); err != nil {
		return nil, err
	}
	w.loop = core.NewShard(w)
	return w, nil
}

func (w *worker) Wake() { w.poll.wake() }

// tell implements waker. Whom it wakes has work for all connections then, and not a turn for each.
func (w *worker) Tell(f func()) {
	if w.quit {
		f()
		return
	}
	w.news = append(w.news, f)
}

// cry tells what a turn brought, and lets those who heard it go first: what they post is written with the next turn,
// and nothing sleeps in between.
func (w *worker) cry() {
	if len(w.news) == 0 {
		return
	}
	for i, f := range w.news {
		w.news[i] = nil
		f()
	}
	w.news = w.news[:0]
	runtime.Gosched()
}

// run is the life of the one goroutine that owns the connections.
func (w *worker) run() {
	defer close(w.ended)
	defer w.poll.close()
	debug.SetPanicOnFault(true) // see regionLost
	w.loop.RecordGoroutine()
	for !w.stop.Load() {
		now := core.Now()
		w.loop.StartTurn(now)
		w.loop.Work()
		w.loop.EnterPlace(core.AtTimers)
		next, idle := w.steps(now)
		w.cry()
		if idle = idle && !w.pending(); len(w.unacked) > 0 {
			next = min(next, w.acknowledge(now, idle))
		}
		if !idle {
			w.heed(w.poll.now())
			continue
		}
		w.loop.GoIdle()
		var deadline time.Time
		if next != tick.Never {
			deadline = core.Epoch.Add(time.Duration(next))
		}
		w.heed(w.poll.wait(deadline))
	}
	w.cry()
	w.quit = true
	w.abortAll()
	w.loop.End() // which may bring one more connection
	w.abortAll()
}

func (w *worker) pending() bool { return w.loop.Pending() || w.stop.Load() }

// heed notes what the sockets want.
func (w *worker) heed(events []unix.EpollEvent) {
	for i := range events {
		if c := w.slots[events[i].Fd]; c != nil {
			c.heed(events[i].Events)
		}
	}
}

// steps lets some of the connections do what they can for now, up to stepsPerTurn. It returns when the next one wants
// to, and idle when none could go on at once; after a panic it is not.
func (w *worker) steps(now tick.Time) (next tick.Time, idle bool) {
	defer w.loop.Contain()
	for _, c := range w.slots {
		if c != nil && !c.waits && (c.due || c.deadline() <= now) {
			c.waits = true
			w.turns.Push(&c.share.Steps, c)
		}
	}
	for range core.StepsPerTurn {
		next, ok := w.turns.Next()
		if !ok {
			break
		}
		c := next.(*conn)
		c.waits = false
		w.loop.Doing = c
		c.step(now)
	}
	next, rest := tick.Never, true
	for i, c := range w.slots {
		switch {
		case c == nil || c.waits:
			rest = rest && c == nil
		case c.ended:
			w.leave(i)
		default:
			next, rest = min(next, c.deadline()), rest && !c.due
		}
	}
	return next, rest
}

// enter gives c a slot.
func (w *worker) enter(c *conn) (slot int) {
	w.conns.Add(1)
	if n := len(w.free); n > 0 {
		slot, w.free = w.free[n-1], w.free[:n-1]
		w.slots[slot] = c
		return slot
	}
	w.slots = append(w.slots, c)
	return len(w.slots) - 1
}

func (w *worker) leave(slot int) {
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

func (w *worker) connected(c *core.Conn, sock net.Conn, err error) {
	if c.Over { // Dial gave up meanwhile
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

// adopt makes an iwarp.Conn for a connected socket. It runs on the loop.
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
	slot := w.enter(kc)
	if err := w.begin(c, kc, slot); err != nil {
		w.leave(slot)
		return err
	}
	w.loop.Sums.EnterConn(c)
	kc.iw.Begin(kc, kc.snd, kc.rcv, core.Now())
	return nil
}

func (w *worker) begin(c *core.Conn, kc *conn, slot int) error {
	if err := w.poll.watch(kc.raw, slot); err != nil {
		return err
	}
	if err := c.Begin(w.loop, &kc.iw, kc); err != nil {
		return err
	}
	c.Startup.LongFPDUs = w.drv.cfg.EMSS == 0
	return kc.iw.Init(w.drv.base.IWARPConfig(c, w.loop, true))
}

// segmentOctets asks the kernel what one segment of a socket carries; it does not know of those that are no TCP's.
func segmentOctets(sock syscall.RawConn) int {
	n := 0
	err := sock.Control(func(fd uintptr) {
		n, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG)
	})
	if err != nil || n <= 0 {
		return fallbackEMSS
	}
	return n
}

// fallbackEMSS is for connections whose segments are not known: an Ethernet's.
const fallbackEMSS = 1448

// Leftovers returns the number of connections, or of slots in use if there are more; see core.Leftovers.
func (w *worker) Leftovers() int { return max(int(w.conns.Load()), len(w.slots)-len(w.free)) }
