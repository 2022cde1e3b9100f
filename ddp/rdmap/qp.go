// Package rdmap implements the Remote Direct Memory Access Protocol (RFC 5040) with its extensions (RFC 7306):
// messages, queue pairs, Terminate.
//
// A QP is between the verbs above and MPA below. It implements mpa.Source: it makes ULPDUs from work requests on
// demand, and makes them again for retransmission. It implements mpa.Sink: it places payload when it arrives, and
// delivers messages in stream order. It has no clock, lock, goroutine or I/O; all calls come from the one worker that
// owns it.
package rdmap

import (
	"errors"
	"math"

	"xwarp/ddp"
	"xwarp/mpa/ulpdu"
)

// Config describes a queue pair before it has a stream. Footprint returns its largest use of memory. Init allocates the
// queues; the tables of Reads, and the memory for inline data, are allocated when they are first used.
type Config struct {
	Table  *ddp.Table
	PD     *ddp.PD
	Stream ddp.StreamID // unique in the table, not 0

	SendDepth int // send work requests that may be outstanding, 1..MaxDepth
	RecvDepth int // receives that may be posted; with an SRQ, messages that may arrive before their turn
	MaxSGE    int // pieces per work request, 1..MaxSGE
	MaxInline int // bytes of inline data per work request, 0..MaxInline
	MaxIRD    int // largest IRD that Start may ask for
	MaxORD    int // largest ORD that Start may ask for

	SRQ       *SRQ      // shared receive queue of the same domain, or nil
	Completer Completer // receives the completions

	// CompareAndSwap makes atomics atomic with respect to other workers and the consumer (sync/atomic's
	// CompareAndSwapUint64). Nil is enough if only this worker executes them.
	CompareAndSwap func(addr *uint64, old, new uint64) bool

	// Refill is called if a message finds no receive in the queue pair's own queue, before that is an error: a consumer
	// in another thread may have posted some. It may call PostRecv. Nil means that there are none.
	Refill func()

	// Starved, when set, makes a Send in order that finds no receive wait for one, as InfiniBand's "receiver not ready"
	// does, instead of ending the stream. It is called each time that MPA offers the Send. The owner must make MPA
	// offer it again once receives are posted. Nil means that such a Send is an error (RFC 5041, 7.1).
	Starved func()

	// PeerAgrees is the private data of the peer's start-up frame with which it agrees to the messages of private.go.
	// Empty means that they are never used.
	PeerAgrees string
	// PeerWaits is called when the peer reports that the next message waits for a receive, and when it does not wait
	// any more. timer is the peer's RNRTimer. Nil is allowed.
	PeerWaits func(waits bool, timer uint8)
	// RNRTimer is IBV_QP_MIN_RNR_TIMER of this end, 0..31. The peer gets it with each Report of a message that waits.
	RNRTimer uint8

	// Reclaim is called before unfinished work is flushed. After it, memory that LendULPDU lent must not be read any
	// more, since it belongs to the consumer again. Nil means that nothing is lent.
	Reclaim func()
}

// RTRKind is a Ready To Receive message of RFC 6581. The values are those of startup.RTR with one bit set.
type RTRKind uint8

// The kinds.
const (
	RTRNone  RTRKind = 0
	RTRSend  RTRKind = 1 // zero-length Send
	RTRWrite RTRKind = 2 // zero-length RDMA Write
	RTRRead  RTRKind = 4 // zero-length RDMA Read Request
)

func (k RTRKind) valid() bool {
	return k == RTRNone || k == RTRSend || k == RTRWrite || k == RTRRead
}

// Params is the result of MPA's start-up.
type Params struct {
	Version ddp.Version // ddp.IETF, or ddp.RDMAC for version 0 on the wire
	// Wait keeps the queue pair silent until the first FPDU has arrived. MPA's responder sets it.
	Wait bool
	// SendRTR is the message to send before anything else. RFC 6581's initiator sets it.
	SendRTR RTRKind
	// ExpectRTR is the message that arrives before anything else. RFC 6581's responder sets it. A Send then does not
	// use the receive queue; the others are handled like any message.
	ExpectRTR RTRKind
	IRD, ORD  int  // most Reads and atomics outstanding, inbound and outbound
	Private   bool // both ends agreed to the messages of private.go
}

