package control

import (
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"xwarp/engine/verbs"
)

// Snapshot is the state of the daemon at about one moment. Except on the operator socket it has only the user's own
// objects. Its types are also the JSON objects of xwarp's commands and of the status page; the doc tags document them.
type Snapshot struct {
	Status
	Objects
	Time time.Time `json:"time"`
	// Statistics are the counters of devices and exports. Those of queue pairs are in QPs.
	Statistics Statistics        `json:"statistics"`
	Counters   map[string]uint64 `json:"counters"`         // of the daemon itself
	Events     []EventRecord     `json:"events,omitempty"` // latest ones, oldest first; operator only
	// MaxPrograms is the maximum number of programs on the control socket, of all users.
	MaxPrograms int `json:"places"`
	// Tenants is the number of control sockets below TenantDirectory.
	Tenants         int    `json:"tenants"`
	TenantDirectory string `json:"tenant_directory,omitempty"`
}

// Status is the output of xwarp status.
type Status struct {
	Schema  int     `json:"schema" doc:"version of this layout, 1"`
	Command string  `json:"command" doc:"\"status\""`
	Version string  `json:"version" doc:"of the daemon"`
	Pid     int     `json:"pid" doc:"of the daemon"`
	Uptime  float64 `json:"uptime_seconds" doc:"time since the daemon started"`
	// Replaced and Pending say why a restart is needed.
	Replaced bool          `json:"replaced,omitempty" doc:"the file of xwarpd was replaced after its start, as an upgrade does: a restart runs the new one"`
	Pending  []string      `json:"pending" doc:"configuration keys whose changes a restart of xwarpd applies"`
	Devices  []DeviceState `json:"devices" doc:"the daemon's devices"`
	Exports  []ExportState `json:"exports" doc:"memory that peers access without a local program"`
	Count    Count         `json:"objects" doc:"objects of programs that this user may see"`
	// Unconfirmed is the time until the daemon rolls back without a confirmation. Zero means no wait.
	Unconfirmed float64 `json:"unconfirmed_seconds,omitempty" doc:"time until xwarpd shuts down unless confirmed (xwarp confirm)"`
}

// Count is the number of objects of programs.
type Count struct {
	Sessions  int `json:"session" doc:"programs connected to the daemon"`
	PDs       int `json:"pd" doc:"protection domains"`
	MRs       int `json:"mr" doc:"memory regions"`
	MWs       int `json:"mw" doc:"memory windows"`
	CQs       int `json:"cq" doc:"completion queues"`
	SRQs      int `json:"srq" doc:"shared receive queues"`
	QPs       int `json:"qp" doc:"queue pairs"`
	Listeners int `json:"listener" doc:"listeners of programs"`
}

// Objects are lists of objects by kind. The JSON key of a kind is its name in the rdma command of iproute2, if it has
// one.
type Objects struct {
	QPs       []QPState       `json:"qp,omitzero" doc:"queue pairs"`
	CQs       []CQState       `json:"cq,omitzero" doc:"completion queues"`
	SRQs      []SRQState      `json:"srq,omitzero" doc:"shared receive queues"`
	MRs       []MRState       `json:"mr,omitzero" doc:"memory regions"`
	MWs       []MWState       `json:"mw,omitzero" doc:"memory windows"`
	PDs       []PDState       `json:"pd,omitzero" doc:"protection domains"`
	Listeners []ListenerState `json:"listener,omitzero" doc:"listeners"`
	Sessions  []SessionState  `json:"session,omitzero" doc:"programs"`
	Users     []UserState     `json:"user,omitzero" doc:"resources of users against [limits]"`
	SAs       []SAState       `json:"sa,omitzero" doc:"IPsec security associations, without keys; operator only"`
	Peers     []PeerState     `json:"peer,omitzero" doc:"remote addresses and networks with the most connections; root only"`
}

// Numbers returns the number of objects of each kind.
func (o *Objects) Numbers() Count {
	return Count{len(o.Sessions), len(o.PDs), len(o.MRs), len(o.MWs), len(o.CQs), len(o.SRQs),
		len(o.QPs), len(o.Listeners)}
}

