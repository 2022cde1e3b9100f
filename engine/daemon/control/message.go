package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"xwarp/ddp"
	"xwarp/engine/verbs"
	"xwarp/mpa/startup"
)

// Op is the operation of a request.
type Op string

// The operations.
const (
	OpHello         Op = "hello"
	OpAllocPD       Op = "alloc_pd"
	OpFreePD        Op = "free_pd"
	OpRegMR         Op = "reg_mr"
	OpDeregMR       Op = "dereg_mr"
	OpAllocMW       Op = "alloc_mw"
	OpDeallocMW     Op = "dealloc_mw"
	OpCreateCQ      Op = "create_cq"
	OpResizeCQ      Op = "resize_cq"
	OpDestroyCQ     Op = "destroy_cq"
	OpCreateSRQ     Op = "create_srq"
	OpModifySRQ     Op = "modify_srq"
	OpQuerySRQ      Op = "query_srq"
	OpDestroySRQ    Op = "destroy_srq"
	OpCreateQP      Op = "create_qp"
	OpModifyQP      Op = "modify_qp"
	OpSetState      Op = "set_state"
	OpQueryGIDs     Op = "query_gids"
	OpDestroyQP     Op = "destroy_qp"
	OpResolve       Op = "resolve"
	OpConnect       Op = "connect"
	OpDisconnect    Op = "disconnect"
	OpQueryQP       Op = "query_qp"
	OpListen        Op = "listen"
	OpCloseListener Op = "close_listener"
	OpGetRequest    Op = "get_request"
	OpAccept        Op = "accept"
	OpReject        Op = "reject"
	OpCancel        Op = "cancel"
	OpState         Op = "state"
	OpEvents        Op = "events"
	OpNetlink       Op = "netlink"
	OpFlush         Op = "flush"
	OpCapture       Op = "capture"
	OpEndCapture    Op = "end_capture"
	OpConfirm       Op = "confirm"
	OpReload        Op = "reload"
)

// Handle identifies an object of one session, such as a queue pair, a memory region, a listener or a connection
// request. A session never reuses a handle.
type Handle uint32

// Request is the body of a request. The client chooses ID, which the reply returns. It must differ from those of all
// unanswered requests.
type Request struct {
	ID   uint64          `json:"id"`
	Op   Op              `json:"op"`
	Args json.RawMessage `json:"args,omitempty"`
}