// Errors of configuration and posting.
var (
	ErrConfig = errors.New("rdmap: bad configuration; see Config and limits.go for the ranges")
	ErrState  = errors.New("rdmap: queue pair is not in a state for this; sends need RTR or " +
		"RTS, receives anything but ERROR and TERMINATE")
	ErrFull = errors.New("rdmap: work queue is full; poll completions or raise its depth")
	ErrSGE  = errors.New("rdmap: too many pieces for this operation; atomics take one, others " +
		"Config.MaxSGE")
	ErrInline = errors.New("rdmap: inline data is longer than Config.MaxInline or comes " +
		"together with an SGL")
	ErrTooLong = errors.New("rdmap: message is longer than 2^32-1 bytes")
	ErrOp      = errors.New("rdmap: operation is unknown or needs RFC 7306, which version 0 " +
		"lacks")
	ErrNoORD = errors.New("rdmap: ORD is 0, so neither Reads nor atomics can be sent; " +
		"negotiate a larger ORD")
	ErrSRQ       = errors.New("rdmap: receives go to the shared receive queue of this queue pair")
	ErrAtomicLen = errors.New("rdmap: an atomic needs one piece of exactly 8 bytes for its result")
)

// Counters counts events of a queue pair since Init.
type Counters struct {
	SegmentsOut, SegmentsIn        uint64 // frozen; delivered
	PayloadOut, PayloadIn          uint64 // bytes frozen and placed, of Sends, Writes and Read Responses
	PlacedAhead                    uint64 // segments placed out of order
	MessagesOut                    uint64 // messages of the send queue frozen whole
	SendsIn, ReadsIn, AtomicsIn    uint64 // messages delivered
	ResponsesOut                   uint64 // Read and Atomic Responses frozen whole
	TerminatesOut, TerminatesIn    uint64
	Flushed                        uint64
	ReceiverNotReady               uint64 // messages of the peer that found no receive, and waited for one
	PeerNotReady                   uint64 // messages that wait for a receive of the peer, by its Reports
	ReportsOut, ReportsIn          uint64
	DroppedAfterError, ReadsZeroed uint64 // segments before Start or after an error; of revoked memory, sent as zeros
}

// QP is a queue pair: one RDMAP stream. It implements mpa.Source and mpa.Sink. The zero value
// is not usable before Init; a QP must not be copied after it.
type QP struct {
	cfg       Config
	params    Params
	state     State
	actions   Action
	err       *ulpdu.Error
	memoryErr *ulpdu.Error // the error for registered memory that could not be accessed

	sq   sendQueue
	out  outboundReads
	in   inboundRequests
	rq   recvQueue
	msg  inboundMessage
	term terminator
	progress

	lookup ddp.LookupCache // of the last segment of an RDMA Write

	rtrToSend       RTRKind     // RTRNone once it is sent
	responseWasLast bool        // the last message was a response, so the send queue is next
	sending         messageKind // message of which NextULPDU has frozen a part
	sawFPDU         bool
	chained         Status     // of the last work request, if it was Chained and failed; else Success
	completing      bool       // completeFinished or flush is on the stack: no local work request is executed
	localsAllowed   int        // local work requests that may be executed before the next call of ExecuteLocals
	mayHaveWindows  bool       // a WRBindMW was executed
	waitsNoMore     bool       // a message has waited for a receive for too long
	denied          ddp.Access // rights that the peer does not have on this stream
	reqID           uint32

	// sendCQE and recvCQE are the completions passed to Completer, so that none is allocated. A receive's Complete may
	// post a local invalidation, which completes inside the call: therefore two.
	sendCQE, recvCQE Completion

	Counters Counters
}

// messageKind is the kind of message that NextULPDU has frozen in part.
type messageKind uint8

const (
	noMessage messageKind = iota
	sendMessage
	responseMessage
)