// DeviceState is a device of the daemon.
type DeviceState struct {
	Name string `json:"device" doc:"its name"`
	verbs.DeviceMode
	Addresses      []netip.Addr `json:"addresses" doc:"IP addresses of its interface, IPv4 first, without link-local ones"`
	RxFrames       uint64       `json:"rx_frames" doc:"frames received"`
	TxFrames       uint64       `json:"tx_frames" doc:"frames sent"`
	Offered        uint64       `json:"rx_offered,omitempty" doc:"target number of receive chunks in the kernel under load, sum of all queues"`
	Grown          uint64       `json:"rx_grown,omitempty" doc:"times that this target was raised"`
	In             uint64       `json:"rdma_rx_bytes" doc:"message bytes placed, all connections so far"`
	Out            uint64       `json:"rdma_tx_bytes" doc:"message bytes sent, all connections so far"`
	Retrans        uint64       `json:"retransmitted_bytes" doc:"TCP bytes retransmitted"`
	Dropped        []Drop       `json:"dropped" doc:"frames dropped, by cause"`
	Partial        uint64       `json:"partial_checksum_frames" doc:"frames dropped because their checksum covers the pseudo-header only"`
	Unowned        uint64       `json:"unowned,omitempty" doc:"frames of xwarp connections dropped because they arrived on unserved queues"`
	UnservedQueues []int        `json:"unowned_queues" doc:"these queues"`
	Link           string       `json:"link,omitempty" doc:"state of the interface: \"up\", \"down\", \"no-carrier\" or \"gone\""`
	Since          time.Time    `json:"link_since,omitzero" doc:"time of the last change of link; absent if it never changed"`
	Missing        []netip.Addr `json:"missing_addresses" doc:"addresses removed from the host that connections and listeners still need"`
	Reopened       uint64       `json:"reopened" doc:"times that the device was reopened after a failure or the loss of its interface"`
	Health         string       `json:"health,omitempty" doc:"kernel state that the device can no longer follow"`
	IPsec          *IPsecState  `json:"ipsec,omitempty" doc:"security associations, with [[interface.ipsec]]"`
	Mapper         string       `json:"port_mapper,omitempty" doc:"why the iWARP port mapper is not running, if enabled"`
	Error          string       `json:"error,omitempty" doc:"why counters are unavailable"`
}

// States of a network interface.
const (
	LinkUp        = "up"
	LinkDown      = "down"       // ip link set down
	LinkNoCarrier = "no-carrier" // no link partner
	LinkGone      = "gone"       // removed, or moved to another namespace
)

// Drop is one cause of dropped frames.
type Drop struct {
	Cause  string `json:"cause" doc:"as in xwarp_dropped_frames_total; drop_peer, drop_syn, drop_stray and drop_clear: in xwarp_steering_frames_total"`
	Frames uint64 `json:"frames" doc:"since the daemon started"`
}

// IPsecState is the IPsec state of a device.
type IPsecState struct {
	In         int          `json:"sas_in" doc:"current inbound SAs; only for the operator"`
	Out        int          `json:"sas_out" doc:"current outbound SAs; only for the operator"`
	PacketsIn  uint64       `json:"rx_packets" doc:"packets received that passed the integrity and replay checks"`
	BytesIn    uint64       `json:"rx_bytes" doc:"their payload bytes"`
	PacketsOut uint64       `json:"tx_packets" doc:"packets sent"`
	BytesOut   uint64       `json:"tx_bytes" doc:"their payload bytes"`
	Replayed   uint64       `json:"replayed" doc:"packets that were replayed, or older than the replay window"`
	Forged     uint64       `json:"forged" doc:"packets with a wrong integrity check value"`
	Rekeys     uint64       `json:"rekeys" doc:"times that sending switched to another SA"`
	Refused    uint64       `json:"refused_sas" doc:"SAs that cannot be used"`
	Waiting    []netip.Addr `json:"waiting" doc:"hosts to which packets wait for an SA"`
	Error      string       `json:"error,omitempty" doc:"last error: an SA was refused, or a request failed"`
	ErrorAt    time.Time    `json:"error_at,omitzero" doc:"time of this error"`
}

