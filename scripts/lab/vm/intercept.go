package vm

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// An Intercept is called with each frame between a machine and its network. Calls do not overlap. It may change the
// frame in place. The frame is dropped if it returns false.
type Intercept func(toMachine bool, frame []byte) bool

// wire carries frames between a machine's card and its tap through an Intercept.
type wire struct {
	tap, card *os.File
	mu        sync.Mutex // held during calls of f
	f         Intercept
}

// largestFrame is more than the largest frame of a tap without offloads, in bytes.
const largestFrame = 1 << 16

// newWire starts a wire between a tap and a card, and returns it with the file that the emulator uses as its card's
// back end. The caller closes that file. The wire has its own duplicate of the tap.
func newWire(tap *os.File, f Intercept) (w *wire, card *os.File, err error) {
	// The emulator's card sends and takes one frame for each datagram.
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socket pair for a card: %w", err)
	}
	unix.SetNonblock(int(tap.Fd()), true)
	unix.SetNonblock(fds[0], true)
	own, err := unix.FcntlInt(tap.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, fmt.Errorf("duplicate the tap: %w", err)
	}
	w = &wire{tap: os.NewFile(uintptr(own), tap.Name()), card: os.NewFile(uintptr(fds[0]), "card"),
		f: f}
	go w.carry(w.tap, w.card, true)
	go w.carry(w.card, w.tap, false)
	return w, os.NewFile(uintptr(fds[1]), "card of the emulator"), nil
}

// carry passes the frames of one direction until either file is closed.
func (w *wire) carry(from, to *os.File, toMachine bool) {
	for b := make([]byte, largestFrame); ; {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		w.mu.Lock()
		pass := w.f(toMachine, b[:n])
		w.mu.Unlock()
		if !pass {
			continue
		}
		// A link that is down refuses the frame. It is then lost, as without the wire.
		if _, err := to.Write(b[:n]); errors.Is(err, os.ErrClosed) {
			return
		}
	}
}

func (w *wire) close() error { return errors.Join(w.tap.Close(), w.card.Close()) }
