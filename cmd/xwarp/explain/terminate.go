package explain

import (
	"fmt"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/mpa"
	"xwarp/mpa/ulpdu"
)

// text is what the table of a kind adds to a code.
type text struct {
	meaning string
	causes  []string
	remedy  []string
}

type lines = []string

const (
	trace = "capture the connection (xwarp demo --pcap, tcpdump) and read the Terminate with " +
		"tshark: it carries the header of the message at fault"
	stag = "compare the STag and the offset that were advertised with those of the refused " +
		"message; the Terminate carries its header"
)

func mpaCause(code uint8) ddp.Cause { return ddp.MakeCause(ulpdu.MPA, 0, code) }

// terminates makes an entry of each row that a Terminate can name.
func terminates() []Entry {
	var list []Entry
	for _, r := range rdmap.Rows() {
		list = append(list, terminate(r.Cause, r.Name, terminateTexts[r.Cause]))
	}
	return list
}

func terminate(c ddp.Cause, name string, t text) Entry {
	spec := "RFC 5040, 4.8 and 7"
	switch {
	case c.Layer() == ulpdu.DDP:
		spec = "RFC 5041, 7.2"
	case c.Layer() == ulpdu.MPA && c.Code() > mpa.CodeStartup:
		spec = "RFC 6581, 8"
	case c.Layer() == ulpdu.MPA:
		spec = "RFC 5044, 8"
	}
	return Entry{
		Kind: Terminate, Code: fmt.Sprintf("%d/%d/%02x", c.Layer(), c.Type(), c.Code()),
		Octets: fmt.Sprintf("%02x %02x", byte(c.Layer())<<4|c.Type(), c.Code()),
		Name:   name, Meaning: t.meaning, Causes: t.causes, Remedy: t.remedy, Spec: spec, cause: c,
	}
}

// unknown explains what can be said of a code that no specification names.
func unknown(c ddp.Cause) Entry {
	e := terminate(c, "no specification names this code", text{
		meaning: fmt.Sprintf("The sender of the Terminate found an error in its layer %v and "+
			"closes the connection. The type and code are not in the RFCs.", c.Layer()),
		causes: lines{"a peer with codes of its own", "a Terminate whose fields are in another " +
			"order (Linux siw exchanges the nibbles of the first octet)"},
		remedy: lines{"look the code up in the peer's documentation or source"},
	})
	if c.Layer() > ulpdu.MPA {
		e.Meaning = "The layer is none of 0 (RDMAP), 1 (DDP) and 2 (MPA). The connection is " +
			"closed all the same."
	}
	return e
}

