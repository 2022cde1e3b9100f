package explain

import "strings"

// messages are the lines of the log of xwarpd and of the commands' --verbose, by their "msg".
var messages = []Entry{
	message("RDMA_CM listener", "a listener opens", "A program or an export listens on an address and port now.", "a program called Listen", "nothing"),
	message("IBV_WC_", "a work request failed", "A work request ended with the status of libibverbs that follows the underscore.", "see the status", "xwarp explain IBV_WC_ and the status"),
	message("a changed key counts after a restart only", "reload leaves a key", "The file has another value for a key that a reload does not read.", "a key without [reload] was edited", "systemctl restart xwarpd"),
	message("accept", "a socket cannot accept", "The kernel would not hand out a connection on a kernel socket; it is tried again.", "the process has no descriptors left", "raise LimitNOFILE, or have fewer connections"),
	message("all is known again", "following works again", "What the kernel says of addresses and links is complete again after a gap.", "an overrun was made good", "nothing"),
	message("capture begins", "a capture runs", "Frames of a device are copied to whoever runs xwarp capture.", "xwarp capture", "nothing"),
	message("capture ended", "a capture is over", "No frames are copied any more; the line says how many were.", "xwarp capture ended", "nothing"),
	message("changes came faster than they were read: reading everything anew", "netlink overrun", "The kernel dropped messages about addresses or links, so all of them are read again.", "very many changes at once", "nothing, unless it goes on"),
	message("closing a device that failed", "a lost device is not closed cleanly", "Giving back what a failed device had did not work.", "the interface is gone, or the kernel refused", "systemctl restart xwarpd; look at \"error\""),
	message("configuration is reloaded", "reload done", "Keys with [reload] count from now on.", "SIGHUP, systemctl reload xwarpd", "nothing"),
	message("confirmed: the daemon stays", "somebody confirmed", "xwarp confirm came in time.", "xwarp confirm", "nothing"),
	message("connection not established", "a connection ended before it began", "The start-up of a connection to a listener failed; \"error\" says where.", "a scanner, or a client that is no iWARP", "capture, and explain the error"),
	message("connection refused", "a peer was turned away", "A peer has what it may have, or its address is not allowed.", "[peer_limits] or [[peer]]", "raise the limit if the peer is right: xwarp resource show peer"),
	message("connection rejected: the consumer accepts too slowly", "backlog full", "A listener has as many connections waiting as its backlog allows.", "the program does not call Accept", "a larger backlog, or look at the program"),
	message("control socket is open", "programs may come", "The socket of daemon.socket is there.", "the daemon started", "nothing"),
	message("operator's control socket is open", "the operator may come", "The socket of daemon.admin_socket is there.", "the daemon started", "nothing"),
	message("control socket", "accepting programs failed", "A program could not be taken at the control socket; it is tried again.", "no descriptors left", "raise LimitNOFILE"),
	message("defect of xwarp: the connection that was being served ends, the others go on", "a defect was contained", "The engine found itself wrong; one connection pays for it.", "a defect of xwarp", "report the line with its stack"),
	message("defect of xwarpd: what was being served ends, the rest goes on", "a defect was contained", "The daemon found itself wrong; one program or connection pays for it.", "a defect of xwarp", "report the line with its stack"),
	message("device failed; its connections end", "a device failed", "The kernel or a worker failed in a way that a device does not survive.", "the interface went away, or its driver failed", "look at \"error\"; systemctl restart xwarpd"),
	message("device is lost: its programs and exports end, other devices go on", "a device failed", "A device of the daemon failed; the others serve on.", "the interface went away, or its driver failed", "systemctl restart xwarpd once the interface is back"),
	message("device is open", "a device serves", "An interface is served from now on.", "the daemon started", "nothing"),
	message("everything is undone unless the operator confirms", "waiting for xwarp confirm", "daemon.confirm is set: the daemon ends after that time unless xwarp confirm comes.", "daemon.confirm", "xwarp confirm"),
	message("the interface carries your own session: everything is undone unless you confirm", "waiting for xwarp confirm", "The daemon was started by hand over the interface that it serves.", "an SSH session over that interface", "xwarp confirm"),
	message("the interface carries your own session, and without a socket of the operator's nobody can confirm", "no way to confirm", "The daemon would wait for a confirmation, but there is no socket for it.", "daemon.admin_socket is empty", "set daemon.socket and daemon.admin_socket"),
	message("nobody confirmed in time: closing everything", "not confirmed", "xwarp confirm did not come; xwarpd gives everything back and ends with status 75.", "you lost the host, or forgot", "start again, then xwarp confirm"),
	message("programs are detached, ports are free: the interfaces are as before the start", "all is undone", "What the daemon did to the interfaces is taken back.", "nobody confirmed", "nothing"),
	message("export ended", "an export stopped", "What serves an export ended with an error.", "its device failed", "look at \"error\"; systemctl reload xwarpd"),
	message("export failed; its connections end, and new ones are rejected", "an export failed", "The file of an export cannot be read or written any more.", "the file was cut short, or its disk failed", "put the file right, then systemctl reload xwarpd"),
	message("export is open", "an export serves", "Peers may connect to an export.", "the daemon started or reloaded", "nothing"),
	message("export: a connection's memory", "memory stays", "Memory of a connection to an export could not be given back.", "a defect of xwarp", "report it"),
	message("export: no resources for a peer", "a peer got nothing", "A peer of an export was rejected for want of memory or queues.", "limits, or too little memory", "xwarp resource show user; raise the limit"),
	message("export: peer lost", "a peer went away", "A connection to an export ended without a graceful close.", "the peer's process or host died", "read the peer's log"),
	message("export: peer rejected", "a peer was rejected", "The address is not in export.allow, or export.connections are there already.", "export.allow or export.connections", "change the key, then systemctl reload xwarpd"),
	message("flow stays in the steering table", "steering was not undone", "The kernel refused to take an entry out of the steering map.", "the map is gone", "nothing; it ends with the device"),
	message("listener stays in the steering table", "steering was not undone", "The kernel refused to take a port out of the steering map.", "the map is gone", "nothing; it ends with the device"),
	message("flush", "a flush failed", "What a peer wrote could not be put on disk.", "the disk is full or broken", "dmesg; look at \"error\""),
	message("frames for our ports arrive on a queue that nobody serves, and are dropped", "unserved queue", "The device puts frames on a receive queue without a socket.", "interface.queues leaves queues out, or queues were added", "xwarp doctor --interface, serve all queues"),
	message("more receive queues than are served: connections that the device puts on the others stall", "unserved queues", "The device has more receive queues than are served.", "interface.queues or --queues leaves some out", "serve all, or ethtool -L so that there are fewer"),
	message("generic XDP: slower, and a veth peer may reorder", "no native XDP", "The driver has no native XDP, or refused it; the line says why.", "an MTU above one page, a driver without XDP", "xwarp doctor --interface"),
	message("no zero-copy: the kernel copies each frame", "copy mode", "The driver has no zero-copy for AF_XDP.", "veth, or a driver without it", "nothing; it works and is slower"),
	message("the driver made more queues than it had: live frames are not for all of them", "live frames on some queues", "Attaching made the driver create transmit queues, and not all of them take XDP live frames.", "a veth peer or a driver that makes queues on demand", "nothing; other queues transmit in another way"),
	message("local addresses may be old: trying again", "addresses are not followed", "What addresses this host has could not be read.", "netlink failed", "look at \"error\""),
	message("what is known may be old: trying again", "the kernel is not followed", "What the kernel says of links or neighbours could not be read.", "netlink failed", "look at \"error\""),
	message("nothing more is received", "following ended", "Changes of addresses are not heard of any more.", "the netlink socket failed", "systemctl restart xwarpd"),
	message("memory region lost; its connections end, and its STag is revoked", "a region failed", "Memory that peers write to is gone.", "a file behind it was cut short", "put the file right and register it again"),
	message("memory region stays mapped", "memory stays", "A region of a program that left could not be unmapped.", "a worker did not let go of it", "report it"),
	message("protection domain stays", "an object stays", "A protection domain of a program that left could not be closed.", "an object in it is still used", "report it"),
	message("queue pair stays", "an object stays", "A queue pair of a program that left did not end in time.", "its worker stands still", "look for \"worker stands still\""),
	message("metrics are served", "the HTTP server is there", "[http] listen is open.", "the daemon started", "nothing"),
	message("metrics are not served any more", "the HTTP server ended", "The server of metrics and of the page failed.", "the port was taken away", "systemctl restart xwarpd"),
	message("metrics are open to the network: whoever reaches the address reads them, without encryption", "metrics are public", "[http] listen is no address of loopback.", "that address was configured", "listen on 127.0.0.1, or filter the port"),
	message("next hop", "no way to the peer", "The neighbour or the route to a peer cannot be had.", "no route, or nobody answers ARP or NDP", "ip route get PEER; ip neigh show"),
	message("program came", "a program connected", "A program opened the control socket.", "a program of this host", "nothing"),
	message("program left", "a program ended", "What it had is given back.", "it closed its device or ended", "nothing"),
	message("program dropped", "a program was cut off", "A program broke the protocol of the control socket, or does not read.", "another version, or a defect of it", "look at \"error\"; use the same version"),
	message("program refused", "a program was turned away", "A program may not use the daemon, or as many as may are there.", "daemon.clients, limits.sessions", "xwarp resource show session; raise the limit"),
	message("programs cannot be served: what they share with the daemon cannot be guarded", "no control socket", "Memory that programs share cannot be protected from being cut short, so programs are not served.", "the signal handler could not be set", "report it with the kernel's version"),
	message("reload", "a reload failed", "The new configuration is wrong or could not be put into effect; \"error\" says where.", "a wrong file", "xwarp config check"),
	message("stopping", "the daemon ends", "Connections get daemon.grace to end in order.", "a signal, or the error in the line", "nothing"),
	message("the interface keeps its program", "XDP stays attached", "The XDP program could not be taken off the interface.", "the interface is gone, or the kernel refused", "ip link set dev NAME xdp off"),
	message("the stop goes on without what has not ended in time", "grace ran out", "Something did not end within daemon.grace.", "a peer does not close its side", "a longer daemon.grace"),
	message("transfer", "a put or get ended", "A transfer with an export for transfer is over; \"error\" is empty when it is right.", "xwarp put or get", "nothing, unless there is an error"),
	message("trying again", "another attempt to connect", "A peer refused something of the start-up; it is tried without that.", "Linux siw rejects markers, old peers revision 2", "nothing; --no-markers saves the attempt"),
	message("watchdog", "systemd was not told", "The word to systemd's watchdog could not be sent.", "NOTIFY_SOCKET is wrong", "look at the unit"),
	message("worker stands still", "a worker hangs", "A worker has not run for daemon.stall.", "no processor time, a debugger, a defect", "report the line and the stack in the next"),
	message("worker goes on", "a worker runs again", "A worker that stood still runs again.", "the machine was busy", "nothing, unless it comes again"),
	message("xwarpd ends", "the daemon failed", "The daemon could not start, or failed; \"error\" says why.", "see the error", "mend it; systemctl start xwarpd"),
}

func message(code, name, meaning, cause, remedy string) Entry {
	return Entry{Kind: Log, Code: code, Name: name, Meaning: meaning, Causes: lines{cause}, Remedy: lines{remedy}}
}

// byMessage finds the message of a whole line of a log, as text or as JSON.
func byMessage(q string) []Entry {
	for _, e := range messages {
		code := strings.ToLower(e.Code)
		for _, form := range []string{`msg="` + code + `"`, "msg=" + code + " ", `"msg":"` + code + `"`} {
			if strings.Contains(q+" ", form) {
				return []Entry{e}
			}
		}
	}
	return nil
}
