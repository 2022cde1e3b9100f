package control

import (
	"net/netip"
	"reflect"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
)

// SnapshotSchema is the version of Snapshot's layout.
const SnapshotSchema = 1

// Snapshot is the state of the daemon at about one moment. Except on the operator socket it has only the user's own
// objects.
type Snapshot struct {
	Schema  int       `json:"schema"`
	Time    time.Time `json:"time"`
	Pid     int       `json:"pid"`
	Version string    `json:"version,omitempty"`
	// Replaced is set if the file of xwarpd was replaced after its start, as an upgrade does.
	Replaced bool `json:"replaced,omitempty"`
	// Pending has the configuration keys that were changed by reloads and need a restart.
	Pending   []string          `json:"pending,omitempty"`
	Uptime    float64           `json:"uptime_seconds"`
	Devices   []DeviceState     `json:"devices"`
	Exports   []ExportState     `json:"exports"`
	Sessions  []SessionState    `json:"sessions"`
	PDs       []PDState         `json:"pds"`
	MRs       []MRState         `json:"mrs"`
	MWs       []MWState         `json:"mws"`
	CQs       []CQState         `json:"cqs"`
	SRQs      []SRQState        `json:"srqs"`
	QPs       []QPState         `json:"qps"`
	Listeners []ListenerState   `json:"listeners"`
	Users     []UserState       `json:"users"`
	Peers     []PeerState       `json:"peers,omitempty"`  // those with the most connections; operator only
	Counters  map[string]uint64 `json:"counters"`         // of the daemon itself
	Events    []EventRecord     `json:"events,omitempty"` // latest ones, oldest first; operator only
	// Unconfirmed is the time until the daemon rolls back without a confirmation. Zero means no wait.
	Unconfirmed float64 `json:"unconfirmed_seconds,omitempty"`
	Places      int     `json:"places"` // maximum number of programs on the control socket, of all users
	// Tenants is the number of control sockets below TenantDirectory.
	Tenants         int    `json:"tenants"`
	TenantDirectory string `json:"tenant_directory,omitempty"`
}

// DeviceState is a device with its workers. Counters have the names of their fields in xdp.Stats, in snake case.
type DeviceState struct {
	DeviceInfo
	// Addresses are those of the interface, IPv4 first, without link-local ones.
	Addresses []netip.Addr      `json:"addresses,omitempty"`
	Workers   []WorkerState     `json:"workers,omitempty"`
	Steering  map[string]uint64 `json:"steering,omitempty"` // frames by outcome of the steering program
	Unowned   map[int]uint64    `json:"unowned,omitempty"`  // frames of drop_no_socket, by receive queue
	Watches   []WatchState      `json:"watches,omitempty"`
	Totals    *TotalsState      `json:"totals,omitempty"` // nil if the device does not respond
	Link      *LinkState        `json:"link,omitempty"`   // nil on kernel sockets
	IPsec     *IPsecState       `json:"ipsec,omitempty"`  // nil without IPsec
	// PortMapper answers peers, and queries theirs.
	PortMapper *PortMapperState `json:"port_mapper"`
	// Reopened is how often it was reopened after a failure or the loss of its interface.
	Reopened uint64 `json:"reopened"`
	// Contained counts failures that ended only a part of the device: engine.Contained.
	Contained map[string]uint64 `json:"contained"`
	// parts of the kernel's configuration that may be stale; empty if none
	Health string `json:"health,omitempty"`
	Error  string `json:"error,omitempty"` // why there are no counters
}

// States of a network interface.
const (
	LinkUp        = "up"
	LinkDown      = "down"       // ip link set down
	LinkNoCarrier = "no-carrier" // no link partner
	LinkGone      = "gone"       // removed, or moved to another namespace
)

// LinkState is the network interface of a device.
type LinkState struct {
	State    string            `json:"state"`
	MTU      int               `json:"mtu"`
	Since    time.Time         `json:"since"`             // of the last change of the state; zero: none
	Missing  []netip.Addr      `json:"missing,omitempty"` // addresses in use that the host no longer has
	Counters map[string]uint64 `json:"counters"`          // xdp.LinkCounters
}