// Check reports whether Init would accept c. It can be called from any goroutine. It fails with ErrConfig.
func (c *Config) Check() error {
	bad := c.Table == nil || c.PD == nil || c.Stream == 0 || c.Completer == nil ||
		c.SendDepth < 1 || c.SendDepth > MaxDepth || c.RecvDepth < 1 || c.RecvDepth > MaxDepth ||
		c.MaxSGE < 1 || c.MaxSGE > MaxSGE || c.MaxInline < 0 || c.MaxInline > MaxInline ||
		c.MaxIRD < 0 || c.MaxIRD > MaxIRD || c.MaxORD < 0 || c.MaxORD > MaxORD ||
		(c.SRQ != nil && c.SRQ.cfg.PD != c.PD)
	if bad {
		return ErrConfig
	}
	return nil
}

// Init prepares q for Start. It fails with ErrConfig.
func (q *QP) Init(cfg Config) error {
	if err := cfg.Check(); err != nil {
		return err
	}
	*q = QP{cfg: cfg, localsAllowed: math.MaxInt}
	q.sq.init(cfg.SendDepth, cfg.MaxSGE, cfg.MaxInline)
	q.out.init(max(cfg.MaxORD, 1))
	q.in.init(cfg.MaxIRD)
	q.rq.init(&cfg)
	cfg.PD.Attach()
	if cfg.SRQ != nil {
		cfg.SRQ.users++
	}
	return nil
}

// Start begins full operation: it moves q from Idle to RTS, or to RTR if Params.Wait is set. It fails with ErrState or
// ErrConfig.
func (q *QP) Start(p Params) error {
	if q.state != Idle {
		return ErrState
	}
	maxIRD := q.cfg.MaxIRD
	if p.ExpectRTR == RTRRead {
		maxIRD = max(maxIRD, 1) // for the RTR message (RFC 6581, 9.1)
	}
	if p.Version > ddp.IETF || p.IRD < 0 || p.IRD > maxIRD || p.ORD < 0 ||
		p.ORD > q.cfg.MaxORD || !p.SendRTR.valid() || !p.ExpectRTR.valid() ||
		p.Private && p.Version != ddp.IETF {
		return ErrConfig
	}
	q.params, q.rtrToSend = p, p.SendRTR
	q.sq.sendMSN, q.sq.readMSN = 1, 1
	q.msg.rtrSend = p.ExpectRTR == RTRSend
	q.rq.next = 1
	if q.msg.rtrSend {
		q.rq.next = 2 // message 1 is the RTR's
	}
	if p.Wait {
		q.handle(EvStartWaiting)
	} else {
		q.handle(EvStart)
	}
	return nil
}

// AgreesTo reports whether the peer's private data agrees to the messages of private.go, as Config.PeerAgrees says.
func (q *QP) AgreesTo(private []byte) bool {
	return q.cfg.PeerAgrees != "" && string(private) == q.cfg.PeerAgrees
}

// Destroy ends the use of q. It flushes posted work, and releases its regions and its domain.
func (q *QP) Destroy() {
	if q.cfg.PD == nil {
		return
	}
	q.handle(EvAbort)
	q.unbind()
	q.cfg.PD.Detach()
	if q.cfg.SRQ != nil {
		q.cfg.SRQ.users--
	}
	q.cfg.PD = nil
}

// Deny removes rights from those that regions give the peer. Rights that it does not name are restored.
func (q *QP) Deny(rights ddp.Access) {
	q.denied, q.lookup = rights, ddp.LookupCache{}
}

// findRemote is Table.Find for an access by the peer.
func (q *QP) findRemote(s ddp.STag, to ddp.TO, n int, need ddp.Access) (*ddp.MR, []byte,
	ddp.Fault) {
	if need&q.denied != 0 {
		return nil, nil, ddp.FaultAccess
	}
	return q.cfg.Table.Find(q.cfg.PD, q.cfg.Stream, s, to, n, need)
}

// State returns the state.
func (q *QP) State() State { return q.state }

// Err returns the error that ended the stream, found here or reported by the peer, or nil.
func (q *QP) Err() *ulpdu.Error { return q.err }

// PeerTerminate returns the Terminate that the peer sent and whether there is one.
func (q *QP) PeerTerminate() (Terminate, bool) { return q.term.peer, q.term.gotPeer }

// OwnTerminate returns the Terminate that q made and whether there is one.
func (q *QP) OwnTerminate() (Terminate, bool) { return q.term.own, q.term.made }

