package stack

// Stats counts the frames of a stack, each drop by its cause.
type Stats struct {
	RxFrames, RxBytes uint64
	TxFrames, TxBytes uint64
	TxPayload         uint64 // bytes of TCP payload sent, including retransmissions

	DropNotForUs     uint64 // to another MAC address
	DropMalformed    uint64 // invalid Ethernet, IP or TCP header
	DropChecksum     uint64 // wrong IP or TCP checksum
	DropPartialSum   uint64 // TCP checksum of the pseudo-header only, in a frame that may have been on a wire
	PartialSums      uint64 // segments accepted although their TCP checksum is that of the pseudo-header only
	DropNoConnection uint64 // no connection and no listener
	Refused          uint64 // connections reset after their handshake: limits, policy, exhaustion
	// connections reset because too many connections of their listener stayed silent after the handshake
	Evicted      uint64
	DropSource   uint64 // invalid source: multicast, broadcast, loopback, reserved, or this host
	DropNotLocal uint64 // to an address that this host does not have, without a connection
	DropVLAN     uint64 // another VLAN than the stack's
	DropICMP     uint64 // ICMP errors without a connection here
	// invalid fragments and abandoned datagrams: overlapping, too long, too many, too late, or a mix of CE and not
	// ECN-capable
	DropFragments uint64
	// segments ignored by a listener: no known connection, forged, or too early for a cookie
	DropListener     uint64
	DropSYN          uint64 // SYNs dropped because a listener was full
	SYNCookies       uint64 // SYNs answered with a cookie because a listener was full
	HalfOpenTimeouts uint64 // half-open connections that timed out
	DropNoSA         uint64 // ESP without an SA
	DropESP          uint64 // forged, replayed or damaged ESP
	DropPolicy       uint64 // segments not protected as the policy requires, and ESP without a TCP segment
	NoSA             uint64 // times that no SA to send with was available
	Fragments        uint64 // IP fragments received
	Reassembled      uint64 // packets reassembled from IP fragments
	ICMP             uint64 // ICMP errors for connections of the stack
	Resets           uint64 // RSTs in answer to segments without a connection
	HandedOver       uint64 // segments, ICMP errors and ESP packets passed to another worker
	DropBacklog      uint64 // segments, ICMP errors and ESP packets dropped because too many waited for other workers
	Panics           uint64 // panics (bugs); each ended the connection being served, if there was one
	NoSlot           uint64 // times that no transmit slot was free
	NoHop            uint64 // times that frames could not be sent because the next hop was not resolved yet
	DropNoHop        uint64 // SYN-ACKs and resets without a connection, not sent because the next hop was not resolved
}

// Stats returns the counters of the stack.
func (s *Stack) Stats() Stats {
	n := s.stats
	f := s.frags.Counters()
	n.DropFragments = f.Malformed + f.Overlaps + f.TooLong + f.TooMany + f.Timeouts + f.Evicted +
		f.MixedECN
	l := s.Listened()
	n.DropListener = l.Ignored + l.CookieTails + l.ChallengeSuppressed
	n.DropSYN, n.SYNCookies, n.HalfOpenTimeouts = l.Overflows, l.CookiesSent, l.Timeouts
	return n
}
