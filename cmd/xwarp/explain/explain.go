// Package explain says in words what an error code means, what usually causes it and what to do: Terminate
// codes of RDMAP, DDP and MPA, completion statuses, events of RDMA_CM, ends of TCP connections, causes of
// dropped frames, and lines of the log. The texts are the files below texts.
package explain

import "slices"

// Kind is where a code is seen.
type Kind string

// The kinds.
const (
	Terminate Kind = "Terminate"
	Status    Kind = "completion status"
	Event     Kind = "event"
	TCP       Kind = "TCP"
	Errno     Kind = "error"
	Drop      Kind = "drop cause"
	Log       Kind = "log line"
)

// Entry explains one code.
type Entry struct {
	Kind    Kind     `json:"kind" doc:"Terminate, completion status, event, TCP, error, drop cause or log line"`
	Code    string   `json:"code" doc:"as the messages of xwarp write it; a Terminate is layer/type/code, the code in hexadecimal"`
	Bytes   string   `json:"bytes,omitempty" doc:"of a Terminate on the wire, the first two, in hexadecimal"`
	Number  int      `json:"number,omitempty" doc:"of a completion status, in libibverbs"`
	Name    string   `json:"name" doc:"what the specification or the API calls it"`
	Meaning string   `json:"meaning" doc:"what happened"`
	Causes  []string `json:"causes" doc:"usual causes, the most frequent first"`
	Remedy  []string `json:"remedy" doc:"what to do"`
	Spec    string   `json:"spec,omitempty" doc:"where it is specified"`
	Note    string   `json:"note,omitempty" doc:"how the code that was asked for is written differently"`
}

// The tables of texts. Completion statuses that this engine never gives are in foreign: Find knows them,
// All leaves them out.
var (
	terminates = table(Terminate, "terminate")
	statuses   = table(Status, "status")
	foreign    = table(Status, "foreign")
	events     = table(Event, "event")
	tcpEnds    = table(TCP, "tcp")
	errnos     = table(Errno, "error")
	drops      = table(Drop, "drop")
	messages   = table(Log, "log", "link")
)

// All returns every entry: Terminates in the order of the RFCs, statuses, events, TCP, errors, causes of
// dropped frames, lines of the log.
func All() []Entry {
	return slices.Concat(terminates(), statuses(), events(), tcpEnds(), errnos(), drops(),
		messages())
}