var terminateTexts = map[ddp.Cause]text{
	rdmap.CauseCatastrophic: {
		"The RDMAP layer of the sender failed for a reason of its own, not because of a message. " +
			"Any code may stand behind 0/0.",
		lines{"the sender's program failed, ran out of memory, or its completion queue overflowed",
			"a local work request failed (LOC_PROT_ERR at the sender)"},
		lines{"read the log of the side that sent the Terminate",
			"make completion queues as deep as all work requests that use them"},
	},
	rdmap.CauseProtSTag: {
		"An RDMA Read or atomic names an STag that does not exist at the peer.",
		lines{"the region was deregistered or invalidated before the Read was executed",
			"the STag was taken from an earlier connection or process",
			"octets of the STag were exchanged (it is big-endian on the wire)"},
		lines{stag, "keep a region registered until the peer said that it is done with it"},
	},
	rdmap.CauseProtBounds: {
		"An RDMA Read or atomic reaches beyond the region that its STag names.",
		lines{"offset or length are wrong", "the region was registered shorter than advertised",
			"an address is used as offset although the region counts from 0, or the other way round"},
		lines{stag},
	},
	rdmap.CauseProtAccess: {
		"The region exists, and does not allow the operation.",
		lines{"an RDMA Read of a region without the remote-read right",
			"an atomic on a region without the remote-atomic right"},
		lines{"register the region with the right (RemoteRead, RemoteAtomic)"},
	},
	rdmap.CauseProtStream: {
		"The STag belongs to another protection domain or another connection.",
		lines{"region and queue pair were made in different protection domains",
			"the STag of one connection is used on another"},
		lines{"make the queue pair in the protection domain of the region"},
	},
	rdmap.CauseProtWrap: {
		"Offset plus length go beyond 2^64.",
		lines{"a negative number as offset or length", "octets of the offset were exchanged"},
		lines{stag},
	},
	rdmap.CauseProtInvalidate: {
		"A Send with Invalidate names a region that may not be invalidated over this connection.",
		lines{"the region is of another protection domain, or shared by several connections",
			"the region is in use by a work request"},
		lines{"only ask to invalidate what this connection's peer has advertised on it for that"},
	},
	rdmap.CauseProtUnspecified: {
		"The peer refuses access and does not say why.",
		lines{"any of the other protection errors, at a peer that keeps details to itself"},
		lines{"read the peer's log", stag},
	},
	rdmap.CauseVersion: {
		"A message carries another RDMAP version than the connection's: 1 after MPA revisions 1 " +
			"and 2, 0 with an RDMA Consortium peer.",
		lines{"one side believes in revision 0 (RDMA Consortium), the other in IETF",
			"octets were lost or inserted in the stream"},
		lines{"configure the same role on both sides", trace},
	},
	rdmap.CauseOpcode: {
		"A message has an opcode that the receiver does not know, or that does not fit its queue.",
		lines{"Immediate Data or an atomic (RFC 7306) sent to a peer that only knows RFC 5040, " +
			"such as Linux siw", "a Read Response or Atomic Response that nobody asked for"},
		lines{"do not use RFC 7306 with this peer; nothing in the start-up announces it, so " +
			"programs must know", trace},
	},
	rdmap.CauseStreamFatal: {
		"An operation failed in a way that ends this connection, and only this one.",
		lines{"an atomic on an address that is not a multiple of 8",
			"more RDMA Reads and atomics at a time than the receiver's IRD",
			"a Read Request of a wrong length"},
		lines{"align atomics to 8 octets", "compare ORD here with IRD there; MPA revision 2 " +
			"negotiates them"},
	},
	rdmap.CauseGlobalFatal: {
		"The peer's RDMA device as a whole failed; all of its connections are affected.",
		lines{"a fault of the peer's device or driver"},
		lines{"read the peer's kernel log; reset its device"},
	},
	rdmap.CauseOpInvalidate: {
		"A Send with Invalidate names an STag that does not exist.",
		lines{"the region is invalidated or deregistered already", "the STag is wrong"},
		lines{stag, "invalidate once: either by the peer's Send or locally"},
	},
	rdmap.CauseOpUnspecified: {
		"The peer could not carry out a message and does not say why.",
		lines{"any of the other remote operation errors, at a peer that keeps details to itself"},
		lines{"read the peer's log", trace},
	},
	ddp.CauseCatastrophic: {
		"The DDP layer of the sender failed for a reason of its own.",
		lines{"memory or resources ran out at the peer"},
		lines{"read the log of the side that sent the Terminate"},
	},
	ddp.CauseSTag: {
		"An RDMA Write or Read Response names an STag that does not exist at the receiver, or " +
			"one that allows no placement.",
		lines{"the region was deregistered or invalidated while the peer still wrote",
			"the region lacks the remote-write right", "the STag is of an earlier connection or " +
				"process, or its octets were exchanged"},
		lines{stag, "register with RemoteWrite",
			"keep a region registered until the peer said that it is done with it"},
	},
	ddp.CauseBounds: {
		"An RDMA Write or Read Response reaches beyond the region.",
		lines{"offset or length are wrong", "the region was registered shorter than advertised",
			"an address is used as offset although the region counts from 0, or the other way round"},
		lines{stag},
	},
	ddp.CauseStream: {
		"An RDMA Write or Read Response names a region of another protection domain or connection.",
		lines{"region and queue pair were made in different protection domains"},
		lines{"make the queue pair in the protection domain of the region"},
	},
	ddp.CauseWrap: {
		"Offset plus length of an RDMA Write or Read Response go beyond 2^64.",
		lines{"a negative number as offset", "octets of the offset were exchanged"},
		lines{stag},
	},
	ddp.CauseTaggedVersion: {
		"A tagged segment carries another DDP version than the connection's.",
		lines{"one side believes in MPA revision 0 (RDMA Consortium), the other in IETF",
			"octets were lost or inserted in the stream"},
		lines{"configure the same role on both sides", trace},
	},
	ddp.CauseQN: {
		"An untagged segment names a queue that does not exist: there are 0 (Sends), 1 " +
			"(requests), 2 (Terminate) and 3 (Atomic Responses).",
		lines{"a peer that uses RFC 7306 against one without", "a fault of the peer's stack"},
		lines{trace},
	},
	ddp.CauseNoBuffer: {
		"A Send arrived and no receive was posted for it. iWARP has no way to ask the sender to " +
			"wait: it is the programs' duty.",
		lines{"fewer receives were posted than the peer may send",
			"the peer sends before it heard that receives are posted",
			"more RDMA Reads at a time than the receiver's IRD (queue 1)"},
		lines{"post receives before Dial or Accept, and post one again before answering the " +
			"message that used it", "agree on credits",
			"for RDMA Reads: a lower ORD here or a larger IRD there"},
	},
	ddp.CauseMSNRange: {
		"The message number of an untagged segment is not one that can come next.",
		lines{"messages were lost or repeated in the peer's stack",
			"no receive was posted: some peers report that so"},
		lines{"post receives earlier", trace},
	},
	ddp.CauseMO: {
		"An untagged segment begins beyond the end of the receive, or where no segment of its " +
			"message can begin.",
		lines{"a fault of the peer's stack", "a message longer than the receive, at peers that " +
			"report it so (Linux siw does)"},
		lines{"post receives as long as the longest message", trace},
	},
	ddp.CauseTooLong: {
		"A Send is longer than the receive that was posted for it. Its work request ends with " +
			"LOC_LEN_ERR at the receiver.",
		lines{"the two programs disagree about the length of messages"},
		lines{"post receives as long as the longest message"},
	},
	ddp.CauseUntaggedVersion: {
		"An untagged segment carries another DDP version than the connection's.",
		lines{"one side believes in MPA revision 0 (RDMA Consortium), the other in IETF",
			"octets were lost or inserted in the stream"},
		lines{"configure the same role on both sides", trace},
	},
	mpaCause(mpa.CodeClosed): {
		"The TCP connection was closed, lost or reset while it was in use. It is reported to the " +
			"program; no Terminate can carry it, since there is no connection.",
		lines{"the peer's process ended, or closed with work under way",
			"a firewall or load balancer cut the connection",
			"the network was down for longer than TCP tries", "a FIN in the middle of an FPDU"},
		lines{"read the peer's log first", "close only after the last completion (QP.Disconnect " +
			"with nothing under way)", "ss -ti and xwarp's TCP counters tell retransmissions"},
	},
	mpaCause(mpa.CodeCRC): {
		"The CRC32C of an FPDU does not match its octets, although the TCP checksum did: the " +
			"data was changed on the way, or the sender made it wrong. Nothing of the FPDU or " +
			"behind it was given to the program.",
		lines{"memory or a bus of a NIC, switch or middlebox is faulty",
			"a middlebox rewrites payload", "the same for an FPDU that straddles segments, " +
				"because a middlebox cuts them anew or the sender does not align: its head is " +
				"acknowledged before its CRC can be checked, and one change on the way is then " +
				"the end; that is no fault of the sender's",
			"one side has the CRC off and the other on, outside of the specification",
			"a fault in a stack's marker or padding code, when it happens at once and always"},
		lines{"xwarp has TCP send such a segment again, and gives up after a few times; a part " +
			"of the FPDU that was acknowledged before cannot be sent again, nor anything over " +
			"the kernel's sockets. The error's text says which it was; look at the counters " +
			"CRCDrops and Spanning", "try another path, NIC or cable",
			"disable offloads on both sides (ethtool -K) to find the guilty one",
			"if it happens with the first FPDU: compare the start-up frames, and try without markers", "a peer that neither makes nor checks the CRC whatever was agreed: do without on both ends, with --crc=false of xwarp serve, put and get, --no-crc of xwarp rping, crc = false in a [[peer]] of xwarpd"},
	},
	mpaCause(mpa.CodeMarker): {
		"A marker does not point to where the lengths of the FPDUs say that an FPDU begins, " +
			"although the CRC is right: sender and receiver disagree about the framing.",
		lines{"a fault in the sender's marker code",
			"an RDMA Consortium peer that counts from another origin",
			"octets were inserted or removed in the stream"},
		lines{"connect without markers (MPAConfig.NoMarkers, --no-markers)", trace},
	},
	mpaCause(mpa.CodeStartup): {
		"An MPA Request or Reply is not one: wrong key, wrong length, or a Request where a Reply " +
			"must be. The connection is closed at once.",
		lines{"something else than iWARP speaks or listens on that port",
			"both sides are initiators, or both responders", "a proxy sits between",
			"Linux siw refuses octets that follow its frame in the same segment, and private " +
				"data of more than 256 octets"},
		lines{"check the port on both sides", "capture the first two data segments: they begin " +
			"with \"MPA ID Req Frame\" and \"MPA ID Rep Frame\""},
	},
	mpaCause(mpa.CodeLocal): {
		"The sender could not set the connection up for a reason of its own.",
		lines{"queue pairs, memory or device resources ran out",
			"the program went away between request and answer"},
		lines{"read the log of the side that sent the Terminate"},
	},
	mpaCause(mpa.CodeIRD): {
		"The peer wants more RDMA Reads at a time (its ORD) than this side can take (its IRD), " +
			"or the other way round.",
		lines{"ORD and IRD of the programs do not fit (rdma_conn_param: initiator_depth, " +
			"responder_resources)", "a peer that takes 0x3FFF (\"not negotiated\") as a number, " +
			"as cxgb4 and siw do"},
		lines{"raise IRD on the side that answers Reads, or lower ORD on the side that makes " +
			"them; up to 32 is safe with hardware, 128 is siw's limit"},
	},
	mpaCause(mpa.CodeRTR): {
		"In the peer-to-peer model the initiator must send a ready-to-receive message (Send, " +
			"Write or Read of length 0); the two sides have none in common.",
		lines{"a peer that only takes a Read, or only a Write", "a peer that answers a Request " +
			"with A without any choice (siw does when only Send is offered)"},
		lines{"offer the Read alone (xwarp's default) or all three (MPAConfig.RTR)",
			"turn the peer-to-peer model off when the initiator's program sends first " +
				"(MPAConfig.NoPeerToPeer; peer_to_peer=0 of siw)"},
	},
}