// Outstanding returns how many completions the send and the receive queue can still make, at most SendDepth and
// RecvDepth. A completion queue with room for both never overflows. Receives of an SRQ count once they are assigned to
// a message.
func (q *QP) Outstanding() (send, recv int) { return q.sq.len(), q.rq.len() }

// ReadsInFlight returns the outstanding Reads and atomics, outbound and inbound.
func (q *QP) ReadsInFlight() (out, in int) { return q.out.len(), q.in.waiting() }

// Busy reports whether a graceful close would cut off work: unfinished send work requests, an unanswered request of the
// peer, or a message that arrived in part.
func (q *QP) Busy() bool {
	return q.sq.len() > 0 || q.out.len() > 0 || q.in.waiting() > 0 || q.msg.open ||
		q.rtrToSend != RTRNone
}

// Actions returns the actions that the state machine has asked of the connection's owner since the last call.
func (q *QP) Actions() Action {
	a := q.actions & actOwner
	q.actions = 0
	return a
}

// Close closes gracefully. With work under way it aborts (see Busy).
func (q *QP) Close() {
	if q.Busy() {
		q.handle(EvCloseBusy)
	} else {
		q.handle(EvCloseIdle)
	}
}

// PeerClosed reports the peer's FIN at its place in the stream, after the acknowledgements and deliveries of the same
// segment. cut is the error of a FIN inside an FPDU, nil for one at the end of an FPDU. This side can still send, so
// that a Terminate reports cut to the peer.
func (q *QP) PeerClosed(cut *ulpdu.Error) {
	running := q.state == RTR || q.state == RTS || q.state == Closing
	switch {
	case cut != nil && running:
		q.sq.markOldest(FatalErr)
		q.terminate(cut)
	case cut == nil && !q.Busy():
		q.handle(EvFINClean)
	default:
		if running {
			q.setErr((causeMPA | ulpdu.CodeClosed).Errorf("FIN with work under way"))
			q.sq.markOldest(FatalErr)
		}
		q.handle(EvFINDirty)
	}
}

// Closed reports that TCP is closed in both directions. If the close timer expires first, call Lost.
func (q *QP) Closed() { q.handle(EvClosed) }

// Lost reports that the connection was reset or abandoned, or that the close timer expired.
func (q *QP) Lost() {
	if q.state != Terminated && q.state != Errored {
		q.setErr((causeMPA | ulpdu.CodeClosed).Errorf("TCP connection reset or timed out"))
		q.sq.markOldest(FatalErr)
	}
	q.handle(EvLost)
}

// Abort moves the queue pair to ERROR and flushes it.
func (q *QP) Abort() { q.handle(EvAbort) }

// Fail ends the stream with an error that Place or Deliver returned, or with MPA's own. A Terminate reports it to the
// peer if it still can be sent; call Actions afterwards. For MPA's CodeClosed it calls Lost, since the peer cannot be
// reached. Fail(nil) does nothing.
func (q *QP) Fail(e *ulpdu.Error) {
	if e == nil {
		return
	}
	if e.Layer == ulpdu.MPA && e.Code == ulpdu.CodeClosed {
		q.Lost()
		return
	}
	q.terminate(e)
}

// terminate ends the stream with e, and with a Terminate when one may be sent.
func (q *QP) terminate(e *ulpdu.Error) {
	if q.state == RTR && !q.sawFPDU {
		// Nothing may be sent before the first valid FPDU (RFC 5044, 7.1.2).
		q.setErr(e)
		q.handle(EvAbort)
		return
	}
	if q.state == RTR || q.state == RTS {
		q.term.makeOwn(e)
		q.progress.due = q.params.Private
	}
	q.setErr(e)
	q.handle(EvLocalError)
}

// setErr records e if it is the first error.
func (q *QP) setErr(e *ulpdu.Error) {
	if q.err == nil {
		q.err = e
	}
}

// handle applies an event to the state table. An event that the table does not have changes nothing.
func (q *QP) handle(e Event) {
	t := table[q.state][e]
	if !t.ok {
		return
	}
	q.state = t.next
	q.actions |= t.act & actOwner
	if t.act&actTerminate != 0 {
		q.term.toSend = true
	}
	if t.act&actFlush != 0 {
		q.flush()
	}
	if t.act&actReleaseKept != 0 {
		q.releaseKept()
	}
}
