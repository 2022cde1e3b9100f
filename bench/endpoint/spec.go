package endpoint

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"xwarp/bpf"
	"xwarp/engine/xdp"
	"xwarp/ring"
)

// Peer is the network stack that carries the bytes of a measurement.
type Peer string

// The peers.
const (
	XDP     Peer = "xdp"    // RDMA over the engine's own TCP on AF_XDP
	Layered Peer = "kernel" // RDMA with MPA over kernel TCP sockets
	Daemon  Peer = "daemon" // RDMA on a device of a daemon, on any transport
	TCP     Peer = "tcp"    // kernel sockets, no RDMA
	Raw     Peer = "raw"    // frames over AF_XDP by package ring, no protocol
	Asavie  Peer = "asavie" // frames over AF_XDP by github.com/asavie/xdp
	GSO     Peer = "gso"    // frames cut by the kernel's segmentation offload, received over AF_XDP
)

// Verb is the operation that is measured.
type Verb string

// The verbs.
const (
	Write     Verb = "write"
	Read      Verb = "read"
	Send      Verb = "send"
	WriteSend Verb = "write_send" // a Write, and a Send of 8 bytes that announces it
)

// Mode is the quantity that is measured.
type Mode string

// The modes.
const (
	Bandwidth Mode = "bw"
	Latency   Mode = "lat"     // ping-pong of one message
	Connect   Mode = "connect" // connections made and closed one after the other
)

// Spec is one measurement, the same for both ends except for the Peer.
type Spec struct {
	Peer          Peer `json:"peer"`
	ServerPeer    Peer `json:"server_peer,omitempty"` // the server's Peer; empty: Peer
	Verb          Verb `json:"verb"`
	Mode          Mode `json:"mode"`
	Size          int  `json:"size"`       // bytes of a message; for raw frames, of the IP packet
	Depth         int  `json:"tx_depth"`   // messages under way on one connection
	Conns         int  `json:"qps"`        // connections
	Moderation    int  `json:"cq_mod"`     // number of messages that share one completion
	Bidirectional bool `json:"bi"`         // both ends are sources
	Iterations    int  `json:"iterations"` // messages on each connection; 0: the test lasts for Duration
	// Warmup precedes the measurement; Duration is the measured time.
	Warmup   time.Duration `json:"warmup_ns"`
	Duration time.Duration `json:"duration_ns"`

	NoMarkers  bool `json:"no_markers,omitempty"`
	NoCRC      bool `json:"no_crc,omitempty"`
	NoPack     bool `json:"no_pack,omitempty"`
	StretchAck int  `json:"stretch_ack,omitempty"` // see xdp.TCPConfig; 0: the engine's choice
	Window     int  `json:"window,omitempty"`      // bytes; 0: the engine's own choice
	// Sleep lets idle workers and readers sleep. Otherwise they spin, if the peer supports that.
	Sleep bool `json:"sleep,omitempty"`
	// Idle is how workers on AF_XDP sleep; see xdp.Config.
	Idle xdp.Idle `json:"idle,omitempty"`
	// Collect keeps Go's default garbage collection. Otherwise the collector runs only at a large heap.
	Collect bool `json:"collect,omitempty"`
	// Transmit is how AF_XDP ends transmit; see xdp.Config.
	Transmit xdp.Transmit `json:"transmit,omitempty"`
	// XDPMode is where the program of AF_XDP ends runs; see xdp.Config. Raw frames choose it themselves.
	XDPMode bpf.Mode `json:"xdp_mode,omitempty"`
	// ESP, when not 0, makes AF_XDP ends encrypt by IPsec ESP with AES-GCM keys of that many bits. The keys are derived
	// from public values: use them for measurements only.
	ESP int `json:"esp,omitempty"`
	// Ring is the mode of AF_XDP sockets: whether the kernel copies frames; see ring.Mode.
	Ring ring.Mode `json:"ring,omitempty"`
	// Copy makes ends of raw frames copy payload from memory into frames and from frames to memory.
	Copy bool `json:"copy,omitempty"`
	// NoDelay sets TCP_NODELAY on plain kernel sockets.
	NoDelay bool `json:"no_delay,omitempty"`
	// Congestion is the congestion control of kernel sockets; empty: the host's.
	Congestion string `json:"congestion,omitempty"`
}

