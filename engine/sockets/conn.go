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
	"xwarp/tcp/checksum"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// Sizes of one system call.
const (
	firstBlock = 4 << 10   // bytes of a read during MPA's start-up: bounds the memory of peers that only connect
	readBlock  = 256 << 10 // bytes of a read: still in the CPU cache when they are checked and copied
	maxWrite   = 1 << 20   // bytes of a write: a call costs as much as some ten thousand bytes
	writeBlock = 256 << 10 // size of the buffer for copied bytes of a write; the largest FPDU fits
	maxPieces  = 512       // elements of a write; the kernel allows 1024 (UIO_MAXIOV)
)

// conn is one connection over a socket. The worker's goroutine calls its methods and owns its fields.
type conn struct {
	worker  *worker
	conn    *core.Conn
	sock    net.Conn
	raw     syscall.RawConn
	iw      iwarp.Conn
	emss    int
	hasWork bool // step has something to do
	queued  bool // in worker.turns
	share   *core.Share

	ack         promptAck
	rcv         seq.Num
	readable    bool
	hungUp      bool      // the peer has closed or reset: reading ends with FIN or an error
	unread      []byte    // bytes that the iwarp.Conn has not taken; while there are any, nothing is read
	one         [1][]byte // argument of iwarp.Conn.Offer
	eof         bool      // the peer's FIN was read
	broken      error     // error of the read that ended reading; nil after FIN
	reportEOFBy tick.Time // latest time to report the peer's FIN or RST to the iwarp.Conn, even if data is unwritten

	snd      seq.Num // sequence number of the first byte of out
	out      mpa.Vector
	writable bool
	cut      bool // Reclaim cut an FPDU: nothing may follow
	fin      bool // Shutdown was called: send FIN once all is written
	finSent  bool // finish has sent FIN
	ended    bool // the socket is closed

	read, write func(fd uintptr) // arguments of raw.Control
	buf         []byte           // buffer of read
	pieces      int              // number of elements of worker.iov in use
	n           int              // bytes that read or write moved
	err         error
}

func newConn(w *worker, c *core.Conn, sock net.Conn) (*conn, error) {
	s, ok := sock.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("%w: %T is not a socket", verbs.ErrInvalid, sock)
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil, err
	}
	kc := &conn{worker: w, conn: c, sock: sock, raw: raw, emss: w.drv.cfg.EMSS, hasWork: true,
		reportEOFBy: tick.Never, share: &w.shard.Common}
	if kc.emss == 0 {
		kc.emss = segmentBytes(raw)
	}
	kc.read = func(fd uintptr) { kc.n, kc.err = recv(fd, kc.buf) }
	kc.write = func(fd uintptr) {
		w.msg.Iov = &w.iov[0]
		w.msg.SetIovlen(kc.pieces)
		kc.n, kc.err = sendmsg(fd, &w.msg)
	}
	return kc, nil
}

// onEvents records the readiness of the socket.
func (c *conn) onEvents(events uint32) {
	const over = unix.EPOLLHUP | unix.EPOLLERR
	c.readable = c.readable || events&(unix.EPOLLIN|unix.EPOLLRDHUP|over) != 0
	c.writable = c.writable || events&(unix.EPOLLOUT|over) != 0
	c.hungUp = c.hungUp || events&(unix.EPOLLRDHUP|over) != 0
	c.hasWork = true
}

// step reads once, runs timers and writes once. Afterwards hasWork says whether it can do more.
func (c *conn) step(now tick.Time) {
	if c.hasWork = false; c.ended {
		return
	}
	if c.reportEOFBy <= now {
		c.peerClosed()
	}
	late := c.iw.Deadline() <= now
	c.readable = c.readable || late // before timers expire: bytes may have arrived while this process did not run
	if c.receive(now); c.ended {
		return
	}
	if late {
		c.iw.Expire(now)
	}
	c.iw.Settle(now)
	c.transmit(now)
}

