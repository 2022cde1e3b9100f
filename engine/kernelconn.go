package engine

import (
	"errors"
	"io"
	"net"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"xwarp/engine/iwarp"
	"xwarp/engine/verbs"
	"xwarp/mpa"
	"xwarp/tcp"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// Sizes of the blocks that go to and from a socket in one system call. A block must hold the largest FPDU.
const (
	firstBlock = 4 << 10 // until MPA's start-up is over: whoever connects costs no more than that
	readBlock  = 256 << 10
	readBlocks = 2 // of a connection, with one that is read into while the other one is taken
	writeBlock = 256 << 10
)

// kernelConn is one connection over a socket. All methods but reader and writer run on the driver's goroutine, which
// owns all fields but the channels.
type kernelConn struct {
	drv  *kernelDriver
	conn *conn
	sock net.Conn
	iw   iwarp.Conn
	emss int

	rcv    seq.Num
	unread []unread    // what the iwarp.Conn has not taken yet: as many blocks as there are, so the reader waits then
	blocks chan []byte // those that the reader may fill
	large  atomic.Bool // with FPDUs: blocks of full size
	pieces [readBlocks][]byte
	eof    bool      // the peer's FIN
	broken error     // the socket's, when a write was under way
	eofBy  tick.Time // tell the iwarp.Conn about the peer's FIN or RST by then, although a write is under way

	snd     seq.Num
	out     []byte
	writing bool // the writer has out
	writes  chan []byte
	fin     bool // Shutdown was called: FIN once nothing is left to be written
	finSent bool // by finish
	ended   bool // by close: the socket, reader and writer are no more
}

// unread is the rest of a block.
type unread struct{ rest, block []byte }

type readResult struct {
	b   []byte // the whole block
	n   int
	err error
}

func newKernelConn(k *kernelDriver, c *conn, sock net.Conn) *kernelConn {
	kc := &kernelConn{
		drv: k, conn: c, sock: sock, emss: k.cfg.EMSS,
		blocks: make(chan []byte, readBlocks), writes: make(chan []byte, 1),
		out: make([]byte, firstBlock), eofBy: tick.Never,
	}
	if kc.emss == 0 {
		if n, err := segmentOctets(sock); err == nil {
			kc.emss = n
		} else {
			kc.emss = fallbackEMSS
		}
	}
	for range readBlocks {
		kc.blocks <- make([]byte, firstBlock)
	}
	return kc
}

func (c *kernelConn) begin(now tick.Time) {
	c.iw.Begin(c, c.snd, c.rcv, now)
	go c.reader()
	go c.writer()
}

// reader gives the octets of the socket to the driver. While the iwarp.Conn leaves them it has no block,
// and TCP's window holds the peer back.
func (c *kernelConn) reader() {
	for b := range c.blocks {
		if len(b) < readBlock && c.large.Load() {
			b = make([]byte, readBlock)
		}
		n, err := c.sock.Read(b)
		r := readResult{b: b, n: n, err: err}
		if !c.drv.loop.post(func() { c.arrived(r) }) || err != nil {
			return
		}
	}
}

func (c *kernelConn) writer() {
	for b := range c.writes {
		_, err := c.sock.Write(b)
		if !c.drv.loop.post(func() { c.written(len(b), err) }) {
			return
		}
	}
}

// arrived takes one read.
func (c *kernelConn) arrived(r readResult) {
	c.drv.loop.doing = c
	if c.ended {
		return
	}
	if r.n > 0 {
		c.unread = append(c.unread, unread{r.b[:r.n], r.b})
		c.offer()
	} else {
		c.release(r.b)
	}
	if r.err == nil {
		return
	}
	if c.eof = errors.Is(r.err, io.EOF); !c.eof {
		c.broken = socketCause(r.err)
	}
	if c.writing {
		// The peer may have closed because of what the writer has just sent, and the word of that is still on its way.
		c.eofBy = clock().Add(eofGrace)
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

func (c *kernelConn) peerClosed() {
	c.eofBy = tick.Never
	if c.broken != nil {
		c.end(c.broken)
		return
	}
	c.iw.PeerClosed(clock())
	c.finish()
}

// deadline returns when step must be called.
func (c *kernelConn) deadline() tick.Time { return min(c.iw.Deadline(), c.eofBy) }

// offer gives the iwarp.Conn what it has not taken; what it refuses for now waits for the next step.
func (c *kernelConn) offer() {
	defer c.iw.Contain()
	for len(c.unread) > 0 {
		pieces, n := c.pieces[:0], 0
		for _, u := range c.unread {
			pieces = append(pieces, u.rest)
			n += len(u.rest)
		}
		if n = c.iw.Offer(c.rcv, pieces, n); n == 0 {
			return
		}
		c.took(n)
		c.rcv = c.rcv.Add(n)
		c.iw.Advance(c.rcv)
	}
}

// took drops n octets from unread, and gives the blocks that are done with back to the reader.
func (c *kernelConn) took(n int) {
	for n > 0 {
		u := &c.unread[0]
		if n < len(u.rest) {
			u.rest = u.rest[n:]
			return
		}
		n -= len(u.rest)
		c.release(u.block)
		c.unread = c.unread[:copy(c.unread, c.unread[1:])]
	}
}

func (c *kernelConn) release(block []byte) {
	if !c.ended {
		c.blocks <- block
	}
}

// step moves what can be moved: unread octets up, FPDUs down, timers.
func (c *kernelConn) step(now tick.Time) {
	if c.ended {
		return
	}
	if c.iw.Deadline() <= now {
		c.iw.Expire(now)
	}
	if c.eofBy <= now {
		c.peerClosed()
	}
	c.offer()
	c.iw.Settle(now)
	c.write()
}

// write fills one block with what may be sent and hands it to the writer.
func (c *kernelConn) write() {
	if c.writing || c.ended || c.finSent {
		return
	}
	room, emss := firstBlock, c.EMSS() // for start-up frames
	if c.iw.Params() != nil {
		if room = max(emss, mpa.MinFPDU); len(c.out) < writeBlock {
			c.out = make([]byte, writeBlock)
			c.large.Store(true) // before the peer can send an FPDU
		}
	}
	n := 0
	for len(c.out)-n >= room {
		k, _ := c.iw.Next(emss)
		if k == 0 {
			break
		}
		if c.iw.FillSafely(seq.Of(c.snd.Add(n), k), c.out[n:n+k]) {
			n += k
		} else if c.ended {
			return
		}
	}
	if n == 0 {
		c.finish()
		return
	}
	c.writing = true
	c.writes <- c.out[:n]
}

// written hears that the kernel has taken n octets: it sends them again by itself, so their memory is free.
func (c *kernelConn) written(n int, err error) {
	c.drv.loop.doing = c
	c.writing = false
	if c.ended {
		return
	}
	if err != nil {
		c.end(socketCause(err))
		return
	}
	c.snd = c.snd.Add(n)
	c.iw.Acked(c.snd)
	if c.eofBy != tick.Never {
		c.peerClosed()
	}
	c.step(clock())
}

// finish sends FIN when asked for and possible, and ends the connection when both directions are done.
func (c *kernelConn) finish() {
	if c.fin && !c.finSent && !c.writing {
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
func (c *kernelConn) end(cause error) {
	if c.close() {
		c.iw.Ended(cause)
	}
}

// abandon implements abandoner.
func (c *kernelConn) abandon(why error) {
	c.resetOnClose()
	if c.close() {
		c.iw.Abandon(why)
	}
}

// close closes the socket, which ends reader and writer, and reports whether it was open.
func (c *kernelConn) close() bool {
	if c.ended {
		return false
	}
	c.ended = true
	c.sock.Close()
	close(c.writes)
	close(c.blocks)
	return true
}

// resetOnClose has the kernel send RST instead of FIN, and drop what it has not sent.
func (c *kernelConn) resetOnClose() {
	if t, ok := c.sock.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
}

// tcpInfo implements carrier: the kernel has its own TCP_INFO.
func (c *kernelConn) tcpInfo() *verbs.TCPInfo { return nil }

// established implements carrier.
func (c *kernelConn) established() { c.conn.charge.Established() }

func (c *kernelConn) dead() bool { return c.ended }

// Wake implements iwarp.Transport: the driver visits every connection anyway.
func (c *kernelConn) Wake() { c.drv.wake() }

// Shutdown implements iwarp.Transport.
func (c *kernelConn) Shutdown(tick.Time) { c.fin = true; c.drv.wake() }

// Abort implements iwarp.Transport: RST.
func (c *kernelConn) Abort(tick.Time) {
	c.resetOnClose()
	c.drv.loop.post(func() { c.end(tcp.CauseAborted) })
}

// TakeBack implements iwarp.Transport: write has not counted them yet.
func (c *kernelConn) TakeBack(from seq.Num) seq.Num { return from }

// Break implements iwarp.Transport.
func (c *kernelConn) Break() { c.end(tcp.CauseAborted) }

// EMSS implements iwarp.Transport.
func (c *kernelConn) EMSS() int {
	if p := c.iw.Params(); p != nil && p.LongFPDUs {
		return mpa.MaxFPDU
	}
	return c.emss
}