// IPsecState is the IPsec state of a device.
type IPsecState struct {
	Counters map[string]uint64 `json:"counters"`          // xdp.IPsecStats
	SAs      []SAState         `json:"sas"`               // operator only
	Waiting  []netip.Addr      `json:"waiting,omitempty"` // hosts to which packets wait for an SA
	Error    string            `json:"error,omitempty"`   // last reason why an SA was refused or a request failed
	ErrorAt  time.Time         `json:"error_at"`
}

// Count returns the number of SAs for receiving and for sending.
func (s *IPsecState) Count() (in, out int) {
	for i := range s.SAs {
		if s.SAs[i].Direction == DirectionIn {
			in++
		}
	}
	return in, len(s.SAs) - in
}

// The directions of an SA.
const (
	DirectionIn  = "in"
	DirectionOut = "out"
)

// SAState is an IPsec security association. It never includes the key.
type SAState struct {
	Device    string     `json:"device"`
	Local     netip.Addr `json:"local"`
	Remote    netip.Addr `json:"remote"`
	SPI       uint32     `json:"spi"`
	Direction string     `json:"direction"` // DirectionIn or DirectionOut
	Sending   bool       `json:"sending"`   // used for new packets
	Mode      string     `json:"mode"`
	KeyBits   int        `json:"key_bits"`
	ESN       bool       `json:"esn"`
	Packets   uint64     `json:"packets"`
	Bytes     uint64     `json:"bytes"`
	Replayed  uint64     `json:"replayed"`
	Forged    uint64     `json:"forged"`
}

// PortMapperState is the iWARP port mapper of a device.
type PortMapperState struct {
	Mode     string            `json:"mode"`            // port_mapper of the configuration
	Error    string            `json:"error,omitempty"` // why it does not answer
	Counters map[string]uint64 `json:"counters"`        // portmapper.Counters
}

// TotalsState has the counters of all connections of a device, including ended ones. They never decrease.
type TotalsState struct {
	RDMA map[string]uint64 `json:"rdma"`
	MPA  map[string]uint64 `json:"mpa"`
	TCP  map[string]uint64 `json:"tcp,omitempty"` // empty on kernel sockets
}

// WorkerState is the worker of one queue.
type WorkerState struct {
	Queue  int               `json:"queue"`
	Stack  map[string]uint64 `json:"stack"`
	Listen map[string]uint64 `json:"listen"`
	Ring   map[string]uint64 `json:"ring"`
}

// WatchState is a part of the kernel's configuration that a device follows.
type WatchState struct {
	Name     string            `json:"name"`
	Counters map[string]uint64 `json:"counters"`
}

// Owner identifies the owner of an object: a session, or the export of that name.
type Owner struct {
	Session uint64 `json:"session,omitempty"`
	Export  string `json:"export,omitempty"`
	UID     uint32 `json:"uid"`
	Tenant  string `json:"tenant,omitempty"` // on whose socket the program connected
	Pid     int32  `json:"pid,omitempty"`
	Device  string `json:"device"`
}

// Place returns the device of the object.
func (o Owner) Place() string { return o.Device }

// SessionState is one program.
type SessionState struct {
	Owner
	Program string    `json:"program,omitempty"`
	Since   time.Time `json:"since"`
	Ending  bool      `json:"ending,omitempty"` // ended, except for closing passed descriptors
}

// ExportState is one exported region.
type ExportState struct {
	Name        string `json:"name"`
	Device      string `json:"device"`
	Listen      string `json:"listen"` // ":7174": all of IPv4 and IPv6
	Serve       string `json:"serve"`
	Memory      string `json:"memory"`
	Path        string `json:"path,omitempty"`
	Size        int64  `json:"size"`           // of a directory: the limit, or 0 for none
	Used        int64  `json:"used,omitempty"` // by the files of a directory
	Access      string `json:"access"`
	Connections int    `json:"connections"`
	Rejected    uint64 `json:"rejected"`
	Flushes     uint64 `json:"flushes"`
	// Transfers are the counters of files stored and fetched; nil for memory.
	Transfers map[string]uint64 `json:"transfers,omitempty"`
	// why it failed: connections are rejected until a reload reopens it
	Error string `json:"error,omitempty"`
}

