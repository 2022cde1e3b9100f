// Package proto defines the protocol between the host and the guest agent. It is net/rpc over a virtio-serial port:
//
//	Agent.Ready(0) 0               nothing; the reply shows that the agent serves requests
//	Agent.Start(command) PID       run the command with sh -c, in its own process group
//	Agent.Read(PID) Output         wait until the command prints something or ends
//	Agent.Signal(Signal) 0         send a signal to the command's process group
//	Agent.Halt(0) 0                power off; there is no reply
package proto

// PortName is the name of the virtio-serial port.
const PortName = "xwarp.lab"

// Output is the text that a command has printed since the last Read, or the end of the command.
type Output struct {
	Data  []byte // from standard output and standard error
	Ended bool   // the command has ended; this is its last Output
	Code  int    // exit status, if Ended; 128 + signal number if a signal ended the command
}

// Signal is the argument of Agent.Signal: a signal for a command.
type Signal struct{ PID, Signal int }
