package verbs

import (
	"xwarp/ddp/rdmap"
	"xwarp/mpa"
	"xwarp/tcp"
)

// Transport says how a device moves bytes.
type Transport struct {
	Name      string // "xdp" or "kernel", of a daemon's device too
	Daemon    bool   // the device is a daemon's
	Interface string
	XDPMode   string // "native" or "generic"
	Transmit  string // "xdp", "packet-gso" or "xdp-live"
	Way       string // how segments leave now, in packets of what size, and why; empty on the kernel's sockets
	Copy      string // "copy" or "zero-copy"
	Segments  int    // chunks that a received frame may span; 1 with zero-copy where the MTU allows it
	MTU       int
	Queues    int
	Fallback  error // why native mode could not be had
	// NoZeroCopy is why zero-copy could not be had, when the configuration leaves that to the driver.
	NoZeroCopy error
	BusyPoll   string // "on", or why the workers do not poll the NIC; empty on the kernel's sockets
}

// ConnInfo is the state of a connection for people and tests.
type ConnInfo struct {
	State rdmap.State
	// Transport is "xdp" or "kernel". A device on AF_XDP has connections to addresses of its own host on the kernel's
	// sockets.
	Transport string
	MPA       mpa.ReceiverStats
	Counters  rdmap.Counters
	TCP       *TCPInfo // nil on the kernel's sockets
}

// TCPInfo is the state and the counters of the engine's own TCP for one connection. Its durations are of the type
// time.Duration, which tick.Duration names.
type TCPInfo struct {
	tcp.Info
	tcp.Counters
}