// receive reads once if the iwarp.Conn has taken all earlier bytes. Until then TCP's window stops the peer.
func (c *conn) receive(now tick.Time) {
	if len(c.unread) > 0 {
		rest := c.offer(c.unread)
		c.hasWork = c.hasWork || len(rest) < len(c.unread)
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
		c.onReadEnd(err)
	default:
		c.readable = c.n == len(c.buf) || c.hungUp
		c.hasWork = true
		c.noteReceived(now)
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

// offer passes b to the iwarp.Conn and returns the bytes that it does not take yet.
func (c *conn) offer(b []byte) (rest []byte) {
	for len(b) > 0 {
		n := c.offerOnce(b)
		if n == 0 {
			break
		}
		b = b[n:]
	}
	return b
}

func (c *conn) offerOnce(b []byte) (n int) {
	defer c.iw.Contain()
	c.one[0] = b
	if n = c.iw.Offer(c.rcv, c.one[:], len(b), checksum.Known{}); n > 0 {
		c.rcv = c.rcv.Add(n)
		c.iw.Advance(c.rcv)
	}
	return n
}

// onReadEnd ends reading because of err, or because of the peer's FIN if err is nil.
func (c *conn) onReadEnd(err error) {
	c.readable = false
	if c.eof = err == nil; !c.eof {
		c.broken = socketCause(err)
	}
	if c.out.Len() > 0 { // the peer may still read this data
		c.reportEOFBy = core.Now().Add(eofGrace)
		return
	}
	c.peerClosed()
}

// socketCause returns the cause of a connection's end for an error of its socket.
func socketCause(err error) error {
	switch {
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return tcp.CauseReset
	case errors.Is(err, unix.ETIMEDOUT):
		return tcp.CauseTimeout
	}
	return err
}

// eofGrace is how long remaining data is written after the peer has closed or reset the connection.
const eofGrace = 2 * tick.Second

func (c *conn) peerClosed() {
	c.reportEOFBy = tick.Never
	if c.broken != nil {
		c.end(c.broken)
		return
	}
	c.iw.PeerClosed(core.Now())
	c.hasWork = true
	if c.finSent || c.cut { // otherwise transmit calls finish after the last data
		c.finish()
	}
}

// deadline returns when step must be called.
func (c *conn) deadline() tick.Time { return min(c.iw.Deadline(), c.reportEOFBy) }

// finish sends FIN if Shutdown was called and all is written. It ends the connection when both directions are closed.
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

// end closes the socket and reports the cause to the iwarp.Conn.
func (c *conn) end(cause error) {
	if c.close() {
		c.iw.Ended(cause)
	}
}

// EndAfterPanic implements core's panicTarget.
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
	c.ended, c.hasWork = true, true
	c.sock.Close()
	c.out.Reset()
	c.worker.returnBuffer(c.out.Room)
	c.out.Room = nil
	return true
}

// resetOnClose makes the kernel send RST instead of FIN when the socket is closed, and drop unsent data.
func (c *conn) resetOnClose() {
	if t, ok := c.sock.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
}

// Transport implements core.Carrier.
func (c *conn) Transport() string { return "kernel" }

// TCPInfo implements core.Carrier. It returns nothing, because the kernel has its own TCP_INFO.
func (c *conn) TCPInfo() *verbs.TCPInfo { return nil }

// Obstacle implements core.Carrier. It returns nil, because the kernel reports no obstacle before the connection fails.
func (c *conn) Obstacle() error { return nil }

// SetTOS implements core.Carrier. It does nothing once the socket is closed.
func (c *conn) SetTOS(tos uint8) {
	if !c.ended {
		_ = c.raw.Control(func(fd uintptr) { setTOS(int(fd), tos) })
	}
}

// OnEstablished implements core.Carrier.
func (c *conn) OnEstablished(s *core.Share) {
	c.conn.Charge.Established()
	c.share = s
}

// Schedule implements iwarp.Transport.
func (c *conn) Schedule() { c.hasWork = true }

// Shutdown implements iwarp.Transport.
func (c *conn) Shutdown(tick.Time) { c.fin, c.hasWork = true, true }

// Abort implements iwarp.Transport. It sends RST.
func (c *conn) Abort(tick.Time) {
	c.resetOnClose()
	c.worker.shard.Post(func() { c.end(tcp.CauseAborted) })
}

// TakeBack implements iwarp.Transport. Nothing at or after that sequence number was passed to the socket, so all of it
// can be produced again.
func (c *conn) TakeBack(seq.Num) {}

// Break implements iwarp.Transport.
func (c *conn) Break() { c.end(tcp.CauseAborted) }

// EMSS implements iwarp.Transport.
func (c *conn) EMSS() int {
	if p := c.iw.Params(); p != nil && p.LongFPDUs {
		return mpa.MaxFPDU
	}
	return c.emss
}
