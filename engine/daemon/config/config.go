// Package config reads the configuration of the daemon from a TOML file, environment variables and flags. The comments
// of the default file, default.toml, are its manual.
package config

import (
	"net/netip"
	"reflect"
	"time"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/control"
	"xwarp/tcp/tick"
)

// Config has all keys. default.toml documents them.
type Config struct {
	Daemon    Daemon      `toml:"daemon"`
	Interface []Interface `toml:"interface"`
	MPA       MPA         `toml:"mpa"`
	HTTP      HTTP        `toml:"http"`
	Limits    Limits      `toml:"limits"`
	Tenants   Tenants     `toml:"tenants"`
	Peers     Peers       `toml:"peers"`
	User      []User      `toml:"user"`
	Peer      []Peer      `toml:"peer"`
	Export    []Export    `toml:"export"`
}

// Daemon is the table [daemon]: the sockets, the log, the shutdown and the rights of the process.
type Daemon struct {
	Socket       string   `toml:"socket"`
	SocketGroup  string   `toml:"socket_group"`
	SocketMode   FileMode `toml:"socket_mode"`
	AdminSocket  string   `toml:"admin_socket"`
	LogLevel     string   `toml:"log_level" reload:"yes"`
	LogFormat    string   `toml:"log_format"`
	Grace        Duration `toml:"grace" reload:"yes"`
	Stall        Duration `toml:"stall"`
	DropRights   bool     `toml:"drop_rights"`
	Clients      int      `toml:"clients" reload:"yes"`
	Capture      bool     `toml:"capture"`
	CaptureGroup string   `toml:"capture_group" reload:"yes"`
	Confirm      AutoTime `toml:"confirm"`
}

// OperatorSocket returns the path of the operator socket, or "" for none.
func (d *Daemon) OperatorSocket() string {
	switch {
	case d.Socket == "":
		return ""
	case d.AdminSocket == AdminSocketAuto:
		return control.OperatorPath(d.Socket)
	}
	return d.AdminSocket
}

// AdminSocketAuto selects the path that control.OperatorPath returns for the control socket.
const AdminSocketAuto = "auto"

// HTTP configures the server of metrics and the status page.
type HTTP struct {
	Listen     string   `toml:"listen"`
	StatusPage bool     `toml:"status_page"`
	Hosts      []string `toml:"hosts"`
}

// Interface configures one device.
type Interface struct {
	Name       string   `toml:"name"`
	Transport  string   `toml:"transport"`
	Queues     []int    `toml:"queues"`
	CPUs       []int    `toml:"cpus"`
	XDPMode    string   `toml:"xdp_mode"`
	RingMode   string   `toml:"ring_mode"`
	Transmit   string   `toml:"transmit"`
	Restart    string   `toml:"restart"`
	PortMapper string   `toml:"port_mapper"`
	MTU        int      `toml:"mtu"`
	RxFrames   int      `toml:"rx_frames"`
	TxFrames   int      `toml:"tx_frames"`
	HugePages  bool     `toml:"huge_pages"`
	Idle       string   `toml:"idle"`
	BusyPoll   Duration `toml:"busy_poll"`
	PollNIC    bool     `toml:"poll_nic"`
	Window     Size     `toml:"window"`
	DSCP       int      `toml:"dscp"`
	HopLimit   int      `toml:"hop_limit"`
	IPsec      []IPsec  `toml:"ipsec" reload:"yes"`
	// Allow has the prefixes of peers that the steering program accepts. Empty means all.
	Allow []netip.Prefix `toml:"allow" reload:"yes"`
}

// MPA has the settings of the MPA layer of connections. A [[peer]] table can override the fields up to Retry.
type MPA struct {
	Revision         int      `toml:"revision" reload:"yes"`
	Markers          bool     `toml:"markers" reload:"yes"`
	CRC              bool     `toml:"crc" reload:"yes"`
	AnyCRCError      bool     `toml:"any_crc_error" reload:"yes"`
	PeerToPeer       bool     `toml:"peer_to_peer" reload:"yes"`
	Retry            bool     `toml:"retry" reload:"yes"`
	Override         []string `toml:"override" reload:"yes"`
	StartupTimeout   Duration `toml:"startup_timeout"`
	FirstFPDUTimeout Duration `toml:"first_fpdu_timeout"`
	FPDUTimeout      Duration `toml:"fpdu_timeout"`
	CloseTimeout     Duration `toml:"close_timeout"`
}

