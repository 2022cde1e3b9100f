package counters

// Families of metrics that several counters share.
const (
	dropped  = "xwarp_dropped_frames_total"
	txStalls = "xwarp_ring_tx_stalls_total"
	ahead    = "xwarp_mpa_rx_out_of_order_fpdus_total"
)

// Stack is of stack.Stats: what the TCP of a queue did with frames.
var Stack = Table{
	{"rx_frames", Frames, "Frames that the TCP received.", "xwarp_rx_frames_total", ""},
	{"rx_octets", Octets, "Octets of these frames.", "xwarp_rx_bytes_total", ""},
	{"tx_frames", Frames, "Frames that the TCP sent.", "xwarp_tx_frames_total", ""},
	{"tx_octets", Octets, "Octets of these frames.", "xwarp_tx_bytes_total", ""},
	{"tx_payload", Octets,
		"Octets of TCP payload sent, retransmissions included.",
		"xwarp_tx_payload_bytes_total", ""},
	{"drop_not_for_us", Frames,
		"Frames to another station's Ethernet address.",
		dropped, "not_for_us"},
	{"drop_malformed", Frames,
		"Frames whose Ethernet, IP or TCP header cannot be.",
		dropped, "malformed"},
	{"drop_checksum", Frames, "Frames with a wrong IP or TCP checksum.", dropped, "checksum"},
	{"drop_partial_sum", Frames,
		"Frames dropped for their checksum that hold the pseudo header's sum only: " +
			"transmit checksum offload of a veth peer.",
		"xwarp_partial_checksum_frames_total", ""},
	{"drop_no_connection", Frames,
		"Segments for which there is no connection and no listener.",
		dropped, "no_connection"},
	{"drop_limit", Frames, "SYNs beyond the connections that there may be.", dropped, "limit"},
	{"refused", Connections,
		"Connections that were reset when their handshake was done: limits, policy, " +
			"exhaustion.",
		"xwarp_refused_connections_total", ""},
	{"evicted", Connections,
		"Connections reset because too many of a listener said nothing after their " +
			"handshake.",
		"xwarp_evicted_connections_total", ""},
	{"drop_source", Frames,
		"Segments from what is no other host: multicast, broadcast, loopback, reserved, " +
			"our own address.",
		dropped, "source"},
	{"drop_not_local", Frames,
		"Segments without a connection to an address that this host does not have.",
		dropped, "not_local"},
	{"drop_vlan", Frames, "Frames of another VLAN than the stack's.", dropped, "vlan"},
	{"drop_icmp", Frames, "ICMP errors for connections that are not here.", dropped, "icmp"},
	{"drop_fragments", Frames,
		"Fragments that cannot be, and datagrams given up: overlapping, too long, too " +
			"many, too late.",
		dropped, "fragment"},
	{"drop_listener", Frames,
		"Segments that a listener ignored: of no connection that it knows of, forged, " +
			"or too early for a cookie.",
		dropped, "listener"},
	{"drop_syn", Frames, "SYNs for which a listener had no room.", dropped, "syn"},
	{"syn_cookies", Events,
		"SYNs answered with a cookie, because too many connections were half open.",
		"xwarp_syn_cookies_total", ""},
	{"half_open_timeouts", Connections,
		"Connections of which only a SYN came.",
		"xwarp_half_open_timeouts_total", ""},
	{"fragments", Packets, "IP fragments received.", "xwarp_rx_ip_fragments_total", ""},
	{"reassembled", Packets,
		"Packets made of fragments.",
		"xwarp_rx_reassembled_packets_total", ""},
	{"icmp", Events, "ICMP errors for connections.", "xwarp_rx_icmp_errors_total", ""},
	{"resets", Segments,
		"RST segments sent for segments without a connection.",
		"xwarp_tx_stray_resets_total", ""},
	{"handed_over", Frames,
		"Frames given to the worker that has the connection.",
		"xwarp_handed_over_frames_total", ""},
	{"drop_backlog", Frames,
		"Frames for another worker, which had too many of them waiting.",
		dropped, "backlog"},
	{"panics", Events, "Among those of the device.", "", ""},
	{"no_slot", Events,
		"Times that the TCP found the transmit ring full.",
		"xwarp_tx_slot_waits_total", ""},
	{"no_hop", Events,
		"Times that the next hop was not known yet.",
		"xwarp_tx_hop_waits_total", ""},
	{"drop_no_hop", Frames,
		"Answers to SYNs and resets that did not leave for want of the next hop.",
		dropped, "no_hop"},
}

