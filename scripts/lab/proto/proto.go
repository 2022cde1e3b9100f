// Package proto is what the host and the guest agent say to each other: JSON values one after the other, over
// one virtio-serial port. The host sends Requests, the agent answers with Events. Any number of commands may
// run at the same time.
package proto

// PortName is the name of the virtio-serial port.
const PortName = "xwarp.lab"

// Op says what a Request wants.
type Op string

const (
	OpStart  Op = "start"  // run Command with sh -c, in a process group of its own
	OpSignal Op = "signal" // send Signal to the process group of ID
	OpHalt   Op = "halt"   // power off
)

// Request is one order of the host. ID names the command, or the order itself, and is never used twice.
type Request struct {
	ID      uint64 `json:"id"`
	Op      Op     `json:"op"`
	Command string `json:"cmd,omitempty"`
	Signal  int    `json:"sig,omitempty"`
}

// Kind says what an Event tells.
type Kind string

const (
	KindReady  Kind = "ready"  // the agent listens; sent once, with ID 0
	KindOutput Kind = "output" // Data came from Command's standard output or standard error
	KindExit   Kind = "exit"   // it ended with Code; nothing more comes for this ID
	KindError  Kind = "error"  // the order could not be carried out, for the reason Text
)

// Event is what the agent says about the Request with the same ID.
type Event struct {
	ID   uint64 `json:"id"`
	Kind Kind   `json:"kind"`
	Code int    `json:"code,omitempty"` // exit status; 128 + signal number when a signal ended it
	Data []byte `json:"data,omitempty"`
	Text string `json:"text,omitempty"`
}
