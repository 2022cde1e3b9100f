package explain

import (
	"fmt"

	"xwarp/ddp/rdmap"
)

// statuses makes an entry of each status that a completion may have.
func statuses() []Entry {
	var list []Entry
	for s := rdmap.Success; ; s++ {
		if s.String() == fmt.Sprintf("status %d", uint8(s)) {
			return list
		}
		t := statusTexts[s]
		list = append(list, Entry{
			Kind: Status, Code: s.String(), Number: verbsNumbers[s], Name: "IBV_WC_" + s.String(),
			Meaning: t.meaning, Causes: t.causes, Remedy: t.remedy,
			Spec: "libibverbs, ibv_poll_cq(3)", status: s,
		})
	}
}

// verbsNumbers are the values of enum ibv_wc_status.
var verbsNumbers = map[rdmap.Status]int{
	rdmap.Success: 0, rdmap.LocLenErr: 1, rdmap.LocQPOpErr: 2, rdmap.LocProtErr: 4,
	rdmap.WRFlushErr: 5, rdmap.BadRespErr: 7,
	rdmap.RemInvReqErr: 9, rdmap.RemAccessErr: 10, rdmap.RemOpErr: 11, rdmap.FatalErr: 19,
}

const first = "look at the first completion that is no SUCCESS and at QP.Err: the ones after it " +
	"only follow"

var statusTexts = map[rdmap.Status]text{
	rdmap.Success: {
		"The work request is done. A Send or Write is done when the peer's TCP acknowledged its " +
			"octets: its memory may be used again. That the peer's program saw them is known " +
			"only by an answer, or by a Read that follows.",
		lines{"everything went well"}, lines{"nothing"},
	},
	rdmap.LocLenErr: {
		"A message and the memory of its work request do not fit: usually a Send of the peer is " +
			"longer than the receive.",
		lines{"receives are shorter than the peer's messages",
			"a work request of more than 2^32-1 octets"},
		lines{"post receives as long as the longest message"},
	},
	rdmap.LocQPOpErr: {
		"The queue pair cannot do such a work request.",
		lines{"an RDMA Read or atomic with ORD 0", "an atomic whose result is not 8 octets",
			"an operation of RFC 7306 on a connection of version 0"},
		lines{"give the queue pair an ORD above 0 and see what was agreed (QP.Params)"},
	},
	rdmap.LocProtErr: {
		"The memory that the work request names is not there for it on this side.",
		lines{"the STag is of another protection domain, or deregistered",
			"an SGE reaches beyond its region",
			"the region lacks LocalWrite and is to be written (receive, Read, atomic)"},
		lines{"make SGEs with MR.SGE; register with LocalWrite what shall receive"},
	},
	rdmap.WRFlushErr: {
		"The work request was not done, or not known to be done, when the connection ended. " +
			"Receives that wait at the end of a connection always end so.",
		lines{"the connection was closed by either side",
			"another work request or the connection failed before"},
		lines{first},
	},
	rdmap.RemInvReqErr: {
		"The peer refused the message as such (a Terminate of type \"remote operation\" or DDP " +
			"untagged says why), or an atomic's response was wrong.",
		lines{"no receive was posted for a Send, or one too short",
			"an operation that the peer does not know (RFC 7306)"},
		lines{"xwarp explain with the code of the Terminate, which QP.Err and the log show"},
	},
	rdmap.RemAccessErr: {
		"The peer does not allow access to the memory that the work request names.",
		lines{"STag, offset or length are wrong", "the peer's region lacks the right, or is gone"},
		lines{"compare what the peer advertised with RemoteSTag, RemoteTO and the length",
			"xwarp explain with the code of the Terminate"},
	},
	rdmap.RemOpErr: {
		"The peer could not carry the operation out and ended the connection.",
		lines{"the peer's program or stack failed"},
		lines{"read the peer's log", "xwarp explain with the code of the Terminate"},
	},
	rdmap.BadRespErr: {
		"A response arrived that no request of ours explains: a Read Response of wrong place or " +
			"length, or one too many.",
		lines{"a fault of the peer's stack", "an RTR Read that the peer answered twice"},
		lines{"capture the connection and compare Read Requests with Read Responses"},
	},
	rdmap.FatalErr: {
		"The connection was lost while the work request was under way. Whether the peer has its " +
			"octets is not known.",
		lines{"RST: the peer's process died or its host restarted",
			"TCP gave up after many retransmissions",
			"the peer closed in the middle of an operation"},
		lines{first, "connect anew, and make the operation one that may be repeated"},
	},
}
