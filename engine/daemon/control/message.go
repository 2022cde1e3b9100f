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

// The requests.
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
	OpSnapshot      Op = "snapshot"
	OpNetlink       Op = "netlink"
	OpFlush         Op = "flush"
	OpCapture       Op = "capture"
	OpEndCapture    Op = "end_capture"
	OpConfirm       Op = "confirm"
	OpReload        Op = "reload"
)

// Handle names an object of one session: a PD, MR, CQ, QP, listener or connection request. No value is used twice.
type Handle uint32

// Request is the body of a request. ID is the client's choice and comes back in the reply; it must not be
// that of a request that is not answered yet.
type Request struct {
	ID   uint64          `json:"id"`
	Op   Op              `json:"op"`
	Args json.RawMessage `json:"args,omitempty"`
}

// Reply is the body of a reply: Result, or Error.
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
	Error *Error `json:"error,omitempty"` // of a queue pair: why; nil after a graceful close
	// Cause is the protocol error, of either side: one of the words below; empty when nothing was
	// wrong with it.
	Cause string `json:"cause,omitempty"`
}

// Causes, as the verbs have them: IBV_EVENT_QP_ACCESS_ERR, QP_REQ_ERR and QP_FATAL.
const (
	CauseAccess  = "access"  // to memory
	CauseRequest = "request" // a message that was not right, or could not be carried out
	CauseFatal   = "fatal"
)

// The events.
const (
	EventDown = "qp_down" // a queue pair left full operation, or will never get there
	// EventGone follows EventDown for a queue pair with a shared receive queue: all its completions
	// are in their queues.
	EventGone     = "qp_gone"
	EventSRQLimit = "srq_limit" // fewer receives wait than the limit that modify_srq set
)

// HelloArgs must be the first request.
type HelloArgs struct {
	Version int    `json:"version"`
	Device  string `json:"device,omitempty"` // by its interface's name; empty: the first one
	Program string `json:"program,omitempty"`
}

// HelloResult comes with two descriptors: the memory of the session's doorbell (DoorbellLen bytes) and its eventfd.
type HelloResult struct {
	Version int        `json:"version"`
	Device  DeviceInfo `json:"device"`
	Pid     int        `json:"pid"` // the daemon's
	// Devices are all that the daemon has, Device among them.
	Devices []DeviceInfo `json:"devices"`
	// Limits are the most that the session's user may have now, by the keys of [limits]. The operator has none.
	Limits map[string]int64 `json:"limits,omitempty"`
}

// DeviceInfo describes a device.
type DeviceInfo struct {
	Name      string `json:"name"`
	Transport string `json:"transport"` // "xdp" or "kernel"
	Interface string `json:"interface,omitempty"`
	XDPMode   string `json:"xdp_mode,omitempty"` // "native" or "generic"
	Transmit  string `json:"transmit,omitempty"` // "xdp", "packet-gso" or "xdp-live"
	Copy      string `json:"copy,omitempty"`     // "copy" or "zero-copy"
	Segments  int    `json:"segments,omitempty"` // chunks that a received frame may span
	MTU       int    `json:"mtu,omitempty"`
	Queues    int    `json:"queues,omitempty"`
	Fallback  string `json:"fallback,omitempty"` // why native mode could not be had
	// Way is how segments leave now, in packets of what size, and why.
	Way string `json:"way,omitempty"`
	// NoZeroCopy is why zero-copy could not be had, where that is left to the driver.
	NoZeroCopy string `json:"no_zero_copy,omitempty"`
	// BusyPoll is "on", or why the workers do not poll the NIC.
	BusyPoll string `json:"busy_poll,omitempty"`
}

// NetlinkArgs is a request of NETLINK_RDMA. Style is that of the program's devices, "iwarp" or "roce".
type NetlinkArgs struct {
	Request []byte `json:"request"`
	Style   string `json:"style"`
}

// NetlinkResult is the answer: datagrams of whole messages. A request that fails is answered with NLMSG_ERROR and the
// errno of the error, which is not among them.
type NetlinkResult struct {
	Datagrams [][]byte `json:"datagrams"`
}

