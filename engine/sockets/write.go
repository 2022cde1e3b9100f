package sockets

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"xwarp/engine/guard"
	"xwarp/mpa"
	"xwarp/tcp"
	"xwarp/tcp/checksum"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// transmit writes once, as much as the protocol may send and the socket accepts.
func (c *conn) transmit(now tick.Time) {
	if c.ended || c.finSent || c.cut {
		return
	}
	if c.fill(); c.ended {
		return
	}
	if c.out.Len() == 0 {
		c.worker.returnBuffer(c.out.Room)
		c.out.Room = nil
		c.finish()
		return
	}
	if !c.writable {
		return
	}
	n := 0
	c.pieces, n = c.worker.gather(c.out.Pieces())
	err := c.call(c.write)
	clear(c.worker.iov[:c.pieces])
	switch {
	case err == unix.EAGAIN:
		c.writable = false
	case err == unix.EFAULT:
		c.reportFault()
		c.end(tcp.CauseAborted) // the peer may have received a part of the FPDU
	case err != nil:
		c.end(socketCause(err))
	default:
		c.writable = c.n == n
		c.ack.NoteReply(now, ackWait)
		c.onWritten(c.n)
	}
}

// fill adds the FPDUs that may be sent to out, up to the size of one write.
func (c *conn) fill() {
	room, emss := firstBlock, c.EMSS() // for start-up frames
	if c.iw.Params() != nil {
		room = max(emss, mpa.MinFPDU)
	}
	if c.out.Room == nil {
		c.out.Room = c.worker.takeBuffer()
	}
	for c.out.Len() < maxWrite && len(c.out.Pieces()) < maxPieces && c.out.Space() >= room {
		k, _ := c.iw.Next(emss)
		if k == 0 {
			return
		}
		if !c.iw.Gather(seq.Of(c.snd.Add(c.out.Len()), k), &c.out) && c.ended {
			return
		}
	}
}

// onWritten is called when the kernel has taken n bytes. The kernel retransmits from its own copy, so the memory of
// these bytes is free.
func (c *conn) onWritten(n int) {
	c.out.Discard(n)
	c.snd = c.snd.Add(n)
	c.hasWork = true
	c.iw.Acked(c.snd)
	if c.reportEOFBy != tick.Never && c.out.Len() == 0 {
		c.peerClosed()
	}
}

// reportFault reads the memory that a system call could not read, so that the queue pair reports the fault of its
// region.
func (c *conn) reportFault() {
	defer c.iw.Contain()
	for _, p := range c.out.Pieces() {
		checksum.CRC(0, p)
	}
}

// Reclaim implements core.Carrier. It copies lent memory before its owner may change it, because the CRC covers its
// current content, and a Terminate may follow in the stream.
func (c *conn) Reclaim() {
	defer guard.Recover(func(any) { // the memory cannot be read: the FPDU cannot be completed, and RST follows
		c.out.Reset()
		c.cut = true
		c.Abort(0)
	})
	c.out.CopyLent()
}

// takeBuffer returns a write buffer; returnBuffer takes it back.
func (w *worker) takeBuffer() []byte {
	n := len(w.buffers)
	if n == 0 {
		return make([]byte, writeBlock)
	}
	b := w.buffers[n-1]
	w.buffers = w.buffers[:n-1]
	return b
}

func (w *worker) returnBuffer(b []byte) {
	if b != nil && len(w.buffers) < len(w.slots)-len(w.free) { // keep at most one per connection
		w.buffers = append(w.buffers, b)
	}
}

// gather puts pieces into w.iov, as many as fit, and returns their number and their total size in bytes.
func (w *worker) gather(pieces [][]byte) (n, size int) {
	n = min(len(pieces), len(w.iov))
	for i, p := range pieces[:n] {
		w.iov[i].Base = unsafe.SliceData(p)
		w.iov[i].SetLen(len(p))
		size += len(p)
	}
	return n, size
}

// sendmsg is unix.SendmsgBuffers without an allocation. Like recv and epollWait below, it is a raw system call without
// the Go runtime's hooks, and it never blocks, even if the socket is in blocking mode. With the hooks, the runtime
// would take the P away during a long copy and give it to another thread, which then competes for the CPU of the call.
func sendmsg(fd uintptr, msg *unix.Msghdr) (int, error) {
	n, _, e := unix.RawSyscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(msg)),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}

// recv is unix.Recvfrom without the address, see sendmsg.
func recv(fd uintptr, b []byte) (int, error) {
	n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}

// epollWait fills events with those available now, without waiting, and returns their number; 0 on error. See sendmsg.
func epollWait(fd uintptr, events []unix.EpollEvent) int {
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, fd,
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
	if e != 0 {
		return 0
	}
	return int(n)
}