// Place is where an end runs: its interface, addresses and processor.
type Place struct {
	Interface string     `json:"interface"`        // the interface of AF_XDP, or the device of a daemon
	Socket    string     `json:"socket,omitempty"` // path of a daemon's socket; empty: the default path
	Queues    []int      `json:"queues,omitempty"` // queues that AF_XDP uses; none: all
	Local     netip.Addr `json:"local"`
	Remote    netip.Addr `json:"remote"`
	Port      uint16     `json:"port"` // of the server's listener; 0: any free port
	CPU       int        `json:"cpu"`  // processor of the worker or thread; below 0: any
	LocalMAC  string     `json:"local_mac,omitempty"`
	RemoteMAC string     `json:"remote_mac,omitempty"` // raw frames need it
}

// Defaults of a Spec and of the port. They are those of perftest, where it has such a setting.
const (
	DefaultSize       = 65536
	DefaultSizeLat    = 2
	DefaultDepth      = 128
	DefaultDepthRead  = 16
	DefaultIterations = 5000
	DefaultIterLat    = 1000
	DefaultPort       = 18515
)

// ErrSpec is wrapped by errors about a Spec.
var ErrSpec = errors.New("cannot be measured")

// Complete fills in the defaults and reports the first invalid setting.
func (s *Spec) Complete() error {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	set(&s.Conns, 1)
	set(&s.Moderation, 1)
	if s.Mode == Latency {
		set(&s.Size, DefaultSizeLat)
	}
	set(&s.Size, DefaultSize)
	set(&s.Depth, DefaultDepth)
	if s.Verb == "" {
		s.Verb = Write
	}
	if s.Iterations == 0 && s.Duration == 0 {
		s.Iterations = DefaultIterations
		if s.Mode == Latency {
			s.Iterations = DefaultIterLat
		}
	}
	if s.Iterations > 0 {
		s.Moderation = min(s.Moderation, s.Iterations)
	}
	s.Moderation = min(s.Moderation, max(1, s.Depth/2))
	switch {
	case s.Size < 1 || s.Size > MaxSize:
		return fmt.Errorf("%w: size %d is not in 1 to %d", ErrSpec, s.Size, MaxSize)
	case s.Conns < 1 || s.Conns > MaxConns:
		return fmt.Errorf("%w: %d connections are not in 1 to %d", ErrSpec, s.Conns, MaxConns)
	case s.Depth < 1 || s.Depth > MaxDepth:
		return fmt.Errorf("%w: depth %d is not in 1 to %d", ErrSpec, s.Depth, MaxDepth)
	case s.Moderation < 1:
		return fmt.Errorf("%w: completion moderation %d", ErrSpec, s.Moderation)
	case s.Mode == Latency && s.Conns > 1:
		return fmt.Errorf("%w: latency needs one connection", ErrSpec)
	case s.ESP != 0 && s.ESP != 128 && s.ESP != 256:
		return fmt.Errorf("%w: AES keys of %d bits, want 128 or 256", ErrSpec, s.ESP)
	case s.ESP != 0 && s.Peer != XDP:
		return fmt.Errorf("%w: ESP needs RDMA over AF_XDP", ErrSpec)
	case s.ServerPeer != "" && !(s.Peer.verbs() && s.ServerPeer.verbs()):
		return fmt.Errorf("%w: two different peers need RDMA", ErrSpec)
	case s.Bidirectional && (s.Mode != Bandwidth || !s.Peer.verbs()):
		return fmt.Errorf("%w: both directions at once need bandwidth by RDMA", ErrSpec)
	}
	return nil
}

// AtServer returns s with the server's Peer.
func (s Spec) AtServer() Spec {
	s.Peer = cmp.Or(s.ServerPeer, s.Peer)
	return s
}

// verbs reports whether p carries RDMA.
func (p Peer) verbs() bool { return p == XDP || p == Layered || p == Daemon }

// Frames reports whether p carries frames without any protocol.
func (p Peer) Frames() bool { return p == Raw || p == Asavie || p == GSO }

// buffers returns the number of message buffers of each connection, and the distance in bytes between them. A bandwidth
// test has one for each message under way, but no more than fit in MaxMemory and at least one. A ping-pong has two.
func (s *Spec) buffers() (n, stride int) {
	stride = (s.Size + 63) &^ 63
	if s.Mode == Latency {
		return 2, stride
	}
	n = max(1, min(s.Depth, MaxMemory/stride/s.Conns))
	return n, stride
}
