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

// Snapshot is the state of the daemon at about one moment. Who does not come through the operator's
// socket sees only what is his own.
type Snapshot struct {
	Schema    int               `json:"schema"`
	Time      time.Time         `json:"time"`
	Pid       int               `json:"pid"`
	Version   string            `json:"version,omitempty"`
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
	Peers     []PeerState       `json:"peers,omitempty"`  // those with the most connections; for root only
	Counters  map[string]uint64 `json:"counters"`         // of the daemon itself
	Events    []EventRecord     `json:"events,omitempty"` // the latest ones, the oldest first; for the operator only
	// Unconfirmed is the time after which everything is undone unless a confirmation comes. Zero means no wait.
	Unconfirmed float64 `json:"unconfirmed_seconds,omitempty"`
	Places      int     `json:"places"` // for programs at the control socket, of all users
	// Tenants are how many control sockets there are below TenantDirectory.
	Tenants         int    `json:"tenants"`
	TenantDirectory string `json:"tenant_directory,omitempty"`
}

// DeviceState is a device with its workers. Counters have the names of their fields in xdp.Stats, in snake case.
type DeviceState struct {
	DeviceInfo
	Workers  []WorkerState     `json:"workers,omitempty"`
	Steering map[string]uint64 `json:"steering,omitempty"` // frames by what the steering program did
	Unowned  map[int]uint64    `json:"unowned,omitempty"`  // frames of drop_no_socket by receive queue
	Watches  []WatchState      `json:"watches,omitempty"`
	Totals   *TotalsState      `json:"totals,omitempty"` // nil: the device does not answer
	Link     *LinkState        `json:"link,omitempty"`   // nil on the kernel's sockets
	IPsec    *IPsecState       `json:"ipsec,omitempty"`  // nil without IPsec
	// PortMapper answers peers, and asks theirs.
	PortMapper *PortMapperState `json:"port_mapper"`
	// Reopened is how often it was opened again, because its interface had gone or it had failed.
	Reopened uint64 `json:"reopened"`
	// Contained counts what ended a part of the device and nothing else: engine.Contained.
	Contained map[string]uint64 `json:"contained"`
	// what the device knows no more of the kernel's configuration; empty: all is well
	Health string `json:"health,omitempty"`
	Error  string `json:"error,omitempty"` // why there are no counters
}

// States of a network interface.
const (
	LinkUp        = "up"
	LinkDown      = "down"       // ip link set down
	LinkNoCarrier = "no-carrier" // nobody is at the other end
	LinkGone      = "gone"       // removed, or in another namespace
)

// LinkState is the network interface under a device.
type LinkState struct {
	State    string            `json:"state"`
	MTU      int               `json:"mtu"`
	Since    time.Time         `json:"since"`             // of the last change of the state; zero: none
	Missing  []netip.Addr      `json:"missing,omitempty"` // of connections and listeners, and the host has them no more
	Counters map[string]uint64 `json:"counters"`          // engine.LinkCounters
}

// IPsecState is the IPsec of a device.
type IPsecState struct {
	Counters map[string]uint64 `json:"counters"`          // xdp.IPsecStats
	SAs      []SAState         `json:"sas"`               // for the operator only
	Waiting  []netip.Addr      `json:"waiting,omitempty"` // hosts to which packets wait for an SA
	Error    string            `json:"error,omitempty"`   // why an SA was refused last, or a request failed
	ErrorAt  time.Time         `json:"error_at"`
}

// Count returns the number of SAs to receive and to send with.
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

// SAState is a security association of IPsec. Its key is nowhere.
type SAState struct {
	Device    string     `json:"device"`
	Local     netip.Addr `json:"local"`
	Remote    netip.Addr `json:"remote"`
	SPI       uint32     `json:"spi"`
	Direction string     `json:"direction"` // DirectionIn or DirectionOut
	Sending   bool       `json:"sending"`   // new packets leave by it
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
	Error    string            `json:"error,omitempty"` // why nobody is answered
	Counters map[string]uint64 `json:"counters"`        // portmapper.Counters
}

// TotalsState is what all connections of a device counted, those that ended included. It never falls.
type TotalsState struct {
	RDMA map[string]uint64 `json:"rdma"`
	MPA  map[string]uint64 `json:"mpa"`
	TCP  map[string]uint64 `json:"tcp,omitempty"` // nothing on the kernel's sockets
}

