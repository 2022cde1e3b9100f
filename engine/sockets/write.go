package sockets

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"xwarp/mpa"
	"xwarp/tcp"
	"xwarp/tcp/checksum"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// transmit writes once, as much as may be sent and the socket takes.
func (c *conn) transmit(now tick.Time) {
	if c.ended || c.finSent || c.cut {
		return
	}
	if c.fill(); c.ended {
		return
	}
	if c.out.Len() == 0 {
		c.worker.giveRoom(c.out.Room)
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
		c.touch()
		c.end(tcp.CauseAborted) // the peer may have a part of the FPDU
	case err != nil:
		c.end(socketCause(err))
	default:
		c.writable = c.n == n
		c.ack.NoteReply(now, ackWait)
		c.wrote(c.n)
	}
}

// fill freezes what may be sent, up to what one call should write.
func (c *conn) fill() {
	room, emss := firstBlock, c.EMSS() // for start-up frames
	if c.iw.Params() != nil {
		room = max(emss, mpa.MinFPDU)
	}
	if c.out.Room == nil {
		c.out.Room = c.worker.takeRoom()
	}
	for c.out.Len() < writeMost && len(c.out.Pieces()) < maxPieces && c.out.Space() >= room {
		k, _ := c.iw.Next(emss)
		if k == 0 {
			return
		}
		if !c.iw.Gather(seq.Of(c.snd.Add(c.out.Len()), k), &c.out) && c.ended {
			return
		}
	}
}

// wrote hears that the kernel has taken n octets: it sends them again by itself, so their memory is free.
func (c *conn) wrote(n int) {
	c.out.Discard(n)
	c.snd = c.snd.Add(n)
	c.due = true
	c.iw.Acked(c.snd)
	if c.eofBy != tick.Never && c.out.Len() == 0 {
		c.peerClosed()
	}
}

// touch has the queue pair hear which memory a system call could not read.
func (c *conn) touch() {
	defer c.iw.Contain()
	for _, p := range c.out.Pieces() {
		checksum.CRC(0, p)
	}
}

// reclaim implements carrier: what was lent is copied before its owner hears that it is his again, for the CRC was made
// over it as it is now, and a Terminate may follow it.
func (c *conn) Reclaim() {
	defer func() {
		if recover() != nil { // the memory is gone, so that the FPDU cannot be finished
			c.out.Reset()
			c.cut = true
			c.Abort(0)
		}
	}()
	c.out.CopyLent()
}

// takeRoom returns room for what a connection writes; giveRoom takes it back.
func (w *worker) takeRoom() []byte {
	n := len(w.rooms)
	if n == 0 {
		return make([]byte, writeBlock)
	}
	b := w.rooms[n-1]
	w.rooms = w.rooms[:n-1]
	return b
}

func (w *worker) giveRoom(b []byte) {
	if b != nil && len(w.rooms) < len(w.slots)-len(w.free) { // as many as connections may want
		w.rooms = append(w.rooms, b)
	}
}

// gather puts pieces into w.iov, as many as it holds, and returns how many and their octets.
func (w *worker) gather(pieces [][]byte) (n, octets int) {
	n = min(len(pieces), len(w.iov))
	for i, p := range pieces[:n] {
		w.iov[i].Base = unsafe.SliceData(p)
		w.iov[i].SetLen(len(p))
		octets += len(p)
	}
	return n, octets
}

// sendmsg is unix.SendmsgBuffers without an allocation. The Go runtime does not hear of it, nor of recv and epollWait
// below: no call waits for anything, whatever mode somebody else gave the socket, and the runtime would give the P to
// another thread in those that copy for long, which then looks for work on the processor that the call is on.
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

// epollWait returns how many events there are now, see sendmsg.
func epollWait(fd uintptr, events []unix.EpollEvent) int {
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, fd,
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
	if e != 0 {
		return 0
	}
	return int(n)
}
