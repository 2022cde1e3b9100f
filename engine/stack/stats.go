package stack

// Stats counts the frames of a stack, each drop by its cause.
type Stats struct {
	RxFrames, RxBytes uint64
	TxFrames, TxBytes uint64
	TxPayload         uint64 // bytes of TCP payload sent, retransmissions included

	DropNotForUs     uint64 // another station's Ethernet address
	DropMalformed    uint64 // Ethernet, IP or TCP header that cannot be
	DropChecksum     uint64 // wrong IP or TCP checksum
	DropPartialSum   uint64 // of these: only the pseudo header's sum, so transmit checksum offload is on at a veth peer
	DropNoConnection uint64 // no connection and no listener
	DropLimit        uint64 // too many connections
	Refused          uint64 // connections that were reset when their handshake was done
	// connections that were reset because too many of their listener said nothing after the handshake
	Evicted      uint64
	DropSource   uint64 // a source that is no other host's: multicast, broadcast, loopback, reserved, our own
	DropNotLocal uint64 // to an address that this host does not have, and no connection
	DropVLAN     uint64 // of another VLAN than the stack's
	DropICMP     uint64 // ICMP errors for connections that are not here
	// fragments that cannot be, and datagrams given up: overlapping, too long, too many, too late,
	// marked CE in part and not ECN capable in part
	DropFragments uint64
	// segments that a listener ignored: for no connection that it knows of, forged, or too early for a cookie
	DropListener     uint64
	DropSYN          uint64 // SYNs for which a listener had no room
	SYNCookies       uint64 // SYNs answered with a cookie for want of room
	HalfOpenTimeouts uint64 // connections of which only a SYN came
	DropNoSA         uint64 // ESP for which there is no SA
	DropESP          uint64 // ESP that was forged, replayed or damaged
	DropPolicy       uint64 // segments in the clear that must be protected, or protected by an SA of others
	NoSA             uint64 // times that there was no SA to send with
	Fragments        uint64 // IP fragments received
	Reassembled      uint64 // packets made of them
	ICMP             uint64 // ICMP errors for connections of the stack
	Resets           uint64 // RST sent for segments without a connection
	HandedOver       uint64 // given to the worker that has the connection
	DropBacklog      uint64 // for another worker, which had too many of them waiting
	Panics           uint64 // defects of this program, each of which ended the connection that was being served
	NoSlot           uint64 // times that the transmit ring was full
	NoHop            uint64 // times that the next hop was not known yet
	DropNoHop        uint64 // answers to SYNs and resets that did not leave for want of the next hop
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
