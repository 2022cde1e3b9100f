package metrics

// counter is a counter that one key of a snapshot's maps becomes. An empty name leaves the key out.
type counter struct {
	key, name, help string
	cause           string // label of a family that several keys share
}

const (
	dropped     = "xwarp_dropped_frames_total"
	droppedHelp = "Frames dropped, by cause."
	txState     = "xwarp_ring_tx_stalls_total"
	txStateHelp = "Transmit system calls that did not take everything, by state."
)

// stackCounters are of stack.Stats, per queue.
var stackCounters = []counter{
	{"rx_frames", "xwarp_rx_frames_total", "Frames that the TCP received.", ""},
	{"rx_octets", "xwarp_rx_bytes_total", "Octets of these frames.", ""},
	{"tx_frames", "xwarp_tx_frames_total", "Frames that the TCP sent.", ""},
	{"tx_octets", "xwarp_tx_bytes_total", "Octets of these frames.", ""},
	{"tx_payload", "xwarp_tx_payload_bytes_total",
		"Octets of TCP payload sent, retransmissions included.", ""},
	{"drop_not_for_us", dropped, droppedHelp, "not_for_us"},
	{"drop_malformed", dropped, droppedHelp, "malformed"},
	{"drop_checksum", dropped, droppedHelp, "checksum"},
	{"drop_no_connection", dropped, droppedHelp, "no_connection"},
	{"drop_limit", dropped, droppedHelp, "limit"},
	{"drop_source", dropped, droppedHelp, "source"},
	{"drop_not_local", dropped, droppedHelp, "not_local"},
	{"drop_vlan", dropped, droppedHelp, "vlan"},
	{"drop_no_hop", dropped, droppedHelp, "no_hop"},
	{"drop_icmp", dropped, droppedHelp, "icmp"},
	{"drop_fragments", dropped, droppedHelp, "fragment"},
	{"drop_listener", dropped, droppedHelp, "listener"},
	{"drop_syn", dropped, droppedHelp, "syn"},
	{"drop_partial_sum", "xwarp_partial_checksum_frames_total",
		"Frames dropped for their checksum that hold the pseudo header's sum only: transmit " +
			"checksum offload of a veth peer.", ""},
	{"fragments", "xwarp_rx_ip_fragments_total", "IP fragments received.", ""},
	{"reassembled", "xwarp_rx_reassembled_packets_total", "Packets made of fragments.", ""},
	{"syn_cookies", "xwarp_syn_cookies_total", "SYNs answered with a cookie, because too many " +
		"connections were half open.", ""},
	{"half_open_timeouts", "xwarp_half_open_timeouts_total",
		"Connections of which only a SYN came.", ""},
	{"icmp", "xwarp_rx_icmp_errors_total", "ICMP errors for connections.", ""},
	{"resets", "xwarp_tx_stray_resets_total",
		"RST segments sent for segments without a connection.", ""},
	{"refused", "xwarp_refused_connections_total", "Connections that were reset when their " +
		"handshake was done: limits, policy, exhaustion.", ""},
	{"evicted", "xwarp_evicted_connections_total", "Connections reset because too many of a " +
		"listener said nothing after their handshake.", ""},
	{"handed_over", "xwarp_handed_over_frames_total",
		"Frames given to the worker that has the connection.", ""},
	{"panics", "", "", ""}, // among xwarp_panics_total
	{"no_slot", "xwarp_tx_slot_waits_total", "Times that the TCP found the transmit ring full.",
		""},
	{"no_hop", "xwarp_tx_hop_waits_total", "Times that the next hop was not known yet.", ""},
}

