package sockets

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"xwarp/engine/internal/core"
	"xwarp/engine/iwarp"
	"xwarp/engine/verbs"
	"xwarp/mpa"
	"xwarp/tcp"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// What goes to and from a socket in one system call.
const (
	firstBlock = 4 << 10   // read until MPA's start-up is over: whoever connects costs no more than that
	readBlock  = 256 << 10 // of the device: still in the processor's cache when it is checked and copied
	writeMost  = 1 << 20   // each call costs as much as some ten thousand octets
	writeBlock = 256 << 10 // of that, what is copied; it holds the largest FPDU
	maxPieces  = 512       // of a call: at most 1024, the kernel's UIO_MAXIOV
)

// conn is one connection over a socket. All methods run on the driver's goroutine, which owns all fields.
type conn struct {
	worker *worker
	conn   *core.Conn
	sock   net.Conn
	raw    syscall.RawConn
	iw     iwarp.Conn
	emss   int
	due    bool // step has something to do
	waits  bool // for its turn, in worker.turns
	share  *core.Share

	ack      promptAck
	rcv      seq.Num
	readable bool
	hungUp   bool      // by the peer: what is read ends with FIN or an error
	unread   []byte    // what the iwarp.Conn has not taken yet; nothing is read then
	one      [1][]byte // of offer
	eof      bool      // the peer's FIN
	broken   error     // the socket's, when there was something to write
	eofBy    tick.Time // tell the iwarp.Conn about the peer's FIN or RST by then, although not all is written

	snd      seq.Num // of out
	out      mpa.Vector
	writable bool
	cut      bool // by reclaim, in an FPDU: nothing may follow
	fin      bool // Shutdown was called: FIN once nothing is left to be written
	finSent  bool // by finish
	ended    bool // by close: the socket is no more

	read, write func(fd uintptr) // of raw.Control
	buf         []byte           // that read fills
	pieces      int              // that write takes
	n           int              // octets that they moved
	err         error
}

func newConn(w *worker, c *core.Conn, sock net.Conn) (*conn, error) {
	s, ok := sock.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("%w: a %T is no socket", verbs.ErrInvalid, sock)
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil, err
	}
	kc := &conn{worker: w, conn: c, sock: sock, raw: raw, emss: w.drv.cfg.EMSS, due: true,
		eofBy: tick.Never, share: &w.loop.Common}
	if kc.emss == 0 {
		kc.emss = segmentOctets(raw)
	}
	kc.read = func(fd uintptr) { kc.n, kc.err = recv(fd, kc.buf) }
	kc.write = func(fd uintptr) {
		w.msg.Iov = &w.iov[0]
		w.msg.SetIovlen(kc.pieces)
		kc.n, kc.err = sendmsg(fd, &w.msg)
	}
	return kc, nil
}

// heed notes what the socket wants.
func (c *conn) heed(events uint32) {
	const over = unix.EPOLLHUP | unix.EPOLLERR
	c.readable = c.readable || events&(unix.EPOLLIN|unix.EPOLLRDHUP|over) != 0
	c.writable = c.writable || events&(unix.EPOLLOUT|over) != 0
	c.hungUp = c.hungUp || events&(unix.EPOLLRDHUP|over) != 0
	c.due = true
}

// step moves what can be moved at once: octets of the socket up, FPDUs down, timers. Afterwards due says whether there
// is more.
func (c *conn) step(now tick.Time) {
	if c.due = false; c.ended {
		return
	}
	if c.eofBy <= now {
		c.peerClosed()
	}
	late := c.iw.Deadline() <= now
	c.readable = c.readable || late // what came while this process did not run came in time
	if c.receive(now); c.ended {
		return
	}
	if late {
		c.iw.Expire(now)
	}
	c.iw.Settle(now)
	c.transmit(now)
}

// receive reads once, when the iwarp.Conn has taken what was read before; until then TCP's window holds the peer back.
func (c *conn) receive(now tick.Time) {
	if len(c.unread) > 0 {
		rest := c.offer(c.unread)
		c.due = c.due || len(rest) < len(c.unread)
		if c.unread = c.unread[:copy(c.unread, rest)]; len(rest) > 0 {
			return
		}
		c.unread = nil
	}
	if !c.readable || c.eof || c.broken != nil || c.ended {
		return
	}
	c.buf = c.worker.in
	if c.iw.Params() == nil {
		c.buf = c.buf[:firstBlock]
	}
	switch err := c.call(c.read); {
	case err == unix.EAGAIN:
		c.readable = false
	case err != nil || c.n == 0:
		c.over(err)
	default:
		c.readable = c.n == len(c.buf) || c.hungUp
		c.due = true
		c.arrived(now)
		if rest := c.offer(c.buf[:c.n]); len(rest) > 0 {
			c.unread = append(c.unread, rest...)
		}
	}
}