// Limits has the maximum of each resource that one local user may hold.
type Limits struct {
	Sessions     int      `toml:"sessions" reload:"yes"`
	PDs          int      `toml:"pds" reload:"yes"`
	MRs          int      `toml:"mrs" reload:"yes"`
	Memory       Size     `toml:"memory" reload:"yes"`
	CQs          int      `toml:"cqs" reload:"yes"`
	Completions  int      `toml:"completions" reload:"yes"`
	SRQs         int      `toml:"srqs" reload:"yes"`
	QPs          int      `toml:"qps" reload:"yes"`
	WorkRequests int      `toml:"work_requests" reload:"yes"`
	Listeners    int      `toml:"listeners" reload:"yes"`
	DaemonMemory Size     `toml:"daemon_memory" reload:"yes"`
	Connects     int      `toml:"connects" reload:"yes"`
	ConnectRate  int      `toml:"connect_rate" reload:"yes"`
	Ports        []string `toml:"ports" reload:"yes"`
	Wildcard     bool     `toml:"wildcard" reload:"yes"`
	DSCP         int      `toml:"dscp" reload:"yes"`
}

// Tenants configures the tenants, such as pods, each with its own control socket and limits.
type Tenants struct {
	Count     int    `toml:"count"`
	Directory string `toml:"directory"`
}

// TenantUser is the name of the [[user]] table with the limits of each tenant.
const TenantUser = budget.TenantTable

// Overridable are the possible values of mpa.override: the keys that the operator may let programs change for their own
// connections.
var Overridable = []string{"revision", "markers", "crc", "any_crc_error", "peer_to_peer", "retry"}

// User overrides limits for one user. An absent key keeps the value of Limits.
type User struct {
	Name         string   `toml:"name"`
	Sessions     *int     `toml:"sessions"`
	PDs          *int     `toml:"pds"`
	MRs          *int     `toml:"mrs"`
	Memory       *Size    `toml:"memory"`
	CQs          *int     `toml:"cqs"`
	Completions  *int     `toml:"completions"`
	SRQs         *int     `toml:"srqs"`
	QPs          *int     `toml:"qps"`
	WorkRequests *int     `toml:"work_requests"`
	Listeners    *int     `toml:"listeners"`
	DaemonMemory *Size    `toml:"daemon_memory"`
	Connects     *int     `toml:"connects"`
	ConnectRate  *int     `toml:"connect_rate"`
	Ports        []string `toml:"ports"`
	Wildcard     *bool    `toml:"wildcard"`
	DSCP         *int     `toml:"dscp"`
}

// Peers has the limits of each remote address and, in the fields that begin with Network, of all addresses in one IPv4
// /24 or IPv6 /48. A [[peer]] table overrides those of an address. 0 means no limit.
type Peers struct {
	HalfOpen           int      `toml:"half_open" reload:"yes"`
	Startup            int      `toml:"startup" reload:"yes"`
	Connections        int      `toml:"connections" reload:"yes"`
	ConnectionRate     int      `toml:"connection_rate" reload:"yes"`
	NetworkHalfOpen    int      `toml:"network_half_open" reload:"yes"`
	NetworkStartup     int      `toml:"network_startup" reload:"yes"`
	NetworkConnections int      `toml:"network_connections" reload:"yes"`
	Keepalive          Duration `toml:"keepalive"`
}

// Peer overrides settings and limits for the remote addresses of a prefix. The longest matching prefix applies.
type Peer struct {
	Prefix      netip.Prefix `toml:"prefix"`
	Allow       *bool        `toml:"allow"`
	Revision    *int         `toml:"revision"`
	Markers     *bool        `toml:"markers"`
	CRC         *bool        `toml:"crc"`
	AnyCRCError *bool        `toml:"any_crc_error"`
	PeerToPeer  *bool        `toml:"peer_to_peer"`
	Retry       *bool        `toml:"retry"`
	// limits; 0 keeps the value of Peers
	HalfOpen       int `toml:"half_open"`
	Startup        int `toml:"startup"`
	Connections    int `toml:"connections"`
	ConnectionRate int `toml:"connection_rate"`
}

// Export is a listener of the daemon that serves a memory region or a directory to peers.
type Export struct {
	Name        string         `toml:"name"`
	Interface   string         `toml:"interface"`
	Listen      Address        `toml:"listen"`
	Serve       string         `toml:"serve"`
	Memory      string         `toml:"memory"`
	Path        string         `toml:"path"`
	Size        Size           `toml:"size"`
	Access      string         `toml:"access"`
	Allow       []netip.Prefix `toml:"allow"`
	Connections int            `toml:"connections"`
	DSCP        int            `toml:"dscp"`
}

// isFile reports whether an export needs exclusive use of a file.
func (e *Export) isFile() bool { return e.Serve != ServeDirectory && e.Memory == MemoryFile }

