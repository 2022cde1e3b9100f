package main

import (
	"fmt"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"xwarp/scripts/lab/proto"
)

// Agent executes the host's requests, which package proto defines. Package rpc calls each in its own goroutine.
type Agent struct {
	mu       sync.Mutex
	commands map[int]*command // by process ID, which is also the process group
}

// command is a command that was started and whose end was not read yet. Its output comes through one pipe, which ends
// when the command and all processes that inherited it have closed it.
type command struct {
	cmd *exec.Cmd
	out *os.File
}

// serve answers the host until the port closes or the host sends Halt.
func serve() error {
	port, err := openPort(proto.PortName)
	if err != nil {
		return err
	}
	if err := rpc.Register(&Agent{commands: map[int]*command{}}); err != nil {
		return err
	}
	rpc.ServeConn(port)
	return nil
}

// openPort opens the virtio-serial port called name for blocking I/O.
func openPort(name string) (*os.File, error) {
	files, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil || strings.TrimSpace(string(text)) != name {
			continue
		}
		dev := "/dev/" + filepath.Base(filepath.Dir(f))
		fd, err := unix.Open(dev, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", dev, err)
		}
		return os.NewFile(uintptr(fd), dev), nil
	}
	return nil, fmt.Errorf("no virtio-serial port is named %s", name)
}

// Ready does nothing. Its answer shows that the agent serves requests.
func (a *Agent) Ready(int, *int) error { return nil }

// Halt ends this process, and with it the machine.
func (a *Agent) Halt(int, *int) error {
	os.Exit(0)
	return nil
}

// Start starts a command line by the shell and returns its process ID.
func (a *Agent) Start(line string, pid *int) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer w.Close()
	cmd := exec.Command("/bin/sh", "-c", line)
	cmd.Dir = "/root"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		r.Close()
		return err
	}
	*pid = cmd.Process.Pid
	a.mu.Lock()
	defer a.mu.Unlock()
	a.commands[*pid] = &command{cmd, r}
	return nil
}

// Read waits until a command prints something or ends, and returns the output, or that it ended with its exit code.
func (a *Agent) Read(pid int, o *proto.Output) error {
	a.mu.Lock()
	c := a.commands[pid]
	a.mu.Unlock()
	b := make([]byte, 1<<16)
	if n, _ := c.out.Read(b); n > 0 {
		o.Data = b[:n]
		return nil
	}
	c.out.Close()
	c.cmd.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.commands, pid)
	o.Ended, o.Code = true, exitCode(c.cmd.ProcessState)
	return nil
}

// Signal sends a signal to the process group of a command, unless the end of the command was already read.
func (a *Agent) Signal(s proto.Signal, _ *int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.commands[s.PID] != nil {
		unix.Kill(-s.PID, unix.Signal(s.Signal))
	}
	return nil
}

func exitCode(p *os.ProcessState) int {
	if status, ok := p.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.ExitCode()
}