// WorkerState is one worker: one queue.
type WorkerState struct {
	Queue  int               `json:"queue"`
	Stack  map[string]uint64 `json:"stack"`
	Listen map[string]uint64 `json:"listen"`
	Ring   map[string]uint64 `json:"ring"`
	Live   map[string]uint64 `json:"live,omitempty"` // with transmit xdp-live
}

// WatchState is one part of the kernel's configuration that a device follows.
type WatchState struct {
	Name     string            `json:"name"`
	Counters map[string]uint64 `json:"counters"`
}

// Owner says whose an object is: a session, or the export of that name.
type Owner struct {
	Session uint64 `json:"session,omitempty"`
	Export  string `json:"export,omitempty"`
	UID     uint32 `json:"uid"`
	Tenant  string `json:"tenant,omitempty"` // through whose socket the program came
	Pid     int32  `json:"pid,omitempty"`
	Device  string `json:"device"`
}

// Place returns the device that the object is on.
func (o Owner) Place() string { return o.Device }

// SessionState is one program.
type SessionState struct {
	Owner
	Program string    `json:"program,omitempty"`
	Since   time.Time `json:"since"`
	Ending  bool      `json:"ending,omitempty"` // it is over but for the close of descriptors that the program passed
}

// ExportState is one exported region.
type ExportState struct {
	Name        string `json:"name"`
	Device      string `json:"device"`
	Listen      string `json:"listen"` // ":7174": all of IPv4 and all of IPv6
	Serve       string `json:"serve"`
	Memory      string `json:"memory"`
	Path        string `json:"path,omitempty"`
	Size        int64  `json:"size"`           // of a directory: the limit, 0 for none
	Used        int64  `json:"used,omitempty"` // by the files of a directory
	Access      string `json:"access"`
	Connections int    `json:"connections"`
	Rejected    uint64 `json:"rejected"`
	Flushes     uint64 `json:"flushes"`
	// Transfers are the counters of what serves puts and gets; nil for memory.
	Transfers map[string]uint64 `json:"transfers,omitempty"`
	// why it failed: connections are rejected until a reload opens it again
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

// MRState is a memory region. STag is shown to its owner and to the operator.
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
	Posted int    `json:"posted"` // receives that wait
	Limit  int    `json:"limit"`  // the program gets an event when fewer are left; 0: none
	Users  int    `json:"users"`  // queue pairs
}

// QPState is a queue pair and its connection.
type QPState struct {
	Owner
	Handle Handle         `json:"handle"`
	Number uint32         `json:"qp_num,omitempty"` // of programs: unique in the daemon
	PD     Handle         `json:"pd"`
	SendCQ Handle         `json:"send_cq"`
	RecvCQ Handle         `json:"recv_cq"`
	SRQ    Handle         `json:"srq,omitempty"`
	State  string         `json:"state"`
	Local  netip.AddrPort `json:"local"`
	Remote netip.AddrPort `json:"remote"`
	// Transport is of the connection: "kernel" also on a device on AF_XDP, where it does not leave the host.
	Transport string            `json:"transport,omitempty"`
	Error     string            `json:"error,omitempty"`
	Counters  map[string]uint64 `json:"counters,omitempty"`
	MPA       map[string]uint64 `json:"mpa,omitempty"`
	TCP       map[string]uint64 `json:"tcp,omitempty"`
	TCPState  string            `json:"tcp_state,omitempty"`
}

// ListenerState is a listener of a program.
type ListenerState struct {
	Owner
	Handle Handle         `json:"handle"`
	Addr   netip.AddrPort `json:"addr"`
}

// UserState is the use of limits by a user, or by a tenant with all its users.
type UserState struct {
	UID    uint32           `json:"uid"` // 0 of a tenant
	Tenant string           `json:"tenant,omitempty"`
	Used   map[string]int64 `json:"used"`
	Limit  map[string]int64 `json:"limit"`
	// How often the limit was in the way.
	Refused map[string]int64 `json:"refused"`
}

// PeerState counts the connections of a peer or of its network.
type PeerState struct {
	Prefix      string `json:"prefix"` // "others" for all networks that have no account of their own
	HalfOpen    int    `json:"half_open"`
	Startup     int    `json:"startup"`     // connections whose MPA start-up is not done
	Connections int    `json:"connections"` // that are established
	Refused     uint64 `json:"refused"`     // since it was first seen lately
}

// Counters makes a map of the integer fields of a struct, atomic ones and nested ones included, with their names in
// snake case.
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

// snake turns "RxFrames" into "rx_frames" and "NoHop" into "no_hop"; runs of capitals are one word.
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
