package control

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// DoorbellEvent is the eventfd of a doorbell: programs write it, the daemon waits. Both sides share the file, and a
// program can change its flags and fill it, so the daemon trusts no flag and never writes.
type DoorbellEvent struct {
	f      *os.File
	rc     syscall.RawConn
	roused atomic.Bool // Rouse was called, and Wait has not returned because of it
	timed  bool        // the file has a deadline; used by the waiting goroutine
}

// NewDoorbellEvent creates an eventfd.
func NewDoorbellEvent() (*DoorbellEvent, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	return OpenDoorbellEvent(fd)
}

// OpenDoorbellEvent takes ownership of an eventfd.
func OpenDoorbellEvent(fd int) (*DoorbellEvent, error) {
	unix.SetNonblock(fd, true)
	f := os.NewFile(uintptr(fd), "eventfd")
	rc, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &DoorbellEvent{f: f, rc: rc}, nil
}

// Dup returns another descriptor of the eventfd, which the caller owns, or -1 and an error.
func (s *DoorbellEvent) Dup() (n int, err error) {
	e := s.rc.Control(func(fd uintptr) { n, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(e, err); err != nil {
		return -1, fmt.Errorf("eventfd: %w", err)
	}
	return n, nil
}

var one = func() (b [8]byte) { host.PutUint64(b[:], 1); return b }()

// Ring signals. It is for programs: it blocks if the program itself has filled the eventfd and made it blocking.
func (s *DoorbellEvent) Ring() {
	s.rc.Control(func(fd uintptr) { unix.Write(int(fd), one[:]) })
}

// Wait returns after the next signal, after Rouse, after limit (0: no limit), or with an error after Close. rung
// reports whether it returned because of a signal. Only one goroutine may wait.
func (s *DoorbellEvent) Wait(limit time.Duration) (rung bool, err error) {
	if limit > 0 || s.timed {
		var at time.Time
		if limit > 0 {
			at = time.Now().Add(limit)
		}
		s.f.SetReadDeadline(at)
		s.timed = limit > 0
	}
	if s.roused.Swap(false) {
		return false, nil
	}
	err = s.rc.Read(func(fd uintptr) bool { return !errors.Is(take(int(fd)), unix.EAGAIN) })
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.timed = true
		s.roused.Store(false)
		return false, nil
	}
	return err == nil, err
}

// Rouse ends Wait, or the next Wait, without a signal. It does not block.
func (s *DoorbellEvent) Rouse() {
	s.roused.Store(true)
	s.f.SetReadDeadline(time.Unix(1, 0))
}

// take reads the eventfd without blocking, whatever its flags.
func take(fd int) error {
	var b [8]byte
	_, err := unix.Preadv2(fd, [][]byte{b[:]}, -1, unix.RWF_NOWAIT)
	return err
}

// Close closes the eventfd. A running Wait returns an error.
func (s *DoorbellEvent) Close() error { return s.f.Close() }
