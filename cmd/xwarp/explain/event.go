package explain

import "xwarp/tcp"

// events are what the connection manager says: in the log and at the head of errors.
var events = []Entry{
	{Kind: Event, Code: "RDMA_CM_EVENT_CONNECT_REQUEST", Name: "a peer wants to connect",
		Meaning: "A listener received a complete MPA Request.",
		Causes:  lines{"a client connects"},
		Remedy:  lines{"answer with Accept or Reject before the start-up timeout (10 s)"}},
	{Kind: Event, Code: "RDMA_CM_EVENT_ESTABLISHED", Name: "connected",
		Meaning: "MPA's start-up is over and the queue pair may be used.",
		Causes:  lines{"both programs agreed"},
		Remedy: lines{
			"nothing; the log line shows markers, CRC, IRD and ORD that were agreed on"}},
	{Kind: Event, Code: "RDMA_CM_EVENT_DISCONNECTED", Name: "the connection ended",
		Meaning: "The queue pair left full operation: either side closed, or an error ended the " +
			"connection. Work requests that were posted come back with WR_FLUSH_ERR.",
		Causes: lines{"Disconnect on either side", "a Terminate", "the end of the TCP connection"},
		Remedy: lines{
			"\"error\" in the log line and QP.Err say why; none means a graceful close"}},
	{Kind: Event, Code: "RDMA_CM_EVENT_REJECTED", Name: "the peer said no",
		Meaning: "The peer's MPA Reply has the R bit: its program, or its stack, does not want " +
			"the connection.",
		Causes: lines{"the program rejects this client", "the peer refuses a bit of the Request: " +
			"Linux siw and erdma reject markers (xwarp tries again without by itself)",
			"the peer's backlog is full"},
		Remedy: lines{"read the peer's log; the private data of the Reply may say more",
			"try --no-markers"}},
	{Kind: Event, Code: "RDMA_CM_EVENT_CONNECT_ERROR", Name: "the start-up failed",
		Meaning: "The TCP connection came up, and MPA's start-up did not.",
		Causes: lines{"the peer closed instead of answering: a service without iWARP, or a " +
			"revision that it does not know (xwarp tries revision 1 by itself)",
			"a malformed frame (MPA error 4)",
			"IRD and ORD or the RTR message do not fit (MPA errors 6 and 7)"},
		Remedy: lines{"the error's text goes on with the reason", "check address and port",
			"explain the MPA error: xwarp explain 2/0/4"}},
	{Kind: Event, Code: "RDMA_CM_EVENT_UNREACHABLE", Name: "no answer in time",
		Meaning: "A step of the start-up took too long; the error says which.",
		Causes: lines{"the peer's program does not accept, or is stopped", "a client whose " +
			"program must send first connected and sent nothing (mpa.first_fpdu_timeout)",
			"something that is not iWARP took the connection and waits",
			"packets are lost: a firewall, a wrong MTU"},
		Remedy: lines{"see on the peer that its program waits for connections",
			"capture: does the Request arrive?"}},
	{Kind: Event, Code: "IBV_EVENT_CQ_ERR", Name: "completion queue overrun",
		Meaning: "A completion queue was full when a completion came; that completion is lost " +
			"and the queue pairs of the queue are in error.",
		Causes: lines{"the queue is less deep than the work requests that use it",
			"the program does not poll"},
		Remedy: lines{"make it as deep as SendDepth plus RecvDepth of all its queue pairs"}},
}

// tcpCauses makes an entry of each end of a connection of the engine's own TCP.
func tcpCauses() []Entry {
	var list []Entry
	for c := tcp.CauseClosed; tcpTexts[c].meaning != ""; c++ {
		t := tcpTexts[c]
		list = append(list, Entry{
			Kind: TCP, Code: tcpCodes[c], Name: c.String(), Meaning: t.meaning, Causes: t.causes,
			Remedy: t.remedy, Spec: "RFC 9293", tcp: c,
		})
	}
	return list
}