// Listen is of tcp.ListenCounters: the listeners of a queue.
var Listen = Table{
	{"syns", Segments, "SYNs that came.", "xwarp_listener_syns_total", ""},
	{"syn_acks", Segments,
		"SYN-ACKs sent, again and again included.",
		"xwarp_listener_syn_acks_total", ""},
	{"accepted", Connections,
		"Handshakes that were completed.",
		"xwarp_listener_accepted_connections_total", ""},
	{"cookies_sent", Segments, "SYN-ACKs with a cookie: syn_cookies of the stack.", "", ""},
	{"cookies_accepted", Connections,
		"Handshakes that were completed by a cookie.",
		"xwarp_listener_cookie_connections_total", ""},
	{"overflows", Segments,
		"SYNs dropped because the backlog was full, or the peer had too many: drop_syn " +
			"of the stack.",
		"", ""},
	{"timeouts", Connections,
		"Half-open connections given up: half_open_timeouts of the stack.",
		"", ""},
	{"resets", Connections,
		"Half-open connections that their peer reset.",
		"xwarp_listener_resets_total", ""},
	{"bad_acks", Segments,
		"Acknowledgements of half-open connections that acknowledge nothing of ours, " +
			"answered with RST.",
		"xwarp_listener_bad_acks_total", ""},
	{"old", Segments,
		"Segments of half-open connections outside of the window, or with an old " +
			"timestamp.",
		"xwarp_listener_old_segments_total", ""},
	{"cookie_tails", Segments,
		"Segments dropped because what is before them and has the cookie is still to " +
			"come.",
		"", ""},
	{"ignored", Segments, "Segments that are neither SYN nor ACK, and RST for nothing.", "", ""},
	{"mixed_ecn", Segments,
		"SYNs reset because they ask for ECN of both kinds (RFC 9768, 3.1.5).",
		"xwarp_listener_mixed_ecn_resets_total", ""},
	{"challenge_suppressed", Segments,
		"Answers for half-open connections that were not sent for want of budget.",
		"", ""},
}

// Ring is of ring.Stats: the AF_XDP socket of a queue.
var Ring = Table{
	{"rx_packets", Packets,
		"Packets taken from the receive ring.",
		"xwarp_ring_rx_packets_total", ""},
	{"rx_octets", Octets, "Octets of these packets.", "xwarp_ring_rx_bytes_total", ""},
	{"rx_oversize", Frames, "Frames of more chunks than there may be.", dropped, "rx_oversize"},
	{"rx_bad_desc", Frames,
		"Frames whose receive descriptor made no sense.",
		dropped, "rx_bad_descriptor"},
	{"tx_packets", Packets, "Packets given to the kernel.", "xwarp_ring_tx_packets_total", ""},
	{"tx_octets", Octets, "Octets of these packets.", "xwarp_ring_tx_bytes_total", ""},
	{"tx_completed", Packets,
		"Packets that the kernel reported complete.",
		"xwarp_ring_tx_completed_packets_total", ""},
	{"tx_exhausted", Events,
		"Times that no transmit slot was free.",
		"xwarp_ring_tx_exhausted_total", ""},
	{"tx_invalid", Frames,
		"Frames of an impossible length or checksum: a bug of xwarp.",
		dropped, "tx_invalid"},
	{"kicks", Events, "Transmit system calls.", "xwarp_ring_tx_kicks_total", ""},
	{"again", Events, "Transmit system calls that ended with EAGAIN.", txStalls, "again"},
	{"busy", Frames, "Frames that the device dropped (EBUSY).", dropped, "tx_device"},
	{"no_buffers", Events,
		"Transmit system calls that ended with ENOBUFS.",
		txStalls, "no_buffers"},
	{"down", Events, "Transmit system calls that ended with ENETDOWN.", txStalls, "link_down"},
	{"gone", Events,
		"Transmit system calls that ended with ENXIO or ENODEV.",
		txStalls, "device_gone"},
	{"other_errors", Events,
		"Transmit system calls that ended with another error.",
		txStalls, "error"},
	{"last_errno", Events, "The last errno that is no other state: no counter.", "", ""},
	{"waits", Events, "Times that a worker slept.", "xwarp_ring_waits_total", ""},
	{"misuse", Events,
		"Operations on frames of another owner, refused: a bug of xwarp.",
		"xwarp_ring_misuse_total", ""},
	{"kernel_rx_dropped", Frames,
		"Frames that the kernel dropped for other reasons.",
		dropped, "kernel_rx_other"},
	{"kernel_rx_invalid", Frames,
		"Invalid descriptors that the kernel found in the fill ring.",
		dropped, "kernel_rx_invalid"},
	{"kernel_tx_invalid", Frames,
		"Invalid descriptors that the kernel found in the transmit ring.",
		dropped, "kernel_tx_invalid"},
	{"kernel_rx_ring_full", Frames,
		"Frames that the kernel dropped because the receive ring was full.",
		dropped, "kernel_rx_ring_full"},
	{"kernel_fill_ring_empty", Frames,
		"Frames that the kernel dropped because the fill ring was empty.",
		dropped, "kernel_fill_ring_empty"},
	{"kernel_tx_ring_empty", Events,
		"Times that the kernel found nothing to send: no event.",
		"", ""},
}