// Values of the keys of [[interface]] and [[export]].
const (
	TransportXDP    = "xdp"
	TransportKernel = "kernel"

	MemoryAnonymous = "anonymous"
	MemoryHugePages = "hugepages"
	MemoryFile      = "file"

	ServeMemory    = "memory"
	ServeDirectory = "directory"

	AccessRead      = "read"
	AccessWrite     = "write"
	AccessReadWrite = "read-write"
)

// LimitsOf returns the limits of a user. The UIDs of [[user]] tables with a user name were looked up when the file was
// read.
func (l *Loaded) LimitsOf(uid uint32) Limits {
	return l.limits(func(u *User) bool { id, ok := l.uids[u.Name]; return ok && id == uid })
}

// TenantLimits returns the limits of each tenant.
func (l *Loaded) TenantLimits() Limits {
	return l.limits(func(u *User) bool { return u.Name == TenantUser })
}

// HolderLimits returns the limits of the holder of an account.
func (l *Loaded) HolderLimits(h budget.Holder) Limits {
	if h.Tenant != "" {
		return l.TenantLimits()
	}
	return l.LimitsOf(h.UID)
}

// limits returns the values of [limits], overridden by the [[user]] tables that match.
func (l *Loaded) limits(match func(*User) bool) Limits {
	v := l.Limits
	for i := range l.User {
		if u := &l.User[i]; match(u) {
			override(&v, u)
		}
	}
	return v
}

// Of returns the limit of a kind that has a key in [limits], and 0 for other kinds.
func (l *Limits) Of(k budget.Kind) int64 {
	for f, v := range reflect.ValueOf(l).Elem().Fields() {
		if key(f) == k.String() {
			return v.Int()
		}
	}
	return 0
}

// Amounts returns the limits by kind. Mappings and descriptors have no limit of their own: for them it returns the most
// that all objects within the limits can need.
func (l *Limits) Amounts() (a budget.Amounts) {
	for k := range budget.Limited {
		a[k] = l.Of(k)
	}
	return a.Needs()
}

// override copies the set fields of the struct that given points to, to the fields with the same names of the struct
// that table points to. It ignores fields that table lacks.
func override(table, given any) {
	for f, v := range reflect.ValueOf(given).Elem().Fields() {
		field := reflect.ValueOf(table).Elem().FieldByName(f.Name)
		switch {
		case !field.IsValid() || v.IsZero():
		case v.Kind() == reflect.Pointer:
			field.Set(v.Elem())
		default:
			field.Set(v)
		}
	}
}

// PeerOf returns the [[peer]] table with the longest prefix that contains a, or nil.
func (c *Config) PeerOf(a netip.Addr) *Peer {
	var best *Peer
	a = budget.Bare(a)
	for i := range c.Peer {
		if p := &c.Peer[i]; p.Prefix.Contains(a) &&
			(best == nil || p.Prefix.Bits() > best.Prefix.Bits()) {
			best = p
		}
	}
	return best
}

// Allowed reports whether connections with a are allowed.
func (c *Config) Allowed(a netip.Addr) bool {
	p := c.PeerOf(a)
	return p == nil || p.Allow == nil || *p.Allow
}

// PeerLimitsOf returns the limits of the peer with address a. A limit of its network is raised to the one that the
// [[peer]] table sets for a single peer, if it is lower.
func (c *Config) PeerLimitsOf(a netip.Addr) Peers {
	l := c.Peers
	p := c.PeerOf(a)
	if p == nil {
		return l
	}
	override(&l, p)
	for network, own := range map[*int]int{&l.NetworkHalfOpen: p.HalfOpen,
		&l.NetworkStartup: p.Startup, &l.NetworkConnections: p.Connections} {
		if *network > 0 {
			*network = max(*network, own)
		}
	}
	return l
}

// MPAOf returns the MPA settings of connections with a.
func (c *Config) MPAOf(a netip.Addr) MPA {
	m := c.MPA
	if p := c.PeerOf(a); p != nil {
		override(&m, p)
	}
	return m
}

// D returns d as a time.Duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

// OrForever returns d as the limit of a wait: tick.Forever, which means no limit, if d is 0.
func (d Duration) OrForever() time.Duration {
	if d == 0 {
		return tick.Forever
	}
	return d.D()
}

// Values of Interface.PortMapper.
const (
	PortMapperOff    = "off"
	PortMapperAnswer = "answer" // answer peers that ask for the port of a listener here
	PortMapperAsk    = "ask"    // also ask the peer's port mapper before each connection to a peer
)

// Values of Interface.Restart: the reaction to a lost device once its interface is back.
const (
	RestartReopen = "reopen" // the daemon reopens it
	RestartExit   = "exit"   // the daemon exits, and its unit restarts it
	RestartNever  = "never"  // the operator restarts the daemon
)