// Object is the arguments or the result that is one handle.
type Object struct {
	Handle Handle `json:"handle"`
}

// RegMRArgs comes with one descriptor, which Mapper.Map accepts.
type RegMRArgs struct {
	PD     Handle     `json:"pd"`
	Offset uint64     `json:"offset"`
	Length uint64     `json:"length"`
	Access ddp.Access `json:"access"`
	Base   ddp.TO     `json:"base,omitempty"` // TO of the first byte
}

// RegMRResult names the region.
type RegMRResult struct {
	Handle Handle   `json:"handle"`
	STag   ddp.STag `json:"stag"`
	Base   ddp.TO   `json:"base"`
}

// AllocMWArgs ask for a memory window.
type AllocMWArgs struct {
	PD Handle `json:"pd"`
}

// AllocMWResult names it.
type AllocMWResult struct {
	Handle Handle   `json:"handle"`
	STag   ddp.STag `json:"stag"`
}

// ModifyQPArgs say what of RemoteRead, RemoteWrite and RemoteAtomic the peer of a queue pair has.
type ModifyQPArgs struct {
	Handle Handle     `json:"handle"`
	Access ddp.Access `json:"access"`
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

// ResizeCQArgs ask for another ring, whose memory comes with the reply as that of create_cq does, and
// without Depth for its use: the program must have touched its pages before.
type ResizeCQArgs struct {
	Handle Handle `json:"handle"`
	Depth  int    `json:"depth,omitempty"`
}

// ResizeCQResult is the ring to come.
type ResizeCQResult struct {
	Ring Geometry `json:"ring"`
}

// CreateSRQArgs describe a shared receive queue; 0 means the default.
type CreateSRQArgs struct {
	PD     Handle `json:"pd"`
	Depth  int    `json:"depth,omitempty"`
	MaxSGE int    `json:"max_sge,omitempty"`
}

// CreateSRQResult comes with one descriptor: the memory of the ring.
type CreateSRQResult struct {
	Handle Handle   `json:"handle"`
	Recv   Geometry `json:"recv"`
	Bell   uint32   `json:"bell"` // its bit in the doorbell's memory
	MaxSGE int      `json:"max_sge"`
}

// ModifySRQArgs ask for one event when fewer receives wait than Limit; 0 for none.
type ModifySRQArgs struct {
	Handle Handle `json:"handle"`
	Limit  int    `json:"limit"`
}

// QuerySRQResult says how a shared receive queue is.
type QuerySRQResult struct {
	Limit  int `json:"limit"`  // 0: there is none, or the event has come
	Posted int `json:"posted"` // receives that wait
}

// CreateQPArgs describe a queue pair; 0 means the default, and -1 as max_inline, ird or ord none.
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
	// Number is the queue pair's in the whole daemon, for peers and in completions.
	Number    uint32    `json:"qp_num"`
	Send      Geometry  `json:"send"`
	Recv      *Geometry `json:"recv,omitempty"` // nil with a shared receive queue
	Bell      uint32    `json:"bell"`           // its bit in the doorbell's memory
	MaxSGE    int       `json:"max_sge"`
	MaxInline int       `json:"max_inline"`
}

// QPTarget is a state of a queue pair as ibv_modify_qp has it.
type QPTarget string

// The states that a program asks the daemon for. INIT is the program's own affair.
const (
	ToRTR   QPTarget = "rtr"
	ToRTS   QPTarget = "rts"
	ToSQD   QPTarget = "sqd"
	ToError QPTarget = "err"
	ToReset QPTarget = "reset"
)