// PDState is a protection domain.
type PDState struct {
	Owner
	Handle Handle `json:"handle"`
	MRs    int    `json:"mrs"`
	MWs    int    `json:"mws"`
	SRQs   int    `json:"srqs"`
	QPs    int    `json:"qps"`
}

// MRState is a memory region. Only its owner and the operator see STag.
type MRState struct {
	Owner
	Handle Handle `json:"handle"`
	PD     Handle `json:"pd"`
	STag   uint32 `json:"stag"`
	Length uint64 `json:"length"`
	Access string `json:"access"`
}

// MWState is a memory window. A binding changes the last byte of its STag.
type MWState struct {
	Owner
	Handle Handle `json:"handle"`
	PD     Handle `json:"pd"`
	STag   uint32 `json:"stag"`
}

// CQState is a completion queue.
type CQState struct {
	Owner
	Handle      Handle `json:"handle"`
	Depth       int    `json:"depth"`
	Users       int    `json:"users"`
	Completions uint64 `json:"completions"`
	Overrun     bool   `json:"overrun"`
}

// SRQState is a shared receive queue.
type SRQState struct {
	Owner
	Handle Handle `json:"handle"`
	PD     Handle `json:"pd"`
	Depth  int    `json:"depth"`
	Posted int    `json:"posted"` // posted receives
	Limit  int    `json:"limit"`  // the program gets an event when fewer are posted; 0: none
	Users  int    `json:"users"`  // queue pairs
}

// QPState is a queue pair and its connection.
type QPState struct {
	Owner
	Handle Handle         `json:"handle"`
	Number uint32         `json:"qp_num,omitempty"` // number for programs, unique in the daemon
	PD     Handle         `json:"pd"`
	SendCQ Handle         `json:"send_cq"`
	RecvCQ Handle         `json:"recv_cq"`
	SRQ    Handle         `json:"srq,omitempty"`
	State  string         `json:"state"`
	Local  netip.AddrPort `json:"local"`
	Remote netip.AddrPort `json:"remote"`
	// Transport is that of the connection: also "kernel" on a device on AF_XDP, for a connection within the host.
	Transport string            `json:"transport,omitempty"`
	Error     string            `json:"error,omitempty"`
	Counters  map[string]uint64 `json:"counters,omitempty"`
	MPA       map[string]uint64 `json:"mpa,omitempty"`
	TCP       map[string]uint64 `json:"tcp,omitempty"`
	TCPState  string            `json:"tcp_state,omitempty"`
	DSCP      int               `json:"dscp,omitempty"` // class of the packets sent
}

// ListenerState is a listener of a program.
type ListenerState struct {
	Owner
	Handle Handle         `json:"handle"`
	Addr   netip.AddrPort `json:"addr"`
}

// UserState is the resource usage of a user, or of a tenant with all its users.
type UserState struct {
	UID    uint32           `json:"uid"` // 0 for a tenant
	Tenant string           `json:"tenant,omitempty"`
	Used   map[string]int64 `json:"used"`
	Limit  map[string]int64 `json:"limit"`
	// number of refusals
	Refused map[string]int64 `json:"refused"`
}

// PeerState counts the connections of a peer or its network.
type PeerState struct {
	Prefix      string `json:"prefix"` // "others" for all networks without an account
	HalfOpen    int    `json:"half_open"`
	Startup     int    `json:"startup"`     // connections in MPA start-up
	Connections int    `json:"connections"` // established connections
	Refused     uint64 `json:"refused"`     // since the account was created
}

// Counters returns the integer fields of a struct, including atomic and nested ones, by their names in snake case.
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