// Reply is the body of a reply. At most one of Result and Error is set: neither, if a request without a result
// succeeded.
type Reply struct {
	ID     uint64          `json:"id"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *Error          `json:"error,omitempty"`
}

// Event is the body of an event.
type Event struct {
	Event string `json:"event"`
	QP    Handle `json:"qp,omitempty"`
	SRQ   Handle `json:"srq,omitempty"`
	CQ    Handle `json:"cq,omitempty"`
	Error *Error `json:"error,omitempty"` // why a queue pair ended; nil after a graceful close
	// Cause is the kind of protocol error that either side detected: one of the words below, or empty for none.
	Cause string `json:"cause,omitempty"`
}

// The values of Event.Cause. In the verbs they are IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_REQ_ERR and
// IBV_EVENT_QP_FATAL.
const (
	CauseAccess  = "access"  // an access to memory that is not allowed
	CauseRequest = "request" // an invalid message, or one that could not be executed
	CauseFatal   = "fatal"   // any other protocol error
)

// The events.
const (
	EventDown = "qp_down" // the connection of a queue pair has ended or can no longer be established
	// EventGone follows EventDown for a queue pair with a shared receive queue, when all its completions are in their
	// queues.
	EventGone     = "qp_gone"
	EventSRQLimit = "srq_limit" // fewer receives are posted than the limit of modify_srq
	EventCQError  = "cq_err"    // a completion queue overran
	EventStopping = "stopping"  // the daemon ends all connections, and then the session
)

// HelloArgs are the arguments of the first request.
type HelloArgs struct {
	Version int    `json:"version"`
	Device  string `json:"device,omitempty"` // name of the device; empty: the first one
	Program string `json:"program,omitempty"`
}

// HelloResult comes with two descriptors: the memory of the session's doorbell (DoorbellLen bytes) and its eventfd.
type HelloResult struct {
	Version int        `json:"version"`
	Device  DeviceInfo `json:"device"`
	Pid     int        `json:"pid"`               // of the daemon
	Session uint64     `json:"session,omitempty"` // number of the session in a Snapshot
	// Devices are all devices of the daemon, including Device.
	Devices []DeviceInfo `json:"devices"`
	// Limits are the current limits of the session's user, by the keys of [limits]. The operator has none.
	Limits map[string]int64 `json:"limits,omitempty"`
}

// DeviceInfo describes a device.
type DeviceInfo struct {
	Name string `json:"name"`
	// Netns is the network namespace of the device, as /proc/thread-self/ns/net names it.
	Netns string `json:"netns,omitempty"`
	// MAC is the hardware address of the interface, empty if it has none.
	MAC string `json:"mac,omitempty"`
	verbs.DeviceMode
}

// NetlinkArgs is a request of NETLINK_RDMA. Style is how the program sees the devices: "iwarp" or "roce".
type NetlinkArgs struct {
	Request []byte `json:"request"`
	Style   string `json:"style"`
}

// NetlinkResult is the answer: datagrams, each with whole netlink messages. A failed request returns an error with the
// errno of NLMSG_ERROR instead.
type NetlinkResult struct {
	Datagrams [][]byte `json:"datagrams"`
}

// Object is the arguments or the result of an operation that needs no more than the handle of an object.
type Object struct {
	Handle Handle `json:"handle"`
}

// RegMRArgs comes with one descriptor, which Mapper.Map accepts.
type RegMRArgs struct {
	PD     Handle     `json:"pd"`
	Offset uint64     `json:"offset"`
	Length uint64     `json:"length"`
	Access ddp.Access `json:"access"`
	Base   ddp.TO     `json:"base,omitempty"` // tagged offset of the first byte
}

// RegMRResult describes the region.
type RegMRResult struct {
	Handle Handle   `json:"handle"`
	STag   ddp.STag `json:"stag"`
	Base   ddp.TO   `json:"base"`
}

// AllocMWArgs are the arguments of alloc_mw.
type AllocMWArgs struct {
	PD Handle `json:"pd"`
}

// AllocMWResult describes the window.
type AllocMWResult struct {
	Handle Handle   `json:"handle"`
	STag   ddp.STag `json:"stag"`
}

// ModifyQPArgs change a queue pair. Access has the rights of its peer: any of RemoteRead, RemoteWrite and RemoteAtomic.
// DSCP is the class of the packets sent. A nil field changes nothing.
type ModifyQPArgs struct {
	Handle Handle      `json:"handle"`
	Access *ddp.Access `json:"access,omitempty"`
	DSCP   *int        `json:"dscp,omitempty"` // as in ConnectArgs
}

// CreateCQArgs describe a completion queue.
type CreateCQArgs struct {
	Depth int `json:"depth"`
}

// CreateCQResult comes with two descriptors: the ring's memory and the program's end of its completion channel.
type CreateCQResult struct {
	Handle Handle   `json:"handle"`
	Ring   Geometry `json:"ring"`
}

// ResizeCQArgs are the arguments of both steps of a resize. With Depth, the daemon creates another ring, and the reply
// comes with the ring's memory. Without Depth, the daemon switches to that ring; the program must have touched its
// pages before.
type ResizeCQArgs struct {
	Handle Handle `json:"handle"`
	Depth  int    `json:"depth,omitempty"`
}

// ResizeCQResult describes the new ring.
type ResizeCQResult struct {
	Ring Geometry `json:"ring"`
}

// CreateSRQArgs describe a shared receive queue. 0 means the default.
type CreateSRQArgs struct {
	PD     Handle `json:"pd"`
	Depth  int    `json:"depth,omitempty"`
	MaxSGE int    `json:"max_sge,omitempty"`
}

// CreateSRQResult comes with one descriptor: the memory of the ring.
type CreateSRQResult struct {
	Handle Handle   `json:"handle"`
	Recv   Geometry `json:"recv"`
	Bell   uint32   `json:"bell"` // bit number in the doorbell's memory
	MaxSGE int      `json:"max_sge"`
}

// ModifySRQArgs request one event when fewer receives are posted than Limit; 0 disarms it.
type ModifySRQArgs struct {
	Handle Handle `json:"handle"`
	Limit  int    `json:"limit"`
}

// QuerySRQResult is the state of a shared receive queue.
type QuerySRQResult struct {
	Limit  int `json:"limit"`  // 0: none is set, or it was reached
	Posted int `json:"posted"` // posted receives
}

// CreateQPArgs describe a queue pair. 0 means the default; -1 as max_inline, ird or ord means 0.
type CreateQPArgs struct {
	PD        Handle `json:"pd"`
	SendCQ    Handle `json:"send_cq"`
	RecvCQ    Handle `json:"recv_cq"`
	SRQ       Handle `json:"srq,omitempty"`
	SendDepth int    `json:"send_depth,omitempty"`
	RecvDepth int    `json:"recv_depth,omitempty"`
	MaxSGE    int    `json:"max_sge,omitempty"`
	MaxInline int    `json:"max_inline,omitempty"`
	IRD       int    `json:"ird,omitempty"`
	ORD       int    `json:"ord,omitempty"`
}

// CreateQPResult comes with one descriptor: the memory of the rings.
type CreateQPResult struct {
	Handle Handle `json:"handle"`
	// Number identifies the queue pair to peers and in completions. It is unique in the daemon.
	Number    uint32    `json:"qp_num"`
	Send      Geometry  `json:"send"`
	Recv      *Geometry `json:"recv,omitempty"` // nil with a shared receive queue
	Bell      uint32    `json:"bell"`           // bit number in the doorbell's memory
	MaxSGE    int       `json:"max_sge"`
	MaxInline int       `json:"max_inline"`
}

// QPTarget is a state of a queue pair as in ibv_modify_qp.
type QPTarget string

// The states that a program requests from the daemon. INIT is handled by the program itself.
const (
	ToRTR   QPTarget = "rtr"
	ToRTS   QPTarget = "rts"
	ToSQD   QPTarget = "sqd"
	ToError QPTarget = "err"
	ToReset QPTarget = "reset"
)

// SetStateArgs change the state of a queue pair that its program connects by ibv_modify_qp.
type SetStateArgs struct {
	QP    Handle   `json:"qp"`
	State QPTarget `json:"state"`
	// for ToRTR: an address of the device, and the peer's address and number
	LocalGID  netip.Addr `json:"local_gid,omitzero"`
	RemoteGID netip.Addr `json:"remote_gid,omitzero"`
	RemoteQPN uint32     `json:"remote_qpn,omitempty"`
	IRD       int        `json:"ird,omitempty"`       // as in ConnectArgs
	RNRTimer  int        `json:"rnr_timer,omitempty"` // IBV_QP_MIN_RNR_TIMER, 0 to 31
	DSCP      int        `json:"dscp,omitempty"`      // as in ConnectArgs
	// for ToRTS: a request waits for an unresponsive peer for 4.096 us * 2^Timeout * (RetryCount + 1), and at least 4 s
	// until the queue pairs are connected; a Timeout of 0 means forever
	Timeout    int `json:"timeout,omitempty"`
	RetryCount int `json:"retry_cnt,omitempty"`
	// RNRRetry is how often a message waits for the peer's RNRTimer if the peer has no receive posted; 7 means forever.
	RNRRetry int `json:"rnr_retry,omitempty"`
}

// QueryGIDsResult has the addresses of the session's device, IPv4 first.
type QueryGIDsResult struct {
	GIDs []netip.Addr `json:"gids"`
}

// ResolveArgs are the arguments of resolve, which waits for the next hop towards an address.
type ResolveArgs struct {
	Remote  netip.AddrPort `json:"remote"`
	Timeout int            `json:"timeout_ms"`
}

// ConnectArgs are the arguments of connect.
type ConnectArgs struct {
	QP          Handle           `json:"qp"`
	Local       netip.AddrPort   `json:"local"`
	TryPort     uint16           `json:"try_port,omitempty"` // if local has no port; see verbs.DialConfig
	Remote      netip.AddrPort   `json:"remote"`
	PrivateData []byte           `json:"private_data,omitempty"`
	MPA         *verbs.MPAConfig `json:"mpa,omitempty"`
	Patience    int              `json:"patience_ms,omitempty"` // see verbs.DialConfig
	// IRD and ORD are at most those of the queue pair, which are the defaults; -1 means 0.
	IRD int `json:"ird,omitempty"`
	ORD int `json:"ord,omitempty"`
	// DSCP is the class of the packets, 1 to 63. 0 means that of the user or the device, -1 means 0.
	DSCP int `json:"dscp,omitempty"`
}

// Connected is the result of connect and of accept.
type Connected struct {
	Local  netip.AddrPort  `json:"local"`
	Remote netip.AddrPort  `json:"remote"`
	Params *startup.Params `json:"params"`
}

// ListenArgs describe a listener.
type ListenArgs struct {
	Addr netip.AddrPort `json:"addr"`
	verbs.ListenConfig
}

// ListenResult describes the listener.
type ListenResult struct {
	Handle Handle         `json:"handle"`
	Addr   netip.AddrPort `json:"addr"`
}

// RequestResult is a connection request, to be answered with accept or reject.
type RequestResult struct {
	Handle Handle `json:"handle"`
	verbs.ConnRequest
}

// AcceptArgs are the arguments of accept and of reject, which answer a connection request. reject has no QP.
type AcceptArgs struct {
	Handle      Handle `json:"handle"`
	QP          Handle `json:"qp,omitempty"`
	PrivateData []byte `json:"private_data,omitempty"`
	IRD         int    `json:"ird,omitempty"` // as in ConnectArgs
	ORD         int    `json:"ord,omitempty"`
}

// CancelArgs name the request to cancel, which is still answered.
type CancelArgs struct {
	ID uint64 `json:"id"`
}

// FlushArgs name the export whose file the daemon writes to disk.
type FlushArgs struct {
	Export string `json:"export"`
}

// Results of a confirmation.
const (
	ConfirmDone    = "confirmed"
	ConfirmAlready = "already_confirmed"
	ConfirmUnasked = "not_awaited"
)

// ConfirmResult is the result of a confirmation. State is one of the words above.
type ConfirmResult struct {
	State string  `json:"state" doc:"\"confirmed\", \"already_confirmed\", or \"not_awaited\" if no confirmation is needed"`
	Left  float64 `json:"left_seconds" doc:"time that was left to confirm"`
}

// ReloadResult is the result of a reload.
type ReloadResult struct {
	Applied bool     `json:"applied"`           // false: the file is invalid, and nothing changed
	Path    string   `json:"path,omitempty"`    // of the configuration file
	Restart []string `json:"restart,omitempty"` // changed keys that need a restart
	Errors  []string `json:"errors,omitempty"`  // errors in parts that were not applied
}

// decode parses one JSON object and rejects unknown keys: a client of a newer version gets an error.
func decode(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%w: %v", ErrFrame, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: trailing bytes after the JSON object", ErrFrame)
	}
	return nil
}

// nesting returns how deeply the objects and lists in b are nested. b may be invalid JSON.
func nesting(b []byte) (deepest int) {
	depth, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// ParseRequest parses the body of a request.
func ParseRequest(b []byte) (r Request, err error) {
	if nesting(b) > maxNesting {
		return r, fmt.Errorf("%w: a request nests at most %d objects and lists", ErrFrame,
			maxNesting)
	}
	if err = decode(b, &r); err == nil && r.Op == "" {
		err = fmt.Errorf("%w: request without op", ErrFrame)
	}
	return r, err
}

// ParseArgs parses the arguments of a request into v. It leaves v unchanged if the request has none.
func (r *Request) ParseArgs(v any) error {
	if len(r.Args) == 0 {
		return nil
	}
	if err := decode(r.Args, v); err != nil {
		return fmt.Errorf("arguments of %s: %w", r.Op, err)
	}
	return nil
}

// ParseReply parses the body of a reply. Like ParseEvent, it is for clients and ignores unknown keys.
func ParseReply(b []byte) (Reply, error) { return unmarshal[Reply](b) }

// ParseEvent parses the body of an event.
func ParseEvent(b []byte) (Event, error) { return unmarshal[Event](b) }

func unmarshal[T any](b []byte) (v T, err error) {
	if err = json.Unmarshal(b, &v); err != nil {
		err = fmt.Errorf("%w: %v", ErrFrame, err)
	}
	return v, err
}

// Marshal is json.Marshal for the types of this package, for which it cannot fail.
func Marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		b, _ = json.Marshal(Reply{Error: &Error{Code: CodeInternal, Text: err.Error()}})
	}
	return b
}

// CaptureArgs filter and limit a capture of the session's device. A field that is zero filters and limits nothing.
type CaptureArgs struct {
	Flows   []CaptureFlow `json:"flows,omitempty"`   // only these connections
	Remote  netip.Prefix  `json:"remote,omitzero"`   // only these peers
	Port    uint16        `json:"port,omitempty"`    // only this port, at either end
	Frames  uint64        `json:"frames,omitempty"`  // length in frames, with those of CaptureResult.Start
	SnapLen int           `json:"snaplen,omitempty"` // bytes kept of each frame
	// Decrypted adds frames before IPsec encrypts them and after it decrypts them, on separate interfaces in the file
	// (operator only).
	Decrypted bool `json:"decrypted,omitempty"`
}

// CaptureFlow is the address pair of a connection.
type CaptureFlow struct {
	Local  netip.AddrPort `json:"local"`
	Remote netip.AddrPort `json:"remote"`
}

// MaxCaptureFlows limits the connections of a capture's filter, because each frame is compared with all.
const MaxCaptureFlows = 64

// CaptureResult has the counters of an ended capture.
type CaptureResult struct {
	Frames  uint64 `json:"frames" doc:"frames in the file"`
	Start   int    `json:"start_frames" doc:"of these, start-up frames of connections older than the capture"`
	Dropped uint64 `json:"dropped" doc:"frames missing from the file because writing was too slow"`
	Error   string `json:"error,omitempty" doc:"why the file is incomplete"`
}

// EventsArgs ask for the events after a number. The reply comes when there are some. Without After it comes at once and
// has the number of the latest event.
type EventsArgs struct {
	After *uint64 `json:"after,omitempty"`
}

// EventsResult has events, oldest first. Lost is the number of events after EventsArgs.After that were overwritten
// before they were read. Next is the After of the next request. For the operator all events are numbered, for a user
// only the user's own.
type EventsResult struct {
	Events []EventRecord `json:"events"`
	Lost   uint64        `json:"lost,omitempty"`
	Next   uint64        `json:"next"`
}

// Values of EventRecord.Change.
const (
	ChangeNew   = "new"   // an object was created
	ChangeDel   = "del"   // an object was destroyed
	ChangeEvent = "event" // a line of the log
	ChangeDrop  = "drop"  // frames were dropped; added by xwarp monitor
	ChangeLost  = "lost"  // events are missing; added by xwarp monitor
)

// EventRecord is an event of the daemon: an object that was created or destroyed, or a line of the log, such as a
// connection that opened or closed, a failed work request, or a warning. Event has names of RDMA_CM and completions
// verbatim: "RDMA_CM_EVENT_ESTABLISHED", "IBV_WC_REM_ACCESS_ERR".
type EventRecord struct {
	Seq     uint64            `json:"seq,omitempty" doc:"counts events from 1"`
	Time    time.Time         `json:"time" doc:"when it happened; of drops: when they were counted"`
	Change  string            `json:"change" doc:"\"new\", \"del\", \"event\", \"drop\" or \"lost\""`
	Kind    string            `json:"kind" doc:"qp, cq, srq, mr, mw, pd, listener or session; device for drops; daemon for events"`
	Device  string            `json:"device,omitempty" doc:"device of the object"`
	Export  string            `json:"export,omitempty" doc:"export that it belongs to, instead of a session"`
	Session uint64            `json:"session,omitempty" doc:"session that it belongs to"`
	Program string            `json:"program,omitempty" doc:"name of the program"`
	UID     *uint32           `json:"uid,omitempty" doc:"user of the program"`
	Pid     int32             `json:"pid,omitempty" doc:"process ID of the program"`
	QP      Handle            `json:"lqpn,omitempty" doc:"queue pair number in its session"`
	Object  string            `json:"object,omitempty" doc:"numbers of the object, by the keys of xwarp resource show"`
	Level   string            `json:"level,omitempty" doc:"of an event: INFO, WARN or ERROR"`
	Event   string            `json:"event,omitempty" doc:"what happened"`
	Local   string            `json:"local,omitempty" doc:"address of a connection or listener"`
	Remote  string            `json:"remote,omitempty" doc:"address of the peer"`
	Cause   string            `json:"cause,omitempty" doc:"drop cause"`
	Frames  uint64            `json:"frames,omitempty" doc:"frames dropped since the previous count"`
	Lost    uint64            `json:"lost,omitempty" doc:"events that are missing here, because they were not read in time"`
	Error   string            `json:"error,omitempty" doc:"why"`
	Detail  map[string]string `json:"detail,omitempty" doc:"what else the log says"`
}
