package verbs

import (
	"context"
	"fmt"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
)

// Types of the data path.
type (
	STag    = ddp.STag      // identifies a region or a memory window
	TO      = ddp.TO        // tagged offset in a region or a memory window
	Access  = ddp.Access    // rights of a region
	SendWR  = rdmap.SendWR  // send work request
	RecvWR  = rdmap.RecvWR  // receive work request
	SGE     = rdmap.SGE     // scatter/gather element
	WROp    = rdmap.WROp    // operation of a work request
	WRFlags = rdmap.WRFlags // flags of a send work request
	Status  = rdmap.Status  // result of a work request (IBV_WC)
	WCFlags = rdmap.CompletionFlags
)

// RemoteRights are all rights that a peer can have.
const RemoteRights = RemoteRead | RemoteWrite | RemoteAtomic

// Access rights of a region. A region without any right can only be the source of Sends and Writes of this host.
const (
	LocalWrite   = ddp.LocalWrite // local receives, Reads and atomics may write to it
	RemoteRead   = ddp.RemoteRead
	RemoteWrite  = ddp.RemoteWrite
	RemoteAtomic = ddp.RemoteAtomic
	BindMW       = ddp.BindMW // memory windows may be bound to it
)

// Operations of work requests.
const (
	WRSend      = rdmap.WRSend
	WRSendSE    = rdmap.WRSendSE // with solicited event
	WRSendInv   = rdmap.WRSendInv
	WRSendSEInv = rdmap.WRSendSEInv
	WRWrite     = rdmap.WRWrite
	WRRead      = rdmap.WRRead
	WRImm       = rdmap.WRImm // immediate data (RFC 7306)
	WRImmSE     = rdmap.WRImmSE
	WRFetchAdd  = rdmap.WRFetchAdd // atomics (RFC 7306)
	WRCmpSwap   = rdmap.WRCmpSwap
	WRLocalInv  = rdmap.WRLocalInv
	WRBindMW    = rdmap.WRBindMW // binds a memory window
	WRRecv      = rdmap.WRRecv   // only in completions
)

// Flags of send work requests.
const (
	Signaled = rdmap.Signaled // generate a completion; failures always do
	Fence    = rdmap.Fence    // start after all earlier Reads and atomics are complete
	// ZeroBased makes offsets in a window bound by WRBindMW start at 0, instead of using those of the region.
	ZeroBased = rdmap.ZeroBased
	Marked    = rdmap.Marked // a bit for the consumer, returned as WasMarked; also for receives
)

// Statuses of completions, named after IBV_WC.
const (
	Success      = rdmap.Success
	LocLenErr    = rdmap.LocLenErr    // the message does not fit its receive, or is too long to send
	LocQPOpErr   = rdmap.LocQPOpErr   // work request not possible in this state
	LocProtErr   = rdmap.LocProtErr   // local memory missing, too short, or without the right
	WRFlushErr   = rdmap.WRFlushErr   // the queue pair failed or closed first
	RemInvReqErr = rdmap.RemInvReqErr // the peer rejected the message; of a receive: the message was invalid
	RemAccessErr = rdmap.RemAccessErr // the peer denied access to its memory
	RemOpErr     = rdmap.RemOpErr     // the peer could not perform the operation
	BadRespErr   = rdmap.BadRespErr   // response without a matching request
	FatalErr     = rdmap.FatalErr     // the connection was lost
	MWBindErr    = rdmap.MWBindErr    // memory to bind missing, too short, or without the right
)

// Flags of receive completions.
const (
	Solicited      = rdmap.Solicited      // the sender asked for an event
	WithImm        = rdmap.WithImm        // Imm is valid; if immediate data came alone, the buffer is untouched
	WithInvalidate = rdmap.WithInvalidate // Invalidated is valid
	WasMarked      = rdmap.WasMarked      // the work request had Marked
)

// ImmLen is the length of immediate data in bytes.
const ImmLen = rdmap.ImmLen

// Completion reports the end of one work request. A Write completes when its memory may be reused: on AF_XDP when the
// peer's TCP has acknowledged it, on kernel sockets when the kernel has taken it. Only a later Read or Send proves
// that it was placed.
type Completion struct {
	rdmap.Completion
	QP QP // of the work request
}

// Err returns nil for Success, else a *StatusError.
func (c *Completion) Err() error {
	if c.Status == Success {
		return nil
	}
	e := &StatusError{Op: c.Op, Status: c.Status}
	if c.QP != nil {
		e.Cause = c.QP.Err()
	}
	return e
}

// StatusError is the error of a failed completion.
type StatusError struct {
	Op     WROp
	Status Status
	Cause  error // why the connection ended; nil if not known yet
}

func (e *StatusError) Error() string {
	if e.Cause == nil {
		return fmt.Sprintf("%v completed with %v", e.Op, e.Status)
	}
	return fmt.Sprintf("%v completed with %v: %v", e.Op, e.Status, e.Cause)
}

// Unwrap returns the cause.
func (e *StatusError) Unwrap() error { return e.Cause }

// WaitOne waits for the next completion of cq. It returns the error of waiting, or the completion with its error.
func WaitOne(ctx context.Context, cq CQ) (Completion, error) {
	var c [1]Completion
	if _, err := cq.Wait(ctx, c[:]); err != nil {
		return c[0], err
	}
	return c[0], c[0].Err()
}