// SetStateArgs move a queue pair that its program connects by ibv_modify_qp.
type SetStateArgs struct {
	QP    Handle   `json:"qp"`
	State QPTarget `json:"state"`
	// Of ToRTR: an address of the device, and the peer's address and number.
	LocalGID  netip.Addr `json:"local_gid,omitzero"`
	RemoteGID netip.Addr `json:"remote_gid,omitzero"`
	RemoteQPN uint32     `json:"remote_qpn,omitempty"`
	IRD       int        `json:"ird,omitempty"`       // as that of ConnectArgs
	RNRTimer  int        `json:"rnr_timer,omitempty"` // IBV_QP_MIN_RNR_TIMER, 0 to 31
	// Of ToRTS: how long a request waits for a peer that does not answer, 4.096 us * 2^Timeout * (RetryCount + 1),
	// at least 4 s until the two are connected; a Timeout of 0 means for ever.
	Timeout    int `json:"timeout,omitempty"`
	RetryCount int `json:"retry_cnt,omitempty"`
	// RNRRetry is how often a message waits for the peer's RNRTimer when the peer has no receive for it; 7: for ever.
	RNRRetry int `json:"rnr_retry,omitempty"`
}

// QueryGIDsResult has the addresses of the session's device, IPv4 first.
type QueryGIDsResult struct {
	GIDs []netip.Addr `json:"gids"`
}

// ResolveArgs wait for the next hop towards an address.
type ResolveArgs struct {
	Remote  netip.AddrPort `json:"remote"`
	Timeout int            `json:"timeout_ms"`
}

// ConnectArgs connect a queue pair.
type ConnectArgs struct {
	QP          Handle           `json:"qp"`
	Local       netip.AddrPort   `json:"local"`
	Remote      netip.AddrPort   `json:"remote"`
	PrivateData []byte           `json:"private_data,omitempty"`
	MPA         *verbs.MPAConfig `json:"mpa,omitempty"`
	Patience    int              `json:"patience_ms,omitempty"` // see verbs.DialConfig
	// IRD and ORD are at most the queue pair's, and those by default; -1: none.
	IRD int `json:"ird,omitempty"`
	ORD int `json:"ord,omitempty"`
}

// Connected is the result of connect and of accept.
type Connected struct {
	Local  netip.AddrPort  `json:"local"`
	Remote netip.AddrPort  `json:"remote"`
	Params *startup.Params `json:"params"`
}

// ListenArgs describe a listener.
type ListenArgs struct {
	Addr    netip.AddrPort   `json:"addr"`
	Backlog int              `json:"backlog,omitempty"`
	MPA     *verbs.MPAConfig `json:"mpa,omitempty"`
}

// ListenResult names the listener.
type ListenResult struct {
	Handle Handle         `json:"handle"`
	Addr   netip.AddrPort `json:"addr"`
}

// RequestResult is a connection request, to be answered with accept or reject.
type RequestResult struct {
	Handle      Handle           `json:"handle"`
	Local       netip.AddrPort   `json:"local"`
	Remote      netip.AddrPort   `json:"remote"`
	Revision    startup.Revision `json:"revision"`
	PrivateData []byte           `json:"private_data,omitempty"`
	IRD         int              `json:"ird"`
	ORD         int              `json:"ord"`
}

// AcceptArgs answer a connection request; reject has no QP.
type AcceptArgs struct {
	Handle      Handle `json:"handle"`
	QP          Handle `json:"qp,omitempty"`
	PrivateData []byte `json:"private_data,omitempty"`
	IRD         int    `json:"ird,omitempty"` // as those of ConnectArgs
	ORD         int    `json:"ord,omitempty"`
}

// CancelArgs name the request to give up; it is still answered.
type CancelArgs struct {
	ID uint64 `json:"id"`
}

// FlushArgs name an exported region whose file is to be on the disk.
type FlushArgs struct {
	Export string `json:"export"`
}

// What a confirmation came to.
const (
	ConfirmDone    = "confirmed"
	ConfirmAlready = "already_confirmed"
	ConfirmUnasked = "not_awaited"
)

// ConfirmResult says what a confirmation came to: one of the words above.
type ConfirmResult struct {
	State string  `json:"state"`
	Left  float64 `json:"left_seconds"` // of the time that there was
}