// Live is of live.Stats: the live frames of a queue.
var Live = Table{
	{"runs", Events, "Calls that sent a run of live frames.", "xwarp_live_runs_total", ""},
	{"frames", Frames, "Frames that left as live frames.", "xwarp_live_frames_total", ""},
	{"single", Frames,
		"Frames that left through AF_XDP, since they made no run or the driver took " +
			"none.",
		"xwarp_live_single_frames_total", ""},
	{"invalid", Frames, "Frames of an impossible length: among tx_invalid of the ring.", "", ""},
	{"failed", Events,
		"Calls that sent nothing; AF_XDP took their frames.",
		"xwarp_live_failed_runs_total", ""},
}

// Contained is of engine.Contained: what a device survived.
var Contained = Table{
	{"region_faults", Events,
		"Memory regions lost because their memory could not be accessed, as of a file " +
			"that was shortened.",
		"xwarp_lost_regions_total", ""},
	{"panics", Events,
		"Defects of xwarp on a worker, each of which ended the connection that was " +
			"being served: please report the line of the log.",
		"xwarp_panics_total", ""},
	{"stalls", Events, "Times that a worker stood still.", "xwarp_worker_stalls_total", ""},
}

// Transfer is of transfer.Stats: an export for transfer.
var Transfer = Table{
	{"puts", Events,
		"Puts that became the content of an export for transfer.",
		"xwarp_export_puts_total", ""},
	{"put_octets", Octets, "Octets of these contents.", "xwarp_export_put_bytes_total", ""},
	{"gets", Events,
		"Gets of an export for transfer that the client had whole.",
		"xwarp_export_gets_total", ""},
	{"get_octets", Octets, "Octets of these.", "xwarp_export_get_bytes_total", ""},
	{"failed", Events,
		"Puts and gets of an export for transfer that were refused or broke off.",
		"xwarp_export_failed_transfers_total", ""},
	{"rejected", Connections, "Connections that were rejected.", "", ""},
}

// Watch is of netwatch.Counters: a part of the kernel's configuration that is followed.
var Watch = Table{
	{"changes", Events,
		"Changes of the kernel's configuration that were read.",
		"xwarp_netlink_changes_total", ""},
	{"overruns", Events,
		"Times that changes were lost because they came too fast; everything is read " +
			"anew then.",
		"xwarp_netlink_overruns_total", ""},
	{"lists", Events, "Times that everything was read.", "xwarp_netlink_lists_total", ""},
	{"failures", Events,
		"Attempts to read everything, or to open the socket again, that failed.",
		"xwarp_netlink_failures_total", ""},
	{"restarts", Events,
		"Times that the socket was opened again.",
		"xwarp_netlink_restarts_total", ""},
}

// Daemon is of the daemon itself.
var Daemon = Table{
	{"sessions_ended", Events, "Programs that were connected and are gone.",
		"xwarp_sessions_ended_total", ""},
	{"sessions_refused", Events, "Programs that were refused.", "xwarp_sessions_refused_total", ""},
	{"defects", Events,
		"Defects of xwarpd outside of its workers, each of which ended what was being served.",
		"xwarp_daemon_panics_total", ""},
	{"sessions_held_up", Events,
		"Programs that were dropped because the close of a descriptor that they passed blocked.",
		"xwarp_sessions_held_up_total", ""},
	{"doorbell_rests", Events,
		"Rests that programs had to take which rang their doorbell often with nothing posted.",
		"xwarp_doorbell_rests_total", ""},
	{"peers_refused", Connections,
		"Connections that were more than their peer or its network may have.",
		"xwarp_peers_refused_connections_total", ""},
}

// Link is of engine.LinkCounters: what happened to a network interface.
var Link = Table{
	{"downs", Events, "Times that the interface went down or lost its carrier.",
		"xwarp_device_link_downs_total", ""},
	{"mtus", Events, "Times that the interface's MTU changed.",
		"xwarp_device_mtu_changes_total", ""},
	{"addresses", Events,
		"Times that the interface's Ethernet address changed, or an address in use went.",
		"xwarp_device_address_changes_total", ""},
	{"queues", Events, "Times that the number of the interface's receive queues changed.",
		"xwarp_device_queue_changes_total", ""},
}
