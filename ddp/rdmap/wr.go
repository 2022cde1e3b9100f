package rdmap

import (
	"fmt"

	"xwarp/ddp"
)

// WROp is the operation of a send work request.
type WROp uint8

// The work requests of the send queue.
const (
	WRSend WROp = iota
	WRSendSE
	WRSendInv
	WRSendSEInv
	WRWrite
	WRRead
	WRImm
	WRImmSE
	WRFetchAdd
	WRCmpSwap
	WRLocalInv
	WRBindMW
	WRSendImm // the first four bytes of Imm; needs Params.Private
	WRSendImmSE
	wrOps
	WRRecv WROp = 0xFF // only in completions
)

func (o WROp) String() string {
	names := [...]string{"send", "send-se", "send-inv", "send-se-inv", "write", "read", "imm",
		"imm-se", "fetch-add", "cmp-swap", "local-inv", "bind-mw", "send-imm", "send-imm-se"}
	if o == WRRecv {
		return "recv"
	}
	if int(o) < len(names) {
		return names[o]
	}
	return fmt.Sprintf("work request %d", uint8(o))
}

// hasPayload reports whether the work request sends bytes of its SGL or inline bytes.
func (o WROp) hasPayload() bool { return o <= WRWrite || o == WRSendImm || o == WRSendImmSE }

func (o WROp) wantsResponse() bool { return o == WRRead || o == WRFetchAdd || o == WRCmpSwap }

// SGE is a piece of registered memory of the queue pair's domain.
type SGE struct {
	STag ddp.STag
	TO   ddp.TO
	Len  uint32
}

// WRFlags modifies a send work request.
type WRFlags uint8

// The flags.
const (
	Signaled  WRFlags = 1 << iota // make a completion on success; failures always make one
	Fence                         // begin after all earlier Reads and atomics are complete
	ZeroBased                     // BindMW: offsets in the window count from 0
	Marked                        // has no effect; it is returned with the completion, in CompletionFlags
	Chained                       // completes with the next work request, which gets its status if it fails
)

// SendWR is a send work request. PostSend copies what it needs. SGL and Inline may be reused at once, the memory that
// the SGL names after the completion.
type SendWR struct {
	ID     uint64
	Op     WROp
	Flags  WRFlags
	Access ddp.Access // BindMW: rights of the peer on the window

	// SGL has at most Config.MaxSGE pieces: the payload of Send and Write, the sink of Read, or the sink of an atomic,
	// which is one piece of 8 bytes, written in the host's byte order. A sink needs the LocalWrite right. A Read of
	// several pieces is a Read Request for each, in order, which all count against the ORD.
	SGL []SGE
	// Inline is the payload of Send and Write instead of SGL, at most Config.MaxInline
	// bytes, copied by PostSend.
	Inline []byte

	// RemoteSTag and RemoteTO are the sink of Write, the source of Read, or the target of an atomic. For BindMW they
	// are the STag of the window from then on, which is its own with any last byte, and the start of the window in the
	// region.
	RemoteSTag ddp.STag
	RemoteTO   ddp.TO
	Invalidate ddp.STag // of SendInv, SendSEInv (the peer's) and LocalInv (ours)
	Region     ddp.STag // BindMW: the region to bind the window to

	Imm [ImmLen]byte // Imm, ImmSE; the first four bytes: SendImm, SendImmSE

	Data        uint64 // atomics: value to add or swap in; BindMW: bytes of the window, 0 unbinds it
	Mask        uint64 // FetchAdd: top bit of each field, 0 for one field; CmpSwap: bits to swap
	Compare     uint64
	CompareMask uint64
}

// RecvWR is a receive work request: the destination of one Send's payload.
type RecvWR struct {
	ID    uint64
	SGL   []SGE   // at most Config.MaxSGE pieces; a byte that a message writes needs the LocalWrite right
	Flags WRFlags // Marked or nothing
}

// Status is the result of a work request, named after the verbs' codes.
type Status uint8

// The statuses.
const (
	Success        Status = iota
	LocLenErr             // a message does not fit its receive, or is longer than MaxMessage
	LocQPOpErr            // work request that this queue pair cannot do now
	LocProtErr            // local memory is not registered, too short, or lacks the right
	WRFlushErr            // queue pair failed or closed before it was done
	RemInvReqErr          // the peer refused the message
	RemAccessErr          // the peer refused access to its memory
	RemOpErr              // the peer could not execute the operation
	BadRespErr            // a response that matches no request of this side
	FatalErr              // the stream is lost
	MWBindErr             // the memory for a window is not registered, too short, or lacks the right
	RetryExcErr           // the peer did not answer within the retries of the queue pair; not used in this package
	RNRRetryExcErr        // the peer posted no receive within the retries; not used in this package
	statuses
)

func (s Status) String() string {
	names := [statuses]string{"SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_PROT_ERR",
		"WR_FLUSH_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR", "BAD_RESP_ERR",
		"FATAL_ERR", "MW_BIND_ERR", "RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR"}
	if s < statuses {
		return names[s]
	}
	return fmt.Sprintf("status %d", uint8(s))
}

// CompletionFlags describes a completion, and says which fields of a receive's are valid.
type CompletionFlags uint8

// The flags.
const (
	Solicited       CompletionFlags = 1 << iota // the sender asked for an event
	WithImm                                     // Imm is valid; without OfSend the buffer is untouched
	WithInvalidate                              // Invalidated is valid
	FromSharedQueue                             // the receive came from an SRQ
	WasMarked                                   // the work request had Marked
	OfSend                                      // with WithImm: Imm came with a Send, which is in the buffer
)

// Completion is the result of one work request. After it the queue pair does not write to the request's memory. After a
// flush it may still read it for retransmissions.
type Completion struct {
	ID          uint64 // of the work request
	Op          WROp   // WRRecv for a receive
	Status      Status
	Flags       CompletionFlags
	ByteLen     uint32 // bytes received, read, written or sent; 0 unless Status is Success
	Imm         [ImmLen]byte
	Invalidated ddp.STag // when Flags has WithInvalidate
}

// Mark returns WasMarked if f has Marked, otherwise 0.
func (f WRFlags) Mark() CompletionFlags {
	return CompletionFlags(f/Marked&1) * WasMarked
}

// Completer receives completions. c is valid during the call. Complete must not call the queue pair, except PostSend,
// PostRecv, Fail and Abort.
type Completer interface{ Complete(c *Completion) }
