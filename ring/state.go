package ring

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// State is the condition of the transmit side after a Flush. Only StateGone and StateClosed are permanent: after any
// other state, a later Flush may succeed.
type State uint8

// States of a socket.
const (
	StateOK    State = iota // all queued frames were sent
	StateAgain              // EAGAIN: the device accepts no more now; frames wait in the ring; call Flush again later
	// EBUSY: the device dropped at least one frame; others may wait in the ring
	StateBusy
	StateNoBuffers // ENOBUFS: temporarily out of kernel memory; frames wait
	StateDown      // ENETDOWN: the link is down; frames wait
	StateGone      // ENXIO, ENODEV: the device or the queue is gone; a new socket is needed
	StateClosed    // the socket was closed
	StateError     // any other errno; Stats.LastErrno has it
)

var stateNames = [...]string{"ok", "again", "busy", "no-buffers", "down", "gone", "closed", "error"}

// String returns the name of s.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// stateOf returns the state for the errno of a transmit system call.
func stateOf(errno unix.Errno) State {
	switch errno {
	case 0:
		return StateOK
	case unix.EAGAIN, unix.EINTR:
		return StateAgain
	case unix.EBUSY:
		return StateBusy
	case unix.ENOBUFS, unix.ENOMEM:
		return StateNoBuffers
	case unix.ENETDOWN:
		return StateDown
	case unix.ENXIO, unix.ENODEV:
		return StateGone
	case unix.EBADF, unix.ENOTSOCK:
		return StateClosed
	}
	return StateError
}

// Ready says why Wait returned. No bits mean a timeout.
type Ready uint8

// Bits of Ready.
const (
	ReadyRx    Ready = 1 << iota // packets can be received
	ReadyExtra                   // the extra file descriptor is readable
	ReadyError                   // the socket or the extra descriptor has an error; Flush returns the socket's state
)
