package verbs

import (
	"errors"
	"net"
	"syscall"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/tcp"
)

// Errors of the verbs. errors.Is matches the error that a verb returns with one of these and with its syscall.Errno;
// ErrDefect, ErrClosed and ErrListenerClosed have none.
var (
	ErrQueueFull = number(syscall.ENOMEM,
		"ENOMEM: work queue is full; poll completions or raise its depth")
	ErrNotReady  = number(syscall.ENOTCONN, "queue pair is not connected")
	ErrHasConn   = number(syscall.EISCONN, "queue pair already has or had a connection")
	ErrInvalid   = number(syscall.EINVAL, "EINVAL") // errors that wrap it say more
	ErrForeign   = number(syscall.EINVAL, "EINVAL: an object is missing, or of another device")
	ErrCQOverrun = number(syscall.EOVERFLOW,
		"IBV_EVENT_CQ_ERR: completion queue overrun; make it deeper or poll it sooner")
	ErrBusy      = ddp.ErrBusy // EBUSY
	ErrNotShared = number(syscall.EFAULT,
		"memory not allocated by Alloc of this device: the daemon cannot map it")
	ErrPeerDenied = number(syscall.EACCES,
		"policy denies connections with this peer")
	ErrRejected = number(syscall.ECONNREFUSED,
		"RDMA_CM_EVENT_REJECTED: the peer's consumer rejected the connection")
	ErrStartup = number(syscall.EPROTO,
		"RDMA_CM_EVENT_CONNECT_ERROR: MPA start-up failed")
	ErrTimeout = number(syscall.ETIMEDOUT,
		"RDMA_CM_EVENT_UNREACHABLE: MPA start-up timed out")
	ErrLapsed = number(syscall.ECONNABORTED,
		"the connection request lapsed: the peer closed or the start-up timed out")

	// ErrDefect is wrapped by errors caused by a bug in xwarp. The log has the stack.
	ErrDefect = errors.New("internal error, see the log")

	// ErrConnect is wrapped if the TCP connection failed. The error also wraps the cause, which has the syscall.Errno.
	ErrConnect = errors.New("RDMA_CM_EVENT_CONNECT_ERROR: no TCP connection")

	// ErrClosed and ErrListenerClosed match net.ErrClosed.
	ErrClosed         error = &sentinel{"closed", net.ErrClosed}
	ErrListenerClosed error = &sentinel{"listener is closed", net.ErrClosed}
)

// Rejection is ErrRejected with the private data of the peer's rejection.
type Rejection struct{ PrivateData []byte }

func (e *Rejection) Error() string { return ErrRejected.Error() }

// Unwrap returns ErrRejected.
func (e *Rejection) Unwrap() error { return ErrRejected }

// sentinel is an error that also matches another one.
type sentinel struct {
	text string
	also error
}

func number(n syscall.Errno, text string) error { return &sentinel{text, n} }

func (s *sentinel) Error() string { return s.text }

// Unwrap returns the other error.
func (s *sentinel) Unwrap() error { return s.also }

// Error is the error of a verb.
type Error struct {
	Call string // as in C: "ibv_reg_mr", "rdma_connect", …, with its object; may be empty
	Err  error
}

// ErrorText returns the text of an error, or "" for nil.
func ErrorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Wrap returns err as an Error of a call, or nil if err is nil.
func Wrap(call string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{call, err}
}

func (e *Error) Error() string {
	if e.Call == "" {
		return e.Err.Error()
	}
	return e.Call + ": " + e.Err.Error()
}

// Unwrap returns the wrapped error, and the syscall.Errno of errors whose packages have none.
func (e *Error) Unwrap() []error {
	all := []error{e.Err}
	for _, n := range numbers {
		if errors.Is(e.Err, n.err) {
			all = append(all, n.number)
		}
	}
	return all
}

// numbers are the syscall.Errno of errors of the protocol packages, which do not use package syscall.
var numbers = []struct {
	err    error
	number syscall.Errno
}{
	{ddp.ErrBusy, syscall.EBUSY}, {ddp.ErrLimit, syscall.ENOMEM}, {ddp.ErrAttr, syscall.EINVAL},
	{ddp.ErrNotValid, syscall.EINVAL}, {ddp.ErrForeign, syscall.EINVAL},
	{rdmap.ErrConfig, syscall.EINVAL},
	{tcp.CauseRefused, syscall.ECONNREFUSED}, {tcp.CauseReset, syscall.ECONNRESET},
	{tcp.CauseAborted, syscall.ECONNABORTED}, {tcp.CauseTimeout, syscall.ETIMEDOUT},
	{tcp.CauseKeepalive, syscall.ETIMEDOUT}, {tcp.CauseUnreachable, syscall.EHOSTUNREACH},
}