// tcpCodes are the words of errno(3) where there is one.
var tcpCodes = map[tcp.Cause]string{
	tcp.CauseClosed: "CLOSED", tcp.CauseRefused: "ECONNREFUSED", tcp.CauseReset: "ECONNRESET",
	tcp.CauseAborted: "ECONNABORTED",
	tcp.CauseTimeout: "ETIMEDOUT", tcp.CauseKeepalive: "KEEPALIVE",
	tcp.CauseUnreachable: "EHOSTUNREACH", tcp.CauseOrphan: "ORPHAN",
}

var tcpTexts = map[tcp.Cause]text{
	tcp.CauseClosed: {"Both sides sent FIN and acknowledged the other's: a graceful end.",
		lines{"both programs closed"}, lines{"nothing"}},
	tcp.CauseRefused: {"The peer answered our SYN with RST (ECONNREFUSED).",
		lines{"nothing listens on that port", "the program there listens on another address",
			"a firewall refuses"},
		lines{"on the peer: ss -ltn, or rdma res show cm_id for kernel iWARP",
			"check address and port"}},
	tcp.CauseReset: {"The peer sent RST (ECONNRESET).",
		lines{"its process died or closed with work under way",
			"its host restarted and does not know the connection", "a middlebox dropped its state",
			"Linux siw resets when a start-up frame has too much private data or octets behind it"},
		lines{"read the peer's log, and the last Terminate before the RST if there is one"}},
	tcp.CauseAborted: {"This side ended the connection with RST.",
		lines{"the program closed the queue pair or the device without Disconnect",
			"Disconnect with work under way",
			"a close timeout ran out because the peer did not close its side"},
		lines{"wait for the last completion, call Disconnect, then close"}},
	tcp.CauseTimeout: {"Segments were sent again until TCP gave up (ETIMEDOUT).",
		lines{"the peer or the path is down", "packets of full size are lost: an MTU that is too " +
			"large somewhere, ICMP blocked"},
		lines{"ping -M do -s 1472 PEER",
			"lower the MTU, or let ICMP \"fragmentation needed\" pass"}},
	tcp.CauseKeepalive: {"The peer did not answer keepalive probes.",
		lines{"the peer's host is down or unreachable"}, lines{"as for a timeout"}},
	tcp.CauseUnreachable: {"ICMP answered our SYN: no such host, network or port (EHOSTUNREACH).",
		lines{"wrong address", "no route", "a firewall that answers with ICMP"},
		lines{"ip route get PEER, ip neigh show"}},
	tcp.CauseOrphan: {"The program closed, and the peer did not close its side in time.",
		lines{"the peer's program hangs or keeps the connection open"},
		lines{"nothing here; look at the peer"}},
}

// errnos are errors of calls that begin with a word of errno(3).
var errnos = []Entry{
	{Kind: Errno, Code: "ENOMEM", Name: "work queue is full",
		Meaning: "PostSend or PostRecv found its queue full.",
		Causes: lines{"more work requests outstanding than SendDepth or RecvDepth",
			"completions are not polled; without Signaled a slot is free only when a later " +
				"signaled one completes"},
		Remedy: lines{"poll completions", "raise the depth in QPConfig"}},
	{Kind: Errno, Code: "EINVAL", Name: "the work request does not fit",
		Meaning: "A work request has more pieces or inline octets than the queue pair was made for.",
		Causes:  lines{"SGL longer than MaxSGE", "Inline longer than MaxInline"},
		Remedy:  lines{"raise MaxSGE or MaxInline in QPConfig, or split the request"}},
	{Kind: Errno, Code: "EBUSY", Name: "not now", Meaning: "Something is in use, or not at rest.",
		Causes: lines{"a region that work requests point into is being closed",
			"octets arrived out of order when MPA was to start on a stream"},
		Remedy: lines{"wait for the completions", "try again once the gap is closed"}},
	{Kind: Errno, Code: "ENOTSUP", Name: "not with this transport",
		Meaning: "The call needs AF_XDP and the engine's own TCP.",
		Causes:  lines{"the device was opened on the kernel's sockets"},
		Remedy:  lines{"OpenXDP, --transport=xdp"}},
}