// ExportState is memory that peers access without a local program.
type ExportState struct {
	Name        string `json:"export" doc:"its name"`
	Device      string `json:"device" doc:"its device"`
	Listen      string `json:"listen" doc:"address; \":7174\" is all of IPv4 and IPv6"`
	Serve       string `json:"serve" doc:"\"memory\" or \"directory\""`
	Memory      string `json:"memory,omitempty" doc:"\"anonymous\", \"hugepages\" or \"file\"; absent for a directory"`
	Path        string `json:"path,omitempty" doc:"of the file or directory"`
	Size        int64  `json:"size" doc:"bytes; of a directory: its limit, 0 for none"`
	Used        int64  `json:"used" doc:"directory: bytes of its files"`
	Access      string `json:"access" doc:"rights of peers"`
	Connections int    `json:"connections" doc:"now"`
	Rejected    uint64 `json:"rejected" doc:"connections"`
	Flushes     uint64 `json:"flushes" doc:"times that its file was written to disk"`
	Puts        uint64 `json:"puts" doc:"directory: files stored by peers"`
	PutBytes    uint64 `json:"put_bytes" doc:"directory: bytes of these"`
	Gets        uint64 `json:"gets" doc:"directory: files fetched by peers"`
	GetBytes    uint64 `json:"get_bytes" doc:"directory: bytes of these"`
	Failed      uint64 `json:"failed" doc:"directory: requests that were refused or aborted"`
	Error       string `json:"error,omitempty" doc:"why it failed, or cannot be opened yet"`
}

// DeviceRef is the device of an object.
type DeviceRef struct {
	Index  int    `json:"ifindex" doc:"device number"`
	Device string `json:"ifname" doc:"device name"`
}

// IsOn reports whether the object is on a device.
func (p DeviceRef) IsOn(device string) bool { return p.Device == device }

// On returns the objects on a device.
func On[T interface{ IsOn(device string) bool }](device string, all []T) (list []T) {
	for _, v := range all {
		if v.IsOn(device) {
			list = append(list, v)
		}
	}
	return list
}

// Port is the port of an object.
type Port struct {
	DeviceRef
	Port int `json:"port" doc:"port of the device, always 1"`
}

// Owner is the owner of an object: a session, or the export of that name.
type Owner struct {
	Export  string `json:"export,omitempty" doc:"owning export, instead of a session"`
	Session uint64 `json:"session,omitempty" doc:"owning session"`
	UID     uint32 `json:"uid" doc:"user ID"`
	Tenant  string `json:"tenant,omitempty" doc:"tenant whose socket the program uses"`
	Pid     int32  `json:"pid,omitempty" doc:"process ID"`
	Comm    string `json:"comm,omitempty" doc:"process name, which the commands add"`
}

// Key is a number that is shown in hexadecimal.
type Key uint32

// String returns 0x and eight digits.
func (k Key) String() string { return fmt.Sprintf("0x%08x", uint32(k)) }

// MarshalText implements encoding.TextMarshaler.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Key) UnmarshalText(b []byte) error {
	n, err := strconv.ParseUint(string(b), 0, 32)
	*k = Key(n)
	return err
}

// QPState is a queue pair and its connection.
type QPState struct {
	Port
	Handle    Handle         `json:"lqpn" doc:"queue pair number in its session"`
	Type      string         `json:"type" doc:"always RC"`
	State     string         `json:"state" doc:"queue pair state"`
	Local     netip.AddrPort `json:"local,omitzero" doc:"local address and port"`
	Remote    netip.AddrPort `json:"remote,omitzero" doc:"remote address and port"`
	Transport string         `json:"transport,omitempty" doc:"transport of the connection: xdp, or kernel (also used within the host)"`
	TCPState  string         `json:"tcp_state,omitempty" doc:"TCP state"`
	PD        Handle         `json:"pdn,omitempty" doc:"protection domain"`
	SendCQ    Handle         `json:"send_cqn,omitempty" doc:"completion queue of the send queue"`
	RecvCQ    Handle         `json:"recv_cqn,omitempty" doc:"completion queue of the receive queue"`
	SRQ       Handle         `json:"srqn,omitempty" doc:"shared receive queue"`
	In        uint64         `json:"payload_in" doc:"payload bytes placed"`
	Out       uint64         `json:"payload_out" doc:"payload bytes sent"`
	Held      uint64         `json:"held_bytes" doc:"bytes received out of order and held until the gap before them is filled"`
	Number    uint32         `json:"qp_num,omitempty" doc:"number for peers of --style roce; unique in the daemon"`
	Owner
	Error string            `json:"error,omitempty" doc:"error that ended it"`
	DSCP  int               `json:"dscp,omitempty" doc:"class of the packets sent, 1 to 63; absent: 0"`
	RDMA  map[string]uint64 `json:"rdma,omitempty" doc:"its counters, as in xwarp statistic show --connections"`
	MPA   map[string]uint64 `json:"mpa,omitempty" doc:"counters of its connection's MPA"`
	TCP   map[string]uint64 `json:"tcp,omitempty" doc:"counters of its connection's TCP"`
}

