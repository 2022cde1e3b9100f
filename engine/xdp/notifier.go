package xdp

import (
	"encoding/binary"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notifier wakes goroutines for a worker, which would be slow at that: whom a thread wakes that goes on running waits
// on its P of the Go runtime, where other threads look last, and take nothing before a pause of 3 µs, which the
// kernel's timers make 60. The crier's goroutine waits in the runtime's poller, which has a thread run it at once, and
// behind it whom it wakes.
type notifier struct {
	pending   []func() // of this turn; the worker's
	signalled bool     // something was sent; the worker's
	efd       int
	file      *os.File // of efd
	loopDone  chan struct{}

	mu     sync.Mutex
	queued []func()
}

func (c *notifier) start() error {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	c.efd, c.file, c.loopDone = fd, os.NewFile(uintptr(fd), "crier"), make(chan struct{})
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
	// The poller tells of each write to an eventfd, whether what was written before was read or not.
	raw.Read(func(uintptr) bool { deliver(); return false })
	deliver()
}

// flush gives the crier what the worker had to tell in a turn. It never waits: false means that some is left for the
// next turn.
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
	// The runtime may take the P away from a thread in a system call that it knows of.
	unix.RawSyscall(unix.SYS_WRITE, uintptr(c.efd), uintptr(unsafe.Pointer(&one)), 8)
	return true
}

// stop waits until everything was told.
func (c *notifier) stop() {
	c.mu.Lock()
	c.queued = append(c.queued, c.pending...)
	c.mu.Unlock()
	c.pending = nil
	c.file.Close()
	<-c.loopDone
}
