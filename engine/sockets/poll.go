package sockets

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// poller waits for events of many sockets in one goroutine. It is an epoll instance, which is itself a file of the Go
// runtime's poller, so that waiting blocks no thread.
type poller struct {
	file   *os.File
	raw    syscall.RawConn
	asleep atomic.Bool
	rung   atomic.Bool // the file's deadline is in the past
	alarm  time.Time   // the deadline that wait set last on file

	ready   func() bool // reports work that was posted before asleep was set
	tryWait func(fd uintptr) bool
	tryOnce func(fd uintptr)
	events  [64]unix.EpollEvent
	n       int // number of valid elements of events
}

func newPoller(ready func() bool) (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // the runtime polls only non-blocking files
		unix.Close(fd)
		return nil, fmt.Errorf("epoll: %w", err)
	}
	p := &poller{file: os.NewFile(uintptr(fd), "epoll"), ready: ready}
	p.tryWait = func(fd uintptr) bool {
		p.n = epollWait(fd, p.events[:])
		return p.n > 0
	}
	p.tryOnce = func(fd uintptr) { p.tryWait(fd) }
	if p.raw, err = p.file.SyscallConn(); err != nil {
		p.file.Close()
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return p, nil
}

// watch adds the socket to the epoll instance, edge-triggered. Its events carry slot.
func (p *poller) watch(sock syscall.RawConn, slot int) (err error) {
	event := unix.EpollEvent{Fd: int32(slot),
		Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET}
	e := p.raw.Control(func(poll uintptr) {
		e := sock.Control(func(fd uintptr) {
			err = unix.EpollCtl(int(poll), unix.EPOLL_CTL_ADD, int(fd), &event)
		})
		err = errors.Join(e, err)
	})
	if err = errors.Join(e, err); err != nil {
		return fmt.Errorf("EPOLL_CTL_ADD: %w", err)
	}
	return nil
}

// poll returns the pending events, without waiting. They are valid until the next call.
func (p *poller) poll() []unix.EpollEvent {
	p.n = 0
	p.raw.Control(p.tryOnce)
	return p.events[:p.n]
}

// wait returns events like poll, and waits for some until wake is called or the deadline has passed. The zero time is
// no deadline.
func (p *poller) wait(deadline time.Time) []unix.EpollEvent {
	p.n = 0
	p.asleep.Store(true)
	if p.rung.Swap(false) || deadline != p.alarm {
		p.alarm = deadline
		p.file.SetReadDeadline(deadline)
	}
	if !p.ready() {
		if p.raw.Read(p.tryWait) != nil { // the deadline has passed
			p.rung.Store(true)
		}
	}
	p.asleep.Store(false)
	return p.events[:p.n]
}

// wake ends wait. Any goroutine may call it.
func (p *poller) wake() {
	if p.asleep.Load() {
		p.rung.Store(true)
		p.file.SetReadDeadline(time.Unix(1, 0))
	}
}

func (p *poller) close() { p.file.Close() }