// CQState is a completion queue.
type CQState struct {
	DeviceRef
	Handle      Handle `json:"cqn" doc:"completion queue number in its session"`
	Depth       int    `json:"cqe" doc:"capacity in completions"`
	Users       int    `json:"users" doc:"work queues that use it"`
	Completions uint64 `json:"completions" doc:"completions so far"`
	Overrun     bool   `json:"overrun" doc:"the queue overran and lost completions"`
	Owner
}

// SRQState is a shared receive queue.
type SRQState struct {
	DeviceRef
	Handle Handle `json:"srqn" doc:"shared receive queue number in its session"`
	Depth  int    `json:"max_wr" doc:"capacity in receives"`
	Posted int    `json:"posted" doc:"receives posted and not consumed"`
	Limit  int    `json:"srq_limit" doc:"limit below which the program gets an event; 0: none"`
	Users  int    `json:"users" doc:"queue pairs that use it"`
	PD     Handle `json:"pdn" doc:"protection domain"`
	Owner
}

// MRState is a memory region. Only its owner and the operator see it, and so its STag.
type MRState struct {
	DeviceRef
	Handle Handle `json:"mrn" doc:"memory region number in its session"`
	STag   Key    `json:"rkey" doc:"STag, hexadecimal"`
	Length uint64 `json:"mrlen" doc:"length in bytes"`
	PD     Handle `json:"pdn" doc:"protection domain"`
	Access string `json:"access" doc:"access rights of peers"`
	Owner
}

// MWState is a memory window.
type MWState struct {
	DeviceRef
	Handle Handle `json:"mwn" doc:"memory window number in its session"`
	STag   Key    `json:"rkey" doc:"STag, hexadecimal; binding changes the last byte"`
	PD     Handle `json:"pdn" doc:"protection domain"`
	Owner
}

// PDState is a protection domain.
type PDState struct {
	DeviceRef
	Handle Handle `json:"pdn" doc:"protection domain number in its session"`
	Users  int    `json:"users" doc:"objects in it: the sum of the next four"`
	MRs    int    `json:"mrs" doc:"memory regions in it"`
	MWs    int    `json:"mws" doc:"memory windows in it"`
	SRQs   int    `json:"srqs" doc:"shared receive queues in it"`
	QPs    int    `json:"qps" doc:"queue pairs in it"`
	Owner
}

// ListenerState is a listener of a program.
type ListenerState struct {
	Port
	Handle Handle         `json:"listenern,omitempty" doc:"listener number in its session"`
	Addr   netip.AddrPort `json:"address" doc:"address and port"`
	Owner
}

// SessionState is one connection of a program to the control socket.
type SessionState struct {
	DeviceRef
	Program string `json:"program" doc:"name that the program reports"`
	Owner
	Since  time.Time `json:"since" doc:"time of connection"`
	Ending bool      `json:"ending,omitempty" doc:"ended, except for closing passed descriptors"`
}

// UserState is the use of one resource by a user, or by a tenant with all its users.
type UserState struct {
	UID      uint32 `json:"uid" doc:"user ID; 0 for a tenant"`
	Tenant   string `json:"tenant,omitempty" doc:"tenant, instead of a user"`
	Resource string `json:"resource" doc:"key in [limits]"`
	Used     int64  `json:"used" doc:"current use of all programs of the user or tenant; memory and daemon_memory in bytes"`
	Limit    int64  `json:"limit" doc:"limit"`
	Refused  int64  `json:"refused" doc:"requests refused because of the limit"`
}

// The directions of an SA.
const (
	DirectionIn  = "in"
	DirectionOut = "out"
)

// SAState is an IPsec security association. It never includes the key.
type SAState struct {
	DeviceRef
	SPI       Key        `json:"spi" doc:"security parameters index, hexadecimal"`
	Direction string     `json:"direction" doc:"in or out"`
	Local     netip.Addr `json:"local" doc:"local address"`
	Remote    netip.Addr `json:"remote" doc:"remote address"`
	Mode      string     `json:"mode" doc:"transport or tunnel"`
	Algorithm string     `json:"algorithm" doc:"algorithm, by its strongSwan name"`
	ESN       bool       `json:"esn" doc:"extended sequence numbers (64 bits)"`
	Sending   bool       `json:"sending" doc:"used for new outgoing packets"`
	Packets   uint64     `json:"packets" doc:"packets carried"`
	Bytes     uint64     `json:"bytes" doc:"payload bytes carried"`
	Replayed  uint64     `json:"replayed" doc:"packets rejected by the replay window"`
	Forged    uint64     `json:"forged" doc:"packets with a wrong ICV"`
}

