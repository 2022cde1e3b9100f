package xdp

import (
	"encoding/binary"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// crier wakes goroutines for a worker, which would be slow at that: whom a thread wakes that goes on running waits on
// its P of the Go runtime, where other threads look last, and take nothing before a pause of 3 µs, which the kernel's
// timers make 60. The crier's goroutine waits in the runtime's poller, which has a thread run it at once, and behind it
// whom it wakes.
type notifier struct {
	news []func() // of this turn; the worker's
	told bool     // something was sent; the worker's
	efd  int
	file *os.File // of efd
	over chan struct{}

	mu    sync.Mutex
	given []func()
}

func (c *notifier) begin() error {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	c.efd, c.file, c.over = fd, os.NewFile(uintptr(fd), "crier"), make(chan struct{})
	raw, err := c.file.SyscallConn()
	if err != nil {
		c.file.Close()
		return err
	}
	go c.run(raw)
	return nil
}

func (c *notifier) run(raw syscall.RawConn) {
	defer close(c.over)
	var news []func()
	cry := func() {
		c.mu.Lock()
		news, c.given = c.given, news[:0]
		c.mu.Unlock()
		for _, f := range news {
			f()
		}
		clear(news)
	}
	// The poller tells of each write to an eventfd, whether what was written before was read or not.
	raw.Read(func(uintptr) bool { cry(); return false })
	cry()
}

// send gives the crier what the worker had to tell in a turn. It never waits: false means that some is left for the
// next turn.
func (c *notifier) send() bool {
	if len(c.news) == 0 {
		return true
	}
	if !c.mu.TryLock() {
		return false
	}
	c.given = append(c.given, c.news...)
	c.mu.Unlock()
	clear(c.news)
	c.news, c.told = c.news[:0], true
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	// The runtime may take the P away from a thread in a system call that it knows of.
	unix.RawSyscall(unix.SYS_WRITE, uintptr(c.efd), uintptr(unsafe.Pointer(&one)), 8)
	return true
}

// end waits until everything was told.
func (c *notifier) end() {
	c.mu.Lock()
	c.given = append(c.given, c.news...)
	c.mu.Unlock()
	c.news = nil
	c.file.Close()
	<-c.over
}
