package verbs

import (
	"xwarp/ddp/rdmap"
	"xwarp/mpa"
	"xwarp/tcp"
)

// Transport describes how a device moves data.
type Transport struct {
	Name      string   // "xdp" or "kernel", also for a daemon's device
	Daemon    bool     // the device belongs to a daemon
	Interface string   // its current name
	Ifindex   int      // zero on kernel sockets
	Trunk     string   // name of the interface whose sockets a VLAN uses; otherwise empty
	VLAN      int      // its identifier; 0 if the device is no VLAN, or does not use the sockets of its parent
	Members   []string // names of the members of a bond that uses their sockets
	Senders   []string // names of those on which it sends now
	XDPMode   string   // "native" or "generic"
	Beside    string   // the other programs in libxdp's dispatcher when xwarp joined it; empty without one
	Transmit  string   // "xdp" or "packet-gso"
	Way       string   // how segments are sent now, their packet size, and why; empty on kernel sockets
	Copy      string   // "copy" or "zero-copy"
	Segments  int      // maximum chunks of a received frame; 1 with zero-copy if the MTU allows it
	MTU       int      // bytes
	Queues    int
	Fallback  error // why native mode is not used; nil if it is
	// NoZeroCopy is why zero-copy is not used, if the configuration leaves the choice to the driver.
	NoZeroCopy error
	BusyPoll   string // "on", or why the workers do not poll the NIC; empty on kernel sockets
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
	TCP       *TCPInfo // nil on kernel sockets
}

// TCPInfo is the state and counters of a connection on the engine's own TCP. Its durations are time.Duration, of which
// tick.Duration is an alias.
type TCPInfo struct {
	tcp.Info
	tcp.Counters
}