// PeerState counts the connections of a peer or its network.
type PeerState struct {
	Prefix      string `json:"prefix" doc:"an IPv4 address or an IPv6 /64, or a network: an IPv4 /24 or an IPv6 /48; others: all without an account"`
	HalfOpen    int    `json:"half_open" doc:"TCP handshakes in progress"`
	Startup     int    `json:"startup" doc:"MPA start-ups in progress"`
	Connections int    `json:"connections" doc:"established connections"`
	Refused     uint64 `json:"refused" doc:"connections refused because of a limit"`
}

// Statistic is a group of counters. Their names are those of Go's struct fields in snake case.
type Statistic struct {
	Port
	Queue    *int              `json:"queue,omitempty" doc:"queue of the device, for stack, listen and ring"`
	Session  uint64            `json:"session,omitempty" doc:"session that owns the queue pair"`
	QP       Handle            `json:"lqpn,omitempty" doc:"queue pair; if absent, rdma, mpa and tcp are sums over all queue pairs, including closed ones"`
	Export   string            `json:"export,omitempty" doc:"export that owns the queue pair, or whose transfers are counted"`
	Remote   netip.AddrPort    `json:"remote,omitzero" doc:"peer address of the queue pair"`
	Part     string            `json:"part" doc:"steering, stack, listen, ring, port_mapper, contained, watch, link, ipsec, transfer, rdma, mpa or tcp"`
	What     string            `json:"what,omitempty" doc:"what a watch follows"`
	Counters map[string]uint64 `json:"counters" doc:"counters by name"`
}

// SameAs reports whether v and w are equal in Queue, Part and What. Their device and owner may differ.
func (v *Statistic) SameAs(w *Statistic) bool {
	sameQueue := v.Queue == w.Queue || v.Queue != nil && w.Queue != nil && *v.Queue == *w.Queue
	return sameQueue && v.Part == w.Part && v.What == w.What
}

// Statistics are all groups of counters.
type Statistics []Statistic

// Values returns the counters of a part of a device, summed over its queues. It returns nil if there are none.
func (l Statistics) Values(device, part string) (sum map[string]uint64) {
	for i := range l {
		if v := &l[i]; v.Device == device && v.Part == part {
			AddCounters(&sum, v.Counters)
		}
	}
	return sum
}

// AddCounters adds the counters v of another object of the same kind to *sum, and makes that map if it is nil.
func AddCounters(sum *map[string]uint64, v map[string]uint64) {
	if *sum == nil && v != nil {
		*sum = make(map[string]uint64, len(v))
	}
	for key, n := range v {
		(*sum)[key] += n
	}
}

// Counters returns the integer fields of a struct, including atomic and nested ones, by their names in snake case.
// It omits negative ones.
func Counters(v any) map[string]uint64 {
	m := map[string]uint64{}
	addCounters(m, reflect.Indirect(reflect.ValueOf(v)))
	return m
}

func addCounters(m map[string]uint64, v reflect.Value) {
	if v.Kind() != reflect.Struct {
		return
	}
	for t, f := range v.Fields() {
		if !t.IsExported() {
			continue
		}
		if f.CanAddr() {
			if n, ok := f.Addr().Interface().(*atomic.Uint64); ok {
				m[snake(t.Name)] = n.Load()
				continue
			}
		}
		switch {
		case f.Kind() == reflect.Struct:
			addCounters(m, f)
		case f.CanUint():
			m[snake(t.Name)] = f.Uint()
		case f.CanInt() && f.Int() >= 0:
			m[snake(t.Name)] = uint64(f.Int())
		}
	}
}

// snake converts "RxFrames" to "rx_frames" and "NoHop" to "no_hop"; a run of capitals is one word.
func snake(s string) string {
	var b strings.Builder
	r := []rune(s)
	for i, c := range r {
		plural := i+1 < len(r) && r[i+1] == 's' && (i+2 == len(r) || unicode.IsUpper(r[i+2])) // the s of FPDUs
		if unicode.IsUpper(c) && i > 0 && (!unicode.IsUpper(r[i-1]) || i+1 < len(r) &&
			unicode.IsLower(r[i+1]) && !plural) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}
