package matrix

import (
	"time"

	"xwarp/bench/endpoint"
	"xwarp/bench/process"
	"xwarp/bench/relay"
	"xwarp/bench/topo"
	"xwarp/bpf"
	"xwarp/engine/xdp"
)

// Variant is one measurement of a case, which is compared with the case's other variants.
type Variant struct {
	Name     string
	Spec     endpoint.Spec
	Offloads topo.Offloads // of both hosts
	IPv6     bool
	Beside   process.Load // load of another user on the same queue meanwhile; empty: none
}

// Metric is the quantity that is compared.
type Metric string

// The metrics.
const (
	Gbps     Metric = "Gbit/s"     // of messages
	Frames   Metric = "frames/s"   // of frames with payload
	Messages Metric = "messages/s" // or connections per second
	P50      Metric = "us p50"
	P99      Metric = "us p99"
	P999     Metric = "us p99.9"
	Longest  Metric = "us max"
	Busy     Metric = "us of the sender's processor for a frame"
	Cost     Metric = "ns of processor for a MiB, both ends"
	Turn     Metric = "us of processor for a message, both ends"
	Held     Metric = "bytes held"
)

// Case is a set of measurements on the same topology that are compared with each other.
type Case struct {
	Name     string
	Title    string
	MTU      int
	Path     *relay.Config // the relay between the hosts; nil for none
	Metric   Metric        // the main metric; the report shows the others beside it
	Variants []Variant
	Daemons  bool // each host runs an xwarpd
	Rounds   int  // number of rounds; 0: that of Config and More
	More     int  // additional rounds, for cases with targets
}

// The rounds and times of one run of the standard matrix.
const (
	warmup        = 60 * time.Millisecond
	duration      = 250 * time.Millisecond // short, so that the variants of a comparison run close in time
	lossyDuration = time.Second            // duration over a bad path: congestion control needs many round trips
	mebibyte      = 1 << 20
	// neighbourly is long enough that the 99th percentile covers many turns of the scheduler.
	neighbourly = 2 * time.Second
	steady      = 30 * time.Second
	extraRounds = 2 // additional rounds of cases in which noise could decide whether a target is reached
)

// Offload settings that variants use. A native XDP program on one end of a veth switches TSO off at the other end,
// whatever the setting. A generic program does not.
var (
	asTheyCome = topo.Offloads{TxChecksum: topo.On, TSO: topo.On, GSO: topo.On, GRO: topo.Off} // veth's defaults
	sameFrames = topo.Offloads{TxChecksum: topo.On, TSO: topo.Off, GSO: topo.Off, GRO: topo.Off}
	noOffloads = topo.NoOffloads
)

// Names of variants that ratios refer to.
const (
	ours      = "xwarp"
	ourBare   = "xwarp, no markers"
	ourNoCRC  = "xwarp, no CRC"
	ourV6     = "xwarp, IPv6"
	layered   = "MPA over kernel TCP"
	layeredAs = "MPA over kernel TCP with its offloads"
	fromOther = "MPA over kernel TCP to xwarp as it comes"
	toOther   = "xwarp as it comes to MPA over kernel TCP"
	kernelAll = "kernel TCP"
	kernelCut = "kernel TCP, no TSO/GSO/GRO"
	kernelSum = "kernel TCP, no offloads"
	rawRing   = "raw AF_XDP"
	rawCopy   = "raw AF_XDP, payload copied at both ends"
	rawAsavie = "raw AF_XDP, asavie/xdp"

	ourAuto   = "xwarp as it comes" // transmit auto, with the offloads of a fresh veth
	autoBare  = "xwarp as it comes, no markers"
	ourCut    = "xwarp, transmit auto" // without offloads: the kernel cuts blocks into frames
	ourGSO    = "xwarp, no markers, segmentation offload"
	ourMarked = "xwarp, segmentation offload"
	ourESP    = "xwarp, no markers, ESP with AES-128"
	ourESP256 = "xwarp, no markers, ESP with AES-256"
)

// timed returns s with the standard warm-up, duration and congestion control.
func timed(s endpoint.Spec) endpoint.Spec {
	s.Warmup, s.Duration = warmup, duration
	s.Congestion = "cubic" // which the engine's TCP uses too
	return s
}

// bw returns a bandwidth test of one connection. At most 2 MiB are under way, in 8 to 4096 messages, so that TCP does
// not run out of data while completions are on their way; of Reads, 16 messages are.
func bw(p endpoint.Peer, v endpoint.Verb, size int) endpoint.Spec {
	s := timed(endpoint.Spec{Peer: p, Verb: v, Mode: endpoint.Bandwidth, Size: size})
	s.Depth = min(4096, max(8, 2*mebibyte/size))
	s.Moderation = max(1, min(64, 16384/size))
	if v == endpoint.Read {
		s.Depth = 16
		s.Moderation = 1
	}
	return s
}

// writes returns a bandwidth test by Writes.
func writes(p endpoint.Peer, size int) endpoint.Spec { return bw(p, endpoint.Write, size) }

// lat returns a latency test.
func lat(p endpoint.Peer, v endpoint.Verb, size int) endpoint.Spec {
	return timed(endpoint.Spec{Peer: p, Verb: v, Mode: endpoint.Latency, Size: size})
}

// raw returns a bandwidth test of frames that carry IP packets of mtu bytes.
func raw(p endpoint.Peer, mtu int) endpoint.Spec {
	return timed(endpoint.Spec{Peer: p, Mode: endpoint.Bandwidth, Size: mtu})
}

// option changes a Spec.
type option func(*endpoint.Spec)

func noMarkers(s *endpoint.Spec)   { s.NoMarkers = true }
func noCRC(s *endpoint.Spec)       { s.NoCRC = true }
func noPack(s *endpoint.Spec)      { s.NoPack = true }
func noDelay(s *endpoint.Spec)     { s.NoDelay = true }
func bothWays(s *endpoint.Spec)    { s.Bidirectional = true }
func sleeping(s *endpoint.Spec)    { s.Sleep = true }
func sleepAtOnce(s *endpoint.Spec) { s.Sleep, s.Idle = true, xdp.IdleSleep }
func withESP128(s *endpoint.Spec)  { s.ESP = 128 }
func withESP256(s *endpoint.Spec)  { s.ESP = 256 }
func copying(s *endpoint.Spec)     { s.Copy = true }
func withGSO(s *endpoint.Spec)     { s.Transmit = xdp.TransmitGSO }
func auto(s *endpoint.Spec)        { s.Transmit = xdp.TransmitAuto }
func native(s *endpoint.Spec)      { s.XDPMode = bpf.ModeNative }
func generic(s *endpoint.Spec)     { s.XDPMode = bpf.ModeGeneric }
func toXDP(s *endpoint.Spec)       { s.ServerPeer = endpoint.XDP }
func toLayered(s *endpoint.Spec)   { s.ServerPeer = endpoint.Layered }

// variant returns a Variant that measures s, changed by options.
func variant(name string, s endpoint.Spec, options ...option) Variant {
	for _, o := range options {
		o(&s)
	}
	return Variant{Name: name, Spec: s}
}

// on returns v with the offloads o at both hosts.
func (v Variant) on(o topo.Offloads) Variant {
	v.Offloads = o
	return v
}

func (v Variant) beside(l process.Load) Variant {
	v.Beside = l
	return v
}

func (v Variant) overIPv6() Variant {
	v.IPv6 = true
	return v
}
