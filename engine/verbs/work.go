package verbs

import (
	"context"
	"fmt"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
)

// Types that cross the data path as they are.
type (
	STag    = ddp.STag      // names a region
	TO      = ddp.TO        // tagged offset: an address in a region
	Access  = ddp.Access    // rights of a region
	SendWR  = rdmap.SendWR  // send work request
	RecvWR  = rdmap.RecvWR  // receive work request
	SGE     = rdmap.SGE     // piece of registered memory
	WROp    = rdmap.WROp    // what a work request does
	WRFlags = rdmap.WRFlags // how a send work request is treated
	Status  = rdmap.Status  // result of a work request (IBV_WC)
	WCFlags = rdmap.CompletionFlags
)

// RemoteRights are all that a peer can have.
const RemoteRights = RemoteRead | RemoteWrite | RemoteAtomic

// Rights of a region. Without any, it is a source of Sends and Writes only.
const (
	LocalWrite   = ddp.LocalWrite // receives, Reads and atomics of our own may write to it
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
	Signaled = rdmap.Signaled // complete it visibly; failures always are
	Fence    = rdmap.Fence    // begin only after all earlier Reads and atomics are complete
	// ZeroBased has offsets in a window that WRBindMW binds count from 0; else they are those of the region.
	ZeroBased = rdmap.ZeroBased
	Marked    = rdmap.Marked // a bit of the consumer's own: WasMarked in the completion; of receives too
)

// Statuses of completions, named after IBV_WC.
const (
	Success      = rdmap.Success
	LocLenErr    = rdmap.LocLenErr    // message and buffer differ in length
	LocQPOpErr   = rdmap.LocQPOpErr   // a work request that the queue pair cannot do now
	LocProtErr   = rdmap.LocProtErr   // local memory is not there, too short, or lacks the right
	WRFlushErr   = rdmap.WRFlushErr   // the queue pair failed or closed before it was done
	RemInvReqErr = rdmap.RemInvReqErr // the peer refused the message as such
	RemAccessErr = rdmap.RemAccessErr // the peer refused access to its memory
	RemOpErr     = rdmap.RemOpErr     // the peer could not carry the operation out
	BadRespErr   = rdmap.BadRespErr   // a response that no request of ours explains
	FatalErr     = rdmap.FatalErr     // the stream is lost
	MWBindErr    = rdmap.MWBindErr    // what a window was to be bound to is not there, too short, or lacks the right
)

// Flags of receive completions: which fields count.
const (
	Solicited      = rdmap.Solicited      // the sender asked for an event
	WithImm        = rdmap.WithImm        // Imm is valid; the buffer is untouched
	WithInvalidate = rdmap.WithInvalidate // Invalidated is valid
	WasMarked      = rdmap.WasMarked      // the work request had Marked
)

// ImmLen is bytes of immediate data.
const ImmLen = rdmap.ImmLen

// Completion is the end of one work request. A Write is complete when its memory is ours again: on AF_XDP the peer's
// TCP has acknowledged it, on the kernel's sockets the kernel has it. A Read or a Send behind it proves that it was
// placed.
type Completion struct {
	ID          uint64 // of the work request
	QP          QP
	Op          WROp // WRRecv for a receive
	Status      Status
	Flags       WCFlags
	ByteLen     uint32 // bytes received, read, written or sent; 0 unless Status is Success
	Imm         [ImmLen]byte
	Invalidated STag // when Flags has WithInvalidate
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

// StatusError is a completion that is none of success.
type StatusError struct {
	Op     WROp
	Status Status
	Cause  error // what ended the connection, as far as that is known already; may be nil
}

func (e *StatusError) Error() string {
	if e.Cause == nil {
		return fmt.Sprintf("%v completed with %v", e.Op, e.Status)
	}
	return fmt.Sprintf("%v completed with %v: %v", e.Op, e.Status, e.Cause)
}

// Unwrap returns the cause.
func (e *StatusError) Unwrap() error { return e.Cause }

// WaitOne waits for the next completion of cq. Its error is that of waiting, or of the completion, which is returned
// with it.
func WaitOne(ctx context.Context, cq CQ) (Completion, error) {
	var c [1]Completion
	if _, err := cq.Wait(ctx, c[:]); err != nil {
		return c[0], err
	}
	return c[0], c[0].Err()
}
