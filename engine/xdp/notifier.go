package xdp

import (
	"encoding/binary"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notifier wakes goroutines for a worker, on its own goroutine. If the worker woke them itself, they would start late:
// a goroutine readied by a busy thread waits on that thread's P of the Go runtime. Other threads steal from there last,
// and only after a pause of 3 µs, which takes 60 µs with the kernel's timers. The notifier's goroutine waits in the
// runtime's poller, which runs it at once on another thread. The goroutines that it readies then run on that thread.
type notifier struct {
	pending   []func() // notifications of this turn; owned by the worker
	signalled bool     // flush has passed on notifications; owned by the worker, which resets it
	efd       int
	file      *os.File // file of efd
	loopDone  chan struct{}

	mu     sync.Mutex
	queued []func() // notifications for deliverLoop; guarded by mu
}

func (c *notifier) start() error {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	c.efd, c.file, c.loopDone = fd, os.NewFile(uintptr(fd), "notifier"), make(chan struct{})
	raw, err := c.file.SyscallConn()
	if err != nil {
		c.file.Close()
		return err
	}
	go c.deliverLoop(raw)
	return nil
}

func (c *notifier) deliverLoop(raw syscall.RawConn) {
	defer close(c.loopDone)
	var batch []func()
	deliver := func() {
		c.mu.Lock()
		batch, c.queued = c.queued, batch[:0]
		c.mu.Unlock()
		for _, f := range batch {
			f()
		}
		clear(batch)
	}
	// The poller reports each write to an eventfd, also when earlier writes have not been read.
	raw.Read(func(uintptr) bool { deliver(); return false })
	deliver()
}

// flush passes the pending notifications of the worker to deliverLoop. It never blocks. If deliverLoop holds mu, flush
// returns false and leaves them for the next turn.
func (c *notifier) flush() bool {
	if len(c.pending) == 0 {
		return true
	}
	if !c.mu.TryLock() {
		return false
	}
	c.queued = append(c.queued, c.pending...)
	c.mu.Unlock()
	clear(c.pending)
	c.pending, c.signalled = c.pending[:0], true
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	// In a system call that is not raw, the runtime may take the P from the thread.
	unix.RawSyscall(unix.SYS_WRITE, uintptr(c.efd), uintptr(unsafe.Pointer(&one)), 8)
	return true
}

// stop delivers the remaining notifications and ends deliverLoop.
func (c *notifier) stop() {
	c.mu.Lock()
	c.queued = append(c.queued, c.pending...)
	c.mu.Unlock()
	c.pending = nil
	c.file.Close()
	<-c.loopDone
}
