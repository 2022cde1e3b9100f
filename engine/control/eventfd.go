package control

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Signal is an eventfd. The other side has the same one and can make it block, so that waiting never trusts its flags.
type Signal struct {
	f  *os.File
	rc syscall.RawConn
}

// NewSignal makes an eventfd.
func NewSignal() (*Signal, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	return OpenSignal(fd)
}

// OpenSignal takes over an eventfd.
func OpenSignal(fd int) (*Signal, error) {
	unix.SetNonblock(fd, true)
	f := os.NewFile(uintptr(fd), "eventfd")
	rc, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Signal{f, rc}, nil
}

// Dup returns another descriptor of the eventfd, which is the caller's; -1 with an error.
func (s *Signal) Dup() (n int, err error) {
	e := s.rc.Control(func(fd uintptr) { n, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(e, err); err != nil {
		return -1, fmt.Errorf("eventfd: %w", err)
	}
	return n, nil
}

var one = func() (b [8]byte) { host.PutUint64(b[:], 1); return b }()

// Ring signals. It blocks only when the other side made the descriptor block and filled it.
func (s *Signal) Ring() {
	s.rc.Control(func(fd uintptr) { unix.Write(int(fd), one[:]) })
}

// Wait returns after the next signal, or with an error after Close.
func (s *Signal) Wait() error {
	return s.rc.Read(func(fd uintptr) bool { return !errors.Is(take(int(fd)), unix.EAGAIN) })
}

// Clear takes back signals that nobody waited for.
func (s *Signal) Clear() { s.rc.Control(func(fd uintptr) { take(int(fd)) }) }

// take reads the eventfd without blocking, whatever its flags say.
func take(fd int) error {
	var b [8]byte
	_, err := unix.Preadv2(fd, [][]byte{b[:]}, -1, unix.RWF_NOWAIT)
	return err
}

// Close ends Wait.
func (s *Signal) Close() error { return s.f.Close() }
