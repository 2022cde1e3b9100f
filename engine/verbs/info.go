package verbs

import (
	"xwarp/ddp/rdmap"
	"xwarp/mpa"
	"xwarp/tcp"
)

// Transport describes how a device moves data.
type Transport struct {
	DeviceMode
	Daemon bool // the device belongs to a daemon
}

// DeviceMode is how a device reaches its network. On kernel sockets all fields but Name are zero or empty.
type DeviceMode struct {
	Name       string   `json:"transport" doc:"\"xdp\" or \"kernel\""`
	Interface  string   `json:"interface,omitempty" doc:"current name of the network interface"`
	Ifindex    int      `json:"ifindex,omitempty" doc:"index of the network interface"`
	Trunk      string   `json:"trunk,omitempty" doc:"network card whose sockets this VLAN uses"`
	VLAN       int      `json:"vlan,omitempty" doc:"identifier of this VLAN, if it uses its parent's sockets"`
	Members    []string `json:"members" doc:"members of this bond, whose sockets it uses"`
	Senders    []string `json:"senders" doc:"members on which this bond sends now"`
	XDPMode    string   `json:"xdp_mode,omitempty" doc:"\"native\" or \"generic\""`
	Beside     string   `json:"beside,omitempty" doc:"other programs in libxdp's dispatcher when xwarp joined it"`
	Transmit   string   `json:"transmit,omitempty" doc:"transmit path: \"xdp\" or \"packet-gso\""`
	Way        string   `json:"way,omitempty" doc:"current transmit path and packet size, and why"`
	Copy       string   `json:"copy,omitempty" doc:"\"copy\" or \"zero-copy\""`
	Segments   int      `json:"segments,omitempty" doc:"maximum chunks of a received frame"`
	MTU        int      `json:"mtu,omitempty" doc:"largest IP packet in bytes"`
	Queues     int      `json:"queues,omitempty" doc:"queues served"`
	Fallback   string   `json:"fallback,omitempty" doc:"why native mode is unavailable"`
	NoZeroCopy string   `json:"no_zero_copy,omitempty" doc:"why ring mode auto does not use zero-copy"`
	BusyPoll   string   `json:"busy_poll,omitempty" doc:"\"on\": the workers poll the NIC; else why not"`
}

// ConnInfo is the state of a connection, for people and tests.
type ConnInfo struct {
	State rdmap.State
	// Transport is "xdp" or "kernel". A device on AF_XDP uses kernel sockets for connections to addresses of its own
	// host.
	Transport string
	DSCP      int // class of the packets sent
	MPA       mpa.ReceiverStats
	Counters  rdmap.Counters
	TCP       *TCPInfo // nil if the connection is on a kernel socket
}

// TCPInfo is the state and counters of a connection on the engine's own TCP. Its durations are time.Duration, of which
// tick.Duration is an alias.
type TCPInfo struct {
	tcp.Info
	tcp.Counters
}
