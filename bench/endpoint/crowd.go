package endpoint

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// crowd is an end that carries a bandwidth test over many kernel TCP connections on one thread. epoll reports which of
// them are ready.
type crowd struct {
	plainSockets
	epoll     int
	events    []unix.EpollEvent
	remaining map[int32]int // by descriptor: bytes of the current message that are not written yet
}

func (c *crowd) init() (err error) {
	c.events, c.remaining = make([]unix.EpollEvent, 256), map[int32]int{}
	c.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	return err
}

// add makes a socket non-blocking and adds it to epoll, for the given events.
func (c *crowd) add(fd int, events uint32) error {
	c.remaining[int32(fd)] = c.spec.Size
	return errors.Join(unix.SetNonblock(fd, true),
		unix.EpollCtl(c.epoll, unix.EPOLL_CTL_ADD, fd,
			&unix.EpollEvent{Events: events, Fd: int32(fd)}))
}

// ready waits until sockets are ready and returns their events. It returns none after a tenth of a second.
func (c *crowd) ready() ([]unix.EpollEvent, error) {
	n, err := unix.EpollWait(c.epoll, c.events, 100)
	if err == unix.EINTR {
		n, err = 0, nil
	}
	return c.events[:max(0, n)], err
}

func (c *crowd) closeAll() {
	for fd := range c.remaining {
		unix.Close(int(fd))
	}
	unix.Close(c.epoll)
}

func (c *crowd) runClient(ctx context.Context, server Ready) (r *Result, err error) {
	err = OnProcessor(c.place.CPU, func() error {
		if err := c.init(); err != nil {
			return err
		}
		defer c.closeAll()
		for range c.spec.Conns {
			fd, err := c.dial(server.Addr)
			if err == nil {
				err = c.add(fd, unix.EPOLLOUT)
			}
			if err != nil {
				return err
			}
		}
		r, err = c.stream(ctx)
		return err
	})
	return r, err
}

// stream writes messages to every connection that has room, until the measured window is over. Only acknowledged bytes
// count, because the send buffers of thousands of connections hold as many bytes as one window moves.
func (c *crowd) stream(ctx context.Context) (*Result, error) {
	b := make([]byte, c.spec.Size)
	w := window{spec: c.spec}
	now := time.Now()
	w.openAt(now)
	next := now.Add(c.spec.Warmup)
	for more := true; more; {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		events, err := c.ready()
		if err != nil {
			return nil, err
		}
		for i := range events {
			fd := events[i].Fd
			n, err := unix.Write(int(fd), b[:c.remaining[fd]])
			if err != nil && err != unix.EINTR && err != unix.EAGAIN {
				return nil, err
			}
			if c.remaining[fd] -= max(0, n); c.remaining[fd] == 0 {
				c.remaining[fd] = c.spec.Size
			}
		}
		if now := time.Now(); now.After(next) {
			more = w.tick(now, c.acked())
			next = now.Add(c.spec.Duration)
		}
	}
	return w.result(), nil
}

// acked returns the number of bytes that the peer has acknowledged on all connections, in units of whole messages.
func (c *crowd) acked() uint64 {
	var byteCount uint64
	for fd := range c.remaining {
		if i, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			byteCount += i.Bytes_acked
		}
	}
	return byteCount / uint64(c.spec.Size)
}

// runServer reads and discards the bytes of all connections on another thread, until stop is closed.
func (c *crowd) runServer(ctx context.Context, client Ready, stop <-chan struct{}) (*Result,
	error) {
	go OnProcessor(c.place.CPU, c.acceptAndDiscard)
	return c.plainSockets.closeOnStop(ctx, stop)
}

func (c *crowd) acceptAndDiscard() error {
	if err := c.init(); err != nil {
		return err
	}
	defer c.closeAll()
	if err := c.add(c.l, unix.EPOLLIN); err != nil {
		return err
	}
	delete(c.remaining, int32(c.l)) // closeAll must not close the listener: plainSockets.close does
	b := make([]byte, bulkRead)
	for c.open.Load() {
		events, err := c.ready()
		if err != nil {
			return err
		}
		for i := range events {
			fd := int(events[i].Fd)
			if fd == c.l {
				fd, _, err := unix.Accept4(c.l, unix.SOCK_CLOEXEC)
				if err == nil {
					err = c.add(fd, unix.EPOLLIN)
				}
				if err != nil && err != unix.EAGAIN {
					return err
				}
				continue
			}
			n, err := unix.Read(fd, b)
			if n == 0 || err != nil && err != unix.EINTR && err != unix.EAGAIN {
				delete(c.remaining, int32(fd))
				unix.Close(fd)
			}
		}
	}
	return nil
}