// call runs a system call on the socket.
func (c *conn) call(f func(fd uintptr)) error {
	for {
		c.n, c.err = 0, nil
		if err := c.raw.Control(f); err != nil {
			return err
		}
		if c.err != unix.EINTR {
			return c.err
		}
	}
}

// offer gives b to the iwarp.Conn and returns what it does not take for now.
func (c *conn) offer(b []byte) (rest []byte) {
	for len(b) > 0 {
		n := c.take(b)
		if n == 0 {
			break
		}
		b = b[n:]
	}
	return b
}

func (c *conn) take(b []byte) (n int) {
	defer c.iw.Contain()
	c.one[0] = b
	if n = c.iw.Offer(c.rcv, c.one[:], len(b)); n > 0 {
		c.rcv = c.rcv.Add(n)
		c.iw.Advance(c.rcv)
	}
	return n
}

// over says that nothing more is read; err is nil for the peer's FIN.
func (c *conn) over(err error) {
	c.readable = false
	if c.eof = err == nil; !c.eof {
		c.broken = socketCause(err)
	}
	if c.out.Len() > 0 { // which the peer may still take
		c.eofBy = core.Now().Add(eofGrace)
		return
	}
	c.peerClosed()
}

// socketCause says what err of a socket means for the connection.
func socketCause(err error) error {
	switch {
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return tcp.CauseReset
	case errors.Is(err, unix.ETIMEDOUT):
		return tcp.CauseTimeout
	}
	return err
}

// eofGrace bounds the wait for a write that a peer which closed does not take.
const eofGrace = 2 * tick.Second

func (c *conn) peerClosed() {
	c.eofBy = tick.Never
	if c.broken != nil {
		c.end(c.broken)
		return
	}
	c.iw.PeerClosed(core.Now())
	c.due = true
	if c.finSent || c.cut { // else transmit finishes, behind what is still to be sent
		c.finish()
	}
}

// deadline returns when step must be called.
func (c *conn) deadline() tick.Time { return min(c.iw.Deadline(), c.eofBy) }

// finish sends FIN when asked for and possible, and ends the connection when both directions are done.
func (c *conn) finish() {
	if c.fin && !c.finSent && c.out.Len() == 0 {
		c.finSent = true
		if h, ok := c.sock.(interface{ CloseWrite() error }); ok {
			h.CloseWrite()
		}
	}
	if c.finSent && c.eof {
		c.end(nil)
	}
}

// end closes the socket and tells the iwarp.Conn why.
func (c *conn) end(cause error) {
	if c.close() {
		c.iw.Ended(cause)
	}
}

// abandon implements abandoner.
func (c *conn) EndAfterPanic(why error) {
	c.resetOnClose()
	if c.close() {
		c.iw.Abandon(why)
	}
}

// close closes the socket, and reports whether it was open.
func (c *conn) close() bool {
	if c.ended {
		return false
	}
	c.ended, c.due = true, true
	c.sock.Close()
	c.out.Reset()
	c.worker.giveRoom(c.out.Room)
	c.out.Room = nil
	return true
}

// resetOnClose has the kernel send RST instead of FIN, and drop what it has not sent.
func (c *conn) resetOnClose() {
	if t, ok := c.sock.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
}

// transport implements carrier.
func (c *conn) Transport() string { return "kernel" }

// tcpInfo implements carrier: the kernel has its own TCP_INFO.
func (c *conn) TCPInfo() *verbs.TCPInfo { return nil }

// established implements carrier.
func (c *conn) OnEstablished(s *core.Share) {
	c.conn.Charge.Established()
	c.share = s
}

// Wake implements iwarp.Transport.
func (c *conn) Wake() { c.due = true }

// Shutdown implements iwarp.Transport.
func (c *conn) Shutdown(tick.Time) { c.fin, c.due = true, true }

// Abort implements iwarp.Transport: RST.
func (c *conn) Abort(tick.Time) {
	c.resetOnClose()
	c.worker.loop.Post(func() { c.end(tcp.CauseAborted) })
}

// TakeBack implements iwarp.Transport: write has not counted them yet.
func (c *conn) TakeBack(from seq.Num) seq.Num { return from }

// Break implements iwarp.Transport.
func (c *conn) Break() { c.end(tcp.CauseAborted) }

// EMSS implements iwarp.Transport.
func (c *conn) EMSS() int {
	if p := c.iw.Params(); p != nil && p.LongFPDUs {
		return mpa.MaxFPDU
	}
	return c.emss
}
