package explain

// drops are the causes of xwarp_dropped_frames_total, as status, top and monitor name them.
var drops = []Entry{
	drop("not_for_us", "another station's frame", "The Ethernet address is not the interface's.",
		"a switch that floods, promiscuous mode",
		"nothing, unless there are many: look at the switch"),
	drop("malformed", "no frame of TCP", "An Ethernet, IP or TCP header cannot be.",
		"a broken sender, an attack", "xwarp capture"),
	drop("checksum", "wrong checksum", "The checksum of IP or TCP is wrong.",
		"transmit checksum offload at a veth peer, which sends none", "xwarp doctor --interface "+
			"NAME; ethtool -K PEER tx off, or trust_partial_checksum"),
	drop("no_connection", "nobody's segment", "There is no connection and no listener for it; it "+
		"is answered with a reset.", "a connection that ended, a peer that restarted", "nothing"),
	drop("limit", "too many connections", "A connection more than a table holds.",
		"an attack, or many peers", "xwarp resource show peer"),
	drop("source", "no host's address", "The source is multicast, broadcast, loopback, reserved "+
		"or our own.", "a forged packet", "nothing; filter it where it comes from"),
	drop("not_local", "not an address of this host", "The destination is no address of this host.",
		"a peer that knows an old address, a switch that floods", "ip -br addr"),
	drop("vlan", "another VLAN", "The frame has a VLAN tag that is not the stack's.", "a trunk",
		"serve the VLAN's interface"),
	drop("no_hop", "no way back", "The answer to a SYN, or a reset, could not leave: the next "+
		"hop is not known.", "no route, or nobody answers ARP or NDP",
		"ip route get PEER; ip neigh show"),
	drop("backlog", "another worker is busy", "A queue that came after the start hands its frames "+
		"to the workers of the others, and too many waited.", "ethtool -L under much traffic",
		"restart xwarpd: each queue gets a worker of its own"),
	drop("icmp", "ICMP for nobody", "An ICMP error is about a connection that is not here.",
		"an old connection, a forged packet", "nothing"),
	drop("fragment", "fragments given up", "Fragments overlap, are too long, too many or too late.",
		"a path with a smaller MTU, an attack",
		"let ICMP \"fragmentation needed\" pass; lower the MTU"),
	drop("listener", "ignored by a listener", "A segment to a listener belongs to no connection "+
		"that it knows of, is forged, or came before its cookie.", "an old connection, a scanner",
		"nothing"),
	drop("syn", "no room for a SYN", "A listener's backlog of handshakes is full.",
		"an attack, or a program that does not accept",
		"look at the program; xwarp resource show peer"),
	drop("drop_peer", "not an allowed peer", "The steering program dropped a segment to a "+
		"listener from an address that is not in interface.allow.", "interface.allow",
		"add the peer to interface.allow, then systemctl reload xwarpd"),
	drop("rx_oversize", "frame too large", "A received frame is larger than its buffers.",
		"an MTU that was raised while the daemon ran", "systemctl restart xwarpd"),
	drop("rx_bad_descriptor", "the kernel's descriptor is wrong",
		"A descriptor in the receive ring points where no frame can be.", "a defect of the driver",
		"report it with the driver's name"),
	drop("tx_invalid", "a frame that cannot leave",
		"A frame to send does not fit the ring's rules.", "a defect of xwarp", "report it"),
	drop("tx_device", "the device took no frame",
		"The device was busy for too long; TCP sends again.", "a slow or stopped link",
		"ethtool -S NAME; ip -s link"),
	drop("kernel_rx_other", "the kernel dropped it",
		"The AF_XDP socket dropped a frame for another reason than a full ring.",
		"too little memory", "dmesg"),
	drop("kernel_rx_invalid", "the kernel found a wrong descriptor",
		"A descriptor of the fill ring is wrong.", "a defect of xwarp", "report it"),
	drop("kernel_tx_invalid", "the kernel found a wrong descriptor",
		"A descriptor of the transmit ring is wrong.", "a defect of xwarp", "report it"),
	drop("kernel_rx_ring_full", "receive ring full",
		"The worker was too slow, and the receive ring was full.", "too little processor time",
		"more queues, a processor of its own (interface.cpus), a larger rx_frames"),
	drop("kernel_fill_ring_empty", "no buffer", "The kernel had no buffer for a frame.",
		"too little processor time, too few frames",
		"a larger interface.rx_frames; interface.cpus"),
	drop("drop_no_socket", "unserved queue", "A frame for one of our ports came on a receive "+
		"queue that has no socket.", "interface.queues leaves queues out",
		"serve all queues; xwarp doctor --interface NAME"),
}

func drop(code, name, meaning, cause, remedy string) Entry {
	return Entry{Kind: Drop, Code: code, Name: name, Meaning: meaning, Causes: lines{cause},
		Remedy: lines{remedy}}
}
