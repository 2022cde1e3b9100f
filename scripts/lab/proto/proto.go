// Package proto is the protocol between the host and the guest agent, by package net/rpc over one virtio-serial port:
//
//	Agent.Ready(0) 0               nothing; the agent listens
//	Agent.Start(command) PID       run it with sh -c, in a process group of its own
//	Agent.Read(PID) Output         wait for what it prints, or for its end
//	Agent.Signal(Signal) 0         send a signal to the process group
//	Agent.Halt(0) 0                power off; there is no reply
package proto

// PortName is the name of the virtio-serial port.
const PortName = "xwarp.lab"

// Output is the text that a command has printed since the last read, or its exit, which is the last Output.
type Output struct {
	Data  []byte // of its standard output and standard error
	Ended bool
	Code  int // exit status; 128 + signal number when a signal ended it
}

// Signal is one for a command.
type Signal struct{ PID, Signal int }