// ringCounters are of ring.Stats, per queue.
var ringCounters = []counter{
	{"rx_packets", "xwarp_ring_rx_packets_total", "Packets taken from the receive ring.", ""},
	{"rx_octets", "xwarp_ring_rx_bytes_total", "Octets of these packets.", ""},
	{"tx_packets", "xwarp_ring_tx_packets_total", "Packets given to the kernel.", ""},
	{"tx_octets", "xwarp_ring_tx_bytes_total", "Octets of these packets.", ""},
	{"tx_completed", "xwarp_ring_tx_completed_packets_total",
		"Packets that the kernel reported complete.", ""},
	{"tx_exhausted", "xwarp_ring_tx_exhausted_total", "Times that no transmit slot was free.", ""},
	{"kicks", "xwarp_ring_tx_kicks_total", "Transmit system calls.", ""},
	{"waits", "xwarp_ring_waits_total", "Times that a worker slept.", ""},
	{"rx_oversize", dropped, droppedHelp, "rx_oversize"},
	{"rx_bad_desc", dropped, droppedHelp, "rx_bad_descriptor"},
	{"tx_invalid", dropped, droppedHelp, "tx_invalid"},
	{"busy", dropped, droppedHelp, "tx_device"},
	{"kernel_rx_dropped", dropped, droppedHelp, "kernel_rx_other"},
	{"kernel_rx_invalid", dropped, droppedHelp, "kernel_rx_invalid"},
	{"kernel_tx_invalid", dropped, droppedHelp, "kernel_tx_invalid"},
	{"kernel_rx_ring_full", dropped, droppedHelp, "kernel_rx_ring_full"},
	{"kernel_fill_ring_empty", dropped, droppedHelp, "kernel_fill_ring_empty"},
	{"again", txState, txStateHelp, "again"},
	{"no_buffers", txState, txStateHelp, "no_buffers"},
	{"down", txState, txStateHelp, "link_down"},
	{"gone", txState, txStateHelp, "device_gone"},
	{"other_errors", txState, txStateHelp, "error"},
	{"misuse", "xwarp_ring_misuse_total", "Operations on frames of another owner, refused: a bug " +
		"of xwarp.", ""},
	{"kernel_tx_ring_empty", "", "", ""}, // nothing to send is no event
	{"last_errno", "", "", ""},           // no counter
}

// containedCounters are of engine.Contained, per device.
var containedCounters = []counter{
	{"region_faults", "xwarp_lost_regions_total", "Memory regions lost because their memory " +
		"could not be accessed, as of a file that was shortened.", ""},
	{"panics", "xwarp_panics_total", "Defects of xwarp on a worker, each of which ended the " +
		"connection that was being served: please report the line of the log.", ""},
	{"stalls", "xwarp_worker_stalls_total", "Times that a worker stood still.", ""},
}

// transferCounters are of transfer.Stats, per export for transfer.
var transferCounters = []counter{
	{"puts", "xwarp_export_puts_total", "Puts that became the content of an export for transfer.",
		""},
	{"put_octets", "xwarp_export_put_bytes_total", "Octets of these contents.", ""},
	{"gets", "xwarp_export_gets_total", "Gets of an export for transfer that the client had whole.",
		""},
	{"get_octets", "xwarp_export_get_bytes_total", "Octets of these.", ""},
	{"failed", "xwarp_export_failed_transfers_total",
		"Puts and gets of an export for transfer that were refused or broke off.", ""},
	{"rejected", "", "", ""}, // among xwarp_export_rejected_connections_total
}

// watchCounters are of netwatch.Counters, per part of the kernel's configuration.
var watchCounters = []counter{
	{"changes", "xwarp_netlink_changes_total",
		"Changes of the kernel's configuration that were read.", ""},
	{"overruns", "xwarp_netlink_overruns_total", "Times that changes were lost because they came " +
		"too fast; everything is read anew then.", ""},
	{"lists", "xwarp_netlink_lists_total", "Times that everything was read.", ""},
	{"failures", "xwarp_netlink_failures_total",
		"Attempts to read everything, or to open the socket again, that failed.", ""},
	{"restarts", "xwarp_netlink_restarts_total", "Times that the socket was opened again.", ""},
}

