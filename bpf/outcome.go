package bpf

import "fmt"

// Outcome is the program's decision on a frame. Every frame has exactly one outcome.
type Outcome uint32

// The outcomes, in the order of enum outcome in maps.h. Frames with the outcomes up to ESP went to a socket, those with
// the next ones up to DropClear were dropped, and the others went to the kernel.
const (
	Flow     = Outcome(steerOutcomeOUTCOME_FLOW)     // segment of an exact flow
	Listener = Outcome(steerOutcomeOUTCOME_LISTENER) // segment to a listener
	Fragment = Outcome(steerOutcomeOUTCOME_FRAGMENT) // later fragment of a steered datagram
	// ICMP error that quotes a segment or an ESP packet of the engine
	ICMP         = Outcome(steerOutcomeOUTCOME_ICMP)
	ESP          = Outcome(steerOutcomeOUTCOME_ESP)            // packet of an SA of the engine
	DropNoSocket = Outcome(steerOutcomeOUTCOME_DROP_NO_SOCKET) // claimed, but the receive queue has no socket
	// to a listener, from an address that SetPeers excludes
	DropPeer = Outcome(steerOutcomeOUTCOME_DROP_PEER)
	// SYN to a listener, beyond the rate limit
	DropSYN = Outcome(steerOutcomeOUTCOME_DROP_SYN)
	// segment to a listener that follows no admitted SYN, or an ICMP error about one, beyond the rate limit
	DropStray = Outcome(steerOutcomeOUTCOME_DROP_STRAY)
	// unencrypted segment of a flow or to a listener, from an address of SetProtected
	DropClear   = Outcome(steerOutcomeOUTCOME_DROP_CLEAR)
	PassNoMatch = Outcome(steerOutcomeOUTCOME_PASS_NO_MATCH) // TCP without a matching flow or listener
	// TCP to the port of a listener for any address, but at an address of another host
	PassNotLocal = Outcome(steerOutcomeOUTCOME_PASS_NOT_LOCAL)
	// TCP without a matching flow, in a frame to another Ethernet address or to a group
	PassOtherMAC  = Outcome(steerOutcomeOUTCOME_PASS_OTHER_MAC)
	PassNotTCP    = Outcome(steerOutcomeOUTCOME_PASS_NOT_TCP)   // other protocols, unclaimed ICMP and ESP
	PassNotIP     = Outcome(steerOutcomeOUTCOME_PASS_NOT_IP)    // ARP and other Ethernet types
	PassFragment  = Outcome(steerOutcomeOUTCOME_PASS_FRAGMENT)  // later fragment without a steered first one
	PassMalformed = Outcome(steerOutcomeOUTCOME_PASS_MALFORMED) // truncated, or inconsistent lengths
	// VLAN that is not open, nested VLANs, or service tag
	PassVLAN           = Outcome(steerOutcomeOUTCOME_PASS_VLAN)
	PassVLANDepth      = Outcome(steerOutcomeOUTCOME_PASS_VLAN_DEPTH)      // more than two VLAN tags
	PassExtensionDepth = Outcome(steerOutcomeOUTCOME_PASS_EXTENSION_DEPTH) // more than six IPv6 extension headers
	// headers that do not end within the frame's first buffer, or that are too long
	PassHeaderSplit = Outcome(steerOutcomeOUTCOME_PASS_HEADER_SPLIT)
	NumOutcomes     = int(steerOutcomeOUTCOME_COUNT)
)

var outcomeNames = [NumOutcomes]string{
	Flow:               "flow",
	Listener:           "listener",
	Fragment:           "fragment",
	ICMP:               "icmp",
	ESP:                "esp",
	DropNoSocket:       "drop_no_socket",
	DropPeer:           "drop_peer",
	DropSYN:            "drop_syn",
	DropStray:          "drop_stray",
	DropClear:          "drop_clear",
	PassNoMatch:        "pass_no_match",
	PassNotLocal:       "pass_not_local",
	PassOtherMAC:       "pass_other_mac",
	PassNotTCP:         "pass_not_tcp",
	PassNotIP:          "pass_not_ip",
	PassFragment:       "pass_fragment",
	PassMalformed:      "pass_malformed",
	PassVLAN:           "pass_vlan",
	PassVLANDepth:      "pass_vlan_depth",
	PassExtensionDepth: "pass_extension_depth",
	PassHeaderSplit:    "pass_header_split",
}

// String returns the name of the outcome in metrics.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome(%d)", uint32(o))
}

// Steered reports whether frames of this outcome went to a socket of the engine.
func (o Outcome) Steered() bool { return o <= ESP }

// Dropped reports whether frames of this outcome were dropped.
func (o Outcome) Dropped() bool { return !o.Steered() && o <= DropClear }

// Counts holds the number of frames by [Outcome] since the program was loaded.
type Counts [NumOutcomes]uint64

// Total returns the number of frames that the program saw.
func (c *Counts) Total() uint64 {
	var n uint64
	for _, v := range c {
		n += v
	}
	return n
}
