// Package netwatch follows a part of the kernel's network configuration: neighbours, addresses, links, routes. The
// kernel reports changes without waiting for the listener, and drops messages that do not fit into the socket's buffer.
// After such a loss everything must be reread; this package says when.
package netwatch

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"xwarp/engine/host/netspace"
)

// Options name the objects to follow.
type Options struct {
	Name     string // of the objects, for errors and the log: "neighbours"
	Protocol int    // of netlink, such as unix.NETLINK_XFRM; default unix.NETLINK_ROUTE
	Groups   []int  // unix.RTNLGRP_NEIGH and the like
	// Change is called for each message with its type, such as unix.RTM_NEWNEIGH, and its body, which it must not keep.
	// Nil means that Relist is called instead.
	Change func(kind uint16, body []byte)
	// Relist reports whether all objects must be read again because of a message.
	Relist func(kind uint16, body []byte) bool
	Settle time.Duration // delay of List after Relist returned true, so that one call serves several messages
	// List reads all objects, on its own socket: once before Follow returns, after lost changes, and if Relist returned
	// true. Its results are newer than all changes before its call; changes during the call may be reported again after
	// it. Follow returns an error of the first call. After an error of a later call, the error is logged and the call
	// repeated.
	List   func() error
	Log    *slog.Logger // nil: no log
	Buffer int          // size of the socket buffer in bytes; default DefaultBuffer
}

// Counters are the counters of a Watch.
type Counters struct {
	Changes  uint64 // messages from the kernel
	Overruns uint64 // times that the kernel dropped changes because the buffer was full
	Lists    uint64 // times that everything was read, the first time included
	Failures uint64 // failed reads by List after Follow, failures of the socket, and failed attempts to reopen it
	Restarts uint64 // times that the socket was reopened
}

// Watch follows the objects until it is closed. Its methods may be called from any goroutine. Change, Relist and List
// are called by one goroutine at a time.
type Watch struct {
	opt  Options
	home netns.NsHandle
	done chan struct{}
	gone sync.WaitGroup
	buf  []byte

	stale  bool      // List must be called again
	listAt time.Time // earliest time of the next List
	pause  time.Duration
	logged time.Time // when an overrun was logged last

	mu     sync.Mutex
	sock   *os.File
	closed bool
	n      Counters
	stuck  *Stale // why and since when the objects cannot be read; nil: they can
}

// Follow starts to follow, in the network namespace of the calling thread.
func Follow(o Options) (*Watch, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Buffer == 0 {
		o.Buffer = DefaultBuffer
	}
	home, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("%s: network namespace of this thread: %w", o.Name, err)
	}
	w := &Watch{opt: o, home: home, done: make(chan struct{}), buf: make([]byte, maxMessage)}
	if w.sock, err = open(o.Protocol, o.Groups, o.Buffer); err == nil {
		if err = w.list(); err != nil {
			w.sock.Close()
		}
	}
	if err != nil {
		home.Close()
		return nil, fmt.Errorf("%s: %w", o.Name, err)
	}
	w.gone.Add(1)
	go w.watchLoop()
	return w, nil
}

// Close stops following. No call of Change, Relist or List begins after it returns.
func (w *Watch) Close() {
	w.mu.Lock()
	again := w.closed
	w.closed = true
	sock := w.sock
	w.mu.Unlock()
	if again {
		return
	}
	close(w.done)
	sock.Close()
	w.gone.Wait()
	w.home.Close()
}

// Stale is the error of a Watch that cannot read its objects, so that its state may be stale.
type Stale struct {
	Since time.Time
	Err   error
}

func (s *Stale) Error() string {
	return fmt.Sprintf("not followed since %s: %v", s.Since.Format(time.RFC3339), s.Err)
}

func (s *Stale) Unwrap() error { return s.Err }

// Health returns a *Stale while the objects cannot be read or followed, and nil otherwise.
func (w *Watch) Health() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stuck == nil {
		return nil
	}
	return &Stale{w.stuck.Since, w.stuck.Err}
}

// Name returns the name of the followed objects.
func (w *Watch) Name() string { return w.opt.Name }