// qpCounters are sums over all connections of a device, of rdmap.Counters.
var qpCounters = []counter{
	{"segments_out", "xwarp_ddp_tx_segments_total", "DDP segments sent.", ""},
	{"segments_in", "xwarp_ddp_rx_segments_total", "DDP segments delivered.", ""},
	{"payload_out", "xwarp_rdma_tx_bytes_total", "Octets of messages sent.", ""},
	{"payload_in", "xwarp_rdma_rx_bytes_total", "Octets of messages placed.", ""},
	{"placed_ahead", "xwarp_ddp_placed_ahead_segments_total",
		"DDP segments placed before their turn.", ""},
	{"messages_out", "xwarp_rdma_tx_messages_total", "Messages of send queues sent.", ""},
	{"sends_in", "xwarp_rdma_rx_sends_total", "Send messages delivered.", ""},
	{"reads_in", "xwarp_rdma_rx_reads_total", "RDMA Read requests delivered.", ""},
	{"atomics_in", "xwarp_rdma_rx_atomics_total", "Atomic requests delivered.", ""},
	{"responses_out", "xwarp_rdma_tx_responses_total", "Read and Atomic Responses sent.", ""},
	{"terminates_out", "xwarp_rdma_tx_terminates_total", "Terminate messages sent.", ""},
	{"terminates_in", "xwarp_rdma_rx_terminates_total", "Terminate messages received.", ""},
	{"flushed", "xwarp_rdma_flushed_work_requests_total",
		"Work requests that ended with WR_FLUSH_ERR.", ""},
	{"dropped_after_error", "xwarp_ddp_dropped_segments_total",
		"DDP segments that came after an error.", ""},
	{"reads_zeroed", "xwarp_rdma_zeroed_bytes_total", "Octets of RDMA Read Responses sent as " +
		"zero because their memory was invalidated.", ""},
}

// mpaCounters are sums over connections of mpa.ReceiverStats.
var mpaCounters = []counter{
	{"fpdus", "xwarp_mpa_rx_fpdus_total", "FPDUs received, complete and right.", ""},
	{"in_order", "xwarp_mpa_rx_in_order_fpdus_total", "FPDUs placed with nothing missing in front.",
		""},
	{"out_by_marker", "xwarp_mpa_rx_out_of_order_fpdus_total",
		"FPDUs placed behind a gap, by what showed their start.", "marker"},
	{"out_by_chain", "xwarp_mpa_rx_out_of_order_fpdus_total",
		"FPDUs placed behind a gap, by what showed their start.", "chain"},
	{"crc_drops", "xwarp_mpa_rx_crc_errors_total", "FPDUs with a wrong CRC, which TCP sends again.",
		""},
	{"marker_errors", "xwarp_mpa_rx_marker_errors_total",
		"FPDUs whose markers disagree with their place.", ""},
	{"after_end", "xwarp_mpa_rx_late_bytes_total", "Octets that came after the stream had ended.",
		""},
	{"limit_drops", "xwarp_mpa_rx_refused_bytes_total",
		"Octets not kept because of a limit; TCP sends them again.", ""},
}

// tcpCounters are sums over connections of the TCP's counters.
var tcpCounters = []counter{
	{"octets_in", "xwarp_tcp_rx_bytes_total", "Octets of payload kept.", ""},
	{"octets_out", "xwarp_tcp_tx_bytes_total", "Octets of payload sent for the first time.", ""},
	{"retrans_octets", "xwarp_tcp_retransmitted_bytes_total", "Octets of payload sent again.", ""},
	{"not_kept", "xwarp_tcp_rx_refused_bytes_total", "Octets that the layer above did not keep, " +
		"for whatever reason; the peer sends them again.", ""},
	{"out_of_order", "xwarp_tcp_rx_out_of_order_ranges_total", "Ranges kept beyond a gap.", ""},
	{"dup_octets", "xwarp_tcp_rx_duplicate_bytes_total", "Octets that came twice.", ""},
	{"timeouts", "xwarp_tcp_retransmission_timeouts_total", "Retransmission timeouts.", ""},
	{"fast_recoveries", "xwarp_tcp_fast_recoveries_total", "Recoveries without timeout.", ""},
	{"ece_in", "xwarp_tcp_rx_ecn_echoes_total", "Acknowledgements that reported congestion.", ""},
	{"black_holes", "xwarp_tcp_path_mtu_black_holes_total",
		"Times that the path MTU was lowered because full segments vanished.", ""},
	{"window_probes", "xwarp_tcp_zero_window_probes_total", "Probes of a window of zero.", ""},
}

// connGauges are sums over the connections that there are now.
var connGauges = []counter{
	{"held_octets", "xwarp_mpa_held_bytes",
		"Octets that wait for what is missing in front of them.", ""},
}

// Drops returns the frames that a worker dropped by cause, as xwarp_dropped_frames_total counts them.
func Drops(stack, ring map[string]uint64) map[string]uint64 {
	m := map[string]uint64{}
	for _, c := range stackCounters {
		if c.name == dropped {
			m[c.cause] += stack[c.key]
		}
	}
	for _, c := range ringCounters {
		if c.name == dropped {
			m[c.cause] += ring[c.key]
		}
	}
	return m
}
