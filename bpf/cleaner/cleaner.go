// Package cleaner starts this program again as a second process, which cleans up when the first one ends, even if it is
// killed. The second process is this program with other arguments, which an init function handles, so that any program
// that links the package has it.
package cleaner

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// ready is the first line of the second process.
const ready = "ready\n"

// Process is a second process.
type Process struct {
	*exec.Cmd
	Pipe   io.WriteCloser // its standard input; at the end of file it cleans up and ends
	Output *bufio.Reader  // its standard output, after the first line
}

// Start starts the second process with args, of which the first one names it, and with the ambient capabilities caps.
// It returns once the process ignores the signals that usually end a program.
func Start(args []string, caps ...uintptr) (*Process, error) {
	c := &exec.Cmd{Path: "/proc/self/exe", Args: args, Dir: "/", Stderr: os.Stderr,
		Env: append(os.Environ(), "GOMAXPROCS=1")}
	c.SysProcAttr = &syscall.SysProcAttr{ // its own session, so that signals to the process group do not reach it
		Setsid: true, AmbientCaps: caps}
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("starting the process %s: %w", args[0], err)
	}
	p := &Process{c, in, bufio.NewReader(out)}
	if line, err := p.Output.ReadString('\n'); line != ready {
		err = fmt.Errorf("the process %s printed %q: %w", args[0], line, err)
		return nil, errors.Join(err, in.Close(), c.Wait())
	}
	return p, nil
}

// Ready makes the second process ignore the signals that usually end a program, and tells the first process.
func Ready() {
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE)
	io.WriteString(os.Stdout, ready)
}