// Counters returns the counters.
func (w *Watch) Counters() Counters {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

// count calls f, which changes the counters, with the lock held.
func (w *Watch) count(f func(n *Counters)) {
	w.mu.Lock()
	f(&w.n)
	w.mu.Unlock()
}

func (w *Watch) watchLoop() {
	defer w.gone.Done()
	for !w.over() {
		err := w.waitForMessage()
		switch {
		case err == nil:
		case w.over():
		case errors.Is(err, unix.ENOBUFS):
			w.overrun()
		case errors.Is(err, os.ErrDeadlineExceeded):
			w.relist()
		default:
			w.restart(err)
		}
	}
}

func (w *Watch) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

// waitForMessage waits for one datagram and processes it. If List must be called again, it waits until listAt at most.
func (w *Watch) waitForMessage() error {
	var until time.Time
	if w.stale {
		until = w.listAt
	}
	w.sock.SetReadDeadline(until)
	_, err := w.readMessage(true)
	return err
}

// readMessage reads and processes one datagram. With wait it waits for one; otherwise got is false if none is pending.
func (w *Watch) readMessage(wait bool) (got bool, err error) {
	raw, err := w.sock.SyscallConn()
	if err != nil {
		return false, err
	}
	var n int
	var from unix.Sockaddr
	var flags int
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		n, _, flags, from, failed = unix.Recvmsg(int(fd), w.buf, nil, unix.MSG_DONTWAIT)
		return !wait || failed != unix.EAGAIN && failed != unix.EINTR
	})
	switch {
	case err != nil:
		return false, err
	case failed == unix.EAGAIN || failed == unix.EINTR:
		return false, nil
	case failed != nil:
		return false, failed
	case flags&unix.MSG_TRUNC != 0:
		return true, unix.ENOBUFS // a truncated datagram has the same remedy: reread everything
	}
	// from the kernel, not from a program that sends to our port
	if a, ok := from.(*unix.SockaddrNetlink); ok && a.Pid == 0 {
		return true, w.parse(w.buf[:n])
	}
	return true, nil
}

func (w *Watch) parse(b []byte) error {
	list, err := syscall.ParseNetlinkMessage(b)
	if err != nil {
		return unix.ENOBUFS // unknown contents have the same remedy: reread everything
	}
	w.count(func(n *Counters) { n.Changes += uint64(len(list)) })
	for i := range list {
		switch h := &list[i].Header; {
		case h.Type < unix.NLMSG_MIN_TYPE:
		case w.opt.Change != nil:
			w.opt.Change(h.Type, list[i].Data)
		case w.opt.Relist(h.Type, list[i].Data) && !w.stale:
			w.stale, w.listAt = true, time.Now().Add(w.opt.Settle)
		}
	}
	return nil
}

// overrun handles the kernel's report that it dropped changes.
func (w *Watch) overrun() {
	w.count(func(n *Counters) { n.Overruns++ })
	if now := time.Now(); now.Sub(w.logged) > sayAgain {
		w.logged = now
		w.opt.Log.Warn("netlink messages lost: reading the kernel's state again", "what",
			w.opt.Name, "overruns", w.Counters().Overruns)
	}
	w.stale = true
}

// relist rereads everything. Pending messages are older and are read first.
func (w *Watch) relist() {
	w.sock.SetReadDeadline(time.Time{})
	for range maxDrain {
		if got, err := w.readMessage(false); err != nil && !errors.Is(err, unix.ENOBUFS) ||
			err == nil &&
				!got {
			break
		}
	}
	if err := w.list(); err != nil {
		w.pause = min(max(2*w.pause, firstPause), maxPause)
		w.listAt = time.Now().Add(w.pause)
		w.noteFailure(fmt.Errorf("%s: %w", w.opt.Name, err))
	}
}

func (w *Watch) list() error {
	if err := w.opt.List(); err != nil {
		return err
	}
	w.stale, w.pause, w.listAt = false, 0, time.Now().Add(listPause)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n.Lists++
	if w.stuck != nil {
		w.opt.Log.Info("the kernel's tables are read again: no longer using an old copy",
			"what", w.opt.Name)
	}
	w.stuck = nil
	return nil
}

// noteFailure records the error that keeps the Watch from being up to date.
func (w *Watch) noteFailure(err error) {
	w.mu.Lock()
	first := w.stuck == nil
	if first {
		w.stuck = &Stale{Since: time.Now()}
	}
	w.stuck.Err = err
	w.n.Failures++
	w.mu.Unlock()
	if first {
		w.opt.Log.Error("cannot read the kernel's tables: using the last copy, retrying",
			"what", w.opt.Name, "error", err)
	}
}

// restart tries to reopen the socket after err, until it succeeds or w is closed.
func (w *Watch) restart(err error) {
	w.sock.Close()
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		w.noteFailure(fmt.Errorf("%s: %w", w.opt.Name, err))
		select {
		case <-w.done:
			return
		case <-time.After(pause):
		}
		var f *os.File
		if f, err = w.reopen(); err != nil {
			continue
		}
		w.mu.Lock()
		w.n.Restarts++
		w.sock = f
		closed := w.closed
		w.mu.Unlock()
		if closed {
			f.Close()
		}
		w.stale, w.listAt = true, time.Now()
		return
	}
}

// reopen opens the socket in its original namespace.
func (w *Watch) reopen() (f *os.File, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err = netspace.Enter(w.home); err == nil {
			f, err = open(w.opt.Protocol, w.opt.Groups, w.opt.Buffer)
		}
	}()
	<-done
	return f, err
}

// Socket creates a socket for requests of a netlink protocol, in the network namespace of the calling thread.
func Socket(protocol int) (*nl.SocketHandle, error) {
	s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), protocol)
	if err != nil {
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	return &nl.SocketHandle{Socket: s}, nil
}

// open creates a socket subscribed to groups.
func open(protocol int, groups []int, buffer int) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		protocol)
	if err != nil {
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer) != nil { // needs CAP_NET_ADMIN
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, buffer)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	for _, g := range groups {
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g)
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("netlink socket: subscription: %w", err)
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}
