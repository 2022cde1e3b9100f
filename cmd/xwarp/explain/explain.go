// Package explain explains error codes: their meaning, usual causes and remedy. It covers Terminate codes of RDMAP, DDP
// and MPA, completion statuses, RDMA_CM events, ends of TCP connections, drop causes, counters and log messages. The
// texts of counters are in package counters, all others in the directory texts.
package explain

import "slices"

// Kind is the kind of a code.
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
	Counter   Kind = "counter"
	Outcome   Kind = "steering outcome"
)

// Entry explains one code.
type Entry struct {
	Kind    Kind     `json:"kind" doc:"Terminate, completion status, event, TCP, error, drop cause, log line, counter or steering outcome"`
	Code    string   `json:"code" doc:"code as shown by xwarp; a Terminate is layer/type/code, with the code in hexadecimal"`
	Bytes   string   `json:"bytes,omitempty" doc:"first two bytes of a Terminate on the wire, in hexadecimal"`
	Number  int      `json:"number,omitempty" doc:"number of a completion status in libibverbs"`
	Name    string   `json:"name" doc:"name in the specification or API, or a short description"`
	Meaning string   `json:"meaning" doc:"what happened"`
	Causes  []string `json:"causes" doc:"usual causes, the most frequent first"`
	Remedy  []string `json:"remedy" doc:"what to do"`
	Spec    string   `json:"spec,omitempty" doc:"specification"`
	Note    string   `json:"note,omitempty" doc:"how the requested code differs from this one"`
}

// The tables of texts. unusedStatuses holds completion statuses that xwarp never returns: Find searches them, All omits
// them.
var (
	terminates     = table(Terminate, "terminate")
	statuses       = table(Status, "status")
	unusedStatuses = table(Status, "foreign")
	events         = table(Event, "event")
	tcpEnds        = table(TCP, "tcp")
	errnos         = table(Errno, "error")
	drops          = table(Drop, "drop")
	messages       = table(Log, "log", "link")
	outcomes       = table(Outcome, "outcome") // in addition to drops; found by byCounter
)

// All returns the entries except unusedStatuses, counters and steering outcomes: Terminates in the order of the RFCs,
// statuses, events, TCP, errors, drop causes and log messages.
func All() []Entry {
	return slices.Concat(terminates(), statuses(), events(), tcpEnds(), errnos(), drops(),
		messages())
}