// ReloadResult says what a reload of the configuration came to.
type ReloadResult struct {
	Applied bool     `json:"applied"`           // false: the file cannot be read, and nothing changed
	Path    string   `json:"path,omitempty"`    // of the file
	Restart []string `json:"restart,omitempty"` // keys that changed and take effect after a restart
	Errors  []string `json:"errors,omitempty"`  // what is wrong and was left out
}

// decode parses one JSON object and takes no unknown keys: a client of a newer version gets an error.
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

// ParseRequest parses the body of a request.
func ParseRequest(b []byte) (r Request, err error) {
	if err = decode(b, &r); err == nil && r.Op == "" {
		err = fmt.Errorf("%w: request without op", ErrFrame)
	}
	return r, err
}

// ParseArgs parses the arguments of a request; none are like an empty object.
func (r *Request) ParseArgs(v any) error {
	if len(r.Args) == 0 {
		return nil
	}
	if err := decode(r.Args, v); err != nil {
		return fmt.Errorf("arguments of %s: %w", r.Op, err)
	}
	return nil
}

// ParseReply and ParseEvent are the client's. They take unknown keys.
func ParseReply(b []byte) (r Reply, err error) {
	err = unmarshal(b, &r)
	return r, err
}

// ParseEvent parses the body of an event.
func ParseEvent(b []byte) (e Event, err error) {
	err = unmarshal(b, &e)
	return e, err
}

func unmarshal(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w: %v", ErrFrame, err)
	}
	return nil
}

// Marshal is json.Marshal for the types of this package, which cannot fail.
func Marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		b, _ = json.Marshal(Reply{Error: &Error{Code: CodeInternal, Text: err.Error()}})
	}
	return b
}

// CaptureArgs describe a capture of a device's frames; zero fields do not restrict it. The session's device is taken.
type CaptureArgs struct {
	Flows   []CaptureFlow `json:"flows,omitempty"`  // one of these connections
	Remote  netip.Prefix  `json:"remote,omitzero"`  // peers
	Port    uint16        `json:"port,omitempty"`   // of either end
	Frames  uint64        `json:"frames,omitempty"` // number of frames to end after, those of the beginning included
	SnapLen int           `json:"snaplen,omitempty"`
	// Decrypted adds frames as they are before IPsec encrypts them and after it decrypts them, on interfaces of their
	// own in the file. Only the operator may.
	Decrypted bool `json:"decrypted,omitempty"`
}

// CaptureFlow is a connection.
type CaptureFlow struct {
	Local  netip.AddrPort `json:"local"`
	Remote netip.AddrPort `json:"remote"`
}

// MaxCaptureFlows bounds the connections of a capture's filter: each frame is compared with all.
const MaxCaptureFlows = 64

// CaptureResult has the counters of a capture that has ended.
type CaptureResult struct {
	Frames  uint64 `json:"frames"`       // in the file
	Start   int    `json:"start_frames"` // of these, frames from the start of connections that were there already
	Dropped uint64 `json:"dropped"`      // frames that are missing because they were not read fast enough
	Error   string `json:"error,omitempty"`
}

// EventRecord is one thing that happened to the daemon: a connection that came or went, a work request that
// failed, a program, an export, a warning. Words of RDMA_CM and of completions stand in Event as they are:
// "RDMA_CM_EVENT_ESTABLISHED", "IBV_WC_REM_ACCESS_ERR".
type EventRecord struct {
	Seq     uint64            `json:"seq" doc:"counts events from 1"`
	Time    time.Time         `json:"time" doc:"when it happened"`
	Level   string            `json:"level" doc:"INFO, WARN or ERROR"`
	Event   string            `json:"event" doc:"what happened"`
	Device  string            `json:"device,omitempty" doc:"where"`
	Session uint64            `json:"session,omitempty" doc:"whose it is"`
	Export  string            `json:"export,omitempty" doc:"whose it is, instead of a session"`
	Local   string            `json:"local,omitempty" doc:"address of a connection or listener"`
	Remote  string            `json:"remote,omitempty" doc:"address of the peer"`
	Error   string            `json:"error,omitempty" doc:"why"`
	Detail  map[string]string `json:"detail,omitempty" doc:"what else the log says"`
}
