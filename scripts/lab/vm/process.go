package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"xwarp/scripts/lab/proto"
)

// agent is the host's end of the conversation with the guest agent.
type agent struct {
	conn  *os.File
	ready chan struct{}
	gone  chan struct{} // closed when the conversation has ended

	wmu sync.Mutex // orders requests; never taken with mu held, so that reading goes on while a write waits
	out *json.Encoder

	mu    sync.Mutex
	last  uint64
	procs map[uint64]*Process
	err   error // why it ended
}

func newAgent(conn *os.File) *agent {
	a := &agent{conn: conn, ready: make(chan struct{}), gone: make(chan struct{}),
		out: json.NewEncoder(conn), procs: map[uint64]*Process{}}
	go a.read()
	return a
}

// read distributes the events until the connection ends; then everything that still waits fails.
func (a *agent) read() {
	in := json.NewDecoder(a.conn)
	for {
		var e proto.Event
		err := in.Decode(&e)
		if err != nil {
			a.mu.Lock()
			a.err = fmt.Errorf("the machine is gone: %w", err)
			for id, p := range a.procs {
				delete(a.procs, id)
				p.end(-1, a.err)
			}
			a.mu.Unlock()
			close(a.gone)
			return
		}
		if e.Kind == proto.KindReady {
			close(a.ready)
			continue
		}
		a.mu.Lock()
		p := a.procs[e.ID]
		if e.Kind != proto.KindOutput {
			delete(a.procs, e.ID)
		}
		a.mu.Unlock()
		if p != nil {
			p.handle(&e)
		}
	}
}

// start has the machine run a command and returns what collects its events.
func (a *agent) start(command string) (*Process, error) {
	a.mu.Lock()
	if a.err != nil {
		a.mu.Unlock()
		return nil, a.err
	}
	a.last++
	p := &Process{agent: a, id: a.last, command: command, changed: make(chan struct{}),
		done: make(chan struct{})}
	a.procs[p.id] = p
	a.mu.Unlock()
	return p, a.send(proto.Request{ID: p.id, Op: proto.OpStart, Command: command})
}

func (a *agent) send(r proto.Request) error {
	a.wmu.Lock()
	defer a.wmu.Unlock()
	if err := a.out.Encode(r); err != nil {
		return fmt.Errorf("send to the machine: %w", err)
	}
	return nil
}

func (a *agent) waitReady(ctx context.Context, exited <-chan struct{}) error {
	select {
	case <-a.ready:
		return nil
	case <-exited:
		return errors.New("the emulator ended before the machine was ready")
	case <-ctx.Done():
		return fmt.Errorf("the machine is not ready: %w", ctx.Err())
	}
}

// halt asks the machine to power off, if it can still be asked.
func (a *agent) halt() {
	a.conn.SetWriteDeadline(time.Now().Add(time.Second))
	a.send(proto.Request{Op: proto.OpHalt}) // a machine that cannot hear it is killed
}

func (a *agent) close() error {
	err := a.conn.Close()
	<-a.gone
	return err
}

// Process is a command in a machine.
type Process struct {
	agent   *agent
	id      uint64
	command string
	done    chan struct{} // closed when it has ended

	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, when there is new output
	output  bytes.Buffer
	code    int
	err     error
}

func (p *Process) handle(e *proto.Event) {
	switch e.Kind {
	case proto.KindOutput:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.output.Write(e.Data)
		close(p.changed)
		p.changed = make(chan struct{})
	case proto.KindExit:
		p.end(e.Code, nil)
	case proto.KindError:
		p.end(-1, errors.New(e.Text))
	}
}

func (p *Process) end(code int, err error) {
	p.mu.Lock()
	p.code, p.err = code, err
	p.mu.Unlock()
	close(p.done)
}

// Output returns what the command has printed until now, standard error included.
func (p *Process) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// WaitOutput waits until the command has printed text.
func (p *Process) WaitOutput(text string, timeout time.Duration) error {
	late := time.After(timeout)
	for {
		p.mu.Lock()
		found, changed := bytes.Contains(p.output.Bytes(), []byte(text)), p.changed
		p.mu.Unlock()
		if found {
			return nil
		}
		select {
		case <-changed:
		case <-p.done:
			if strings.Contains(p.Output(), text) {
				return nil
			}
			return fmt.Errorf("%q ended without printing %q; it printed %q", p.command, text,
				p.Output())
		case <-late:
			return fmt.Errorf("%q did not print %q within %v; it printed %q", p.command, text,
				timeout, p.Output())
		}
	}
}

// Wait waits for the command's end and returns its exit code: 128 + the signal's number when a signal ended
// it. A command that does not end in time goes on running.
func (p *Process) Wait(timeout time.Duration) (code int, err error) {
	select {
	case <-p.done:
	case <-time.After(timeout):
		select {
		case <-p.done: // both: it has ended
		default:
			return -1, fmt.Errorf("%q did not end within %v; it printed %q", p.command, timeout,
				p.Output())
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.code, p.err
}

// Signal sends sig to the command and all its children. It is no error when they have ended.
func (p *Process) Signal(sig syscall.Signal) error {
	return p.agent.send(proto.Request{ID: p.id, Op: proto.OpSignal, Signal: int(sig)})
}

// Kill ends the command and all its children, and waits for that.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	_, err := p.Wait(time.Minute)
	return err
}

// Spawn starts command with sh -c in the background. Any number may run.
func (v *VM) Spawn(command string) (*Process, error) {
	return v.agent.start(command)
}

// Run runs command with sh -c and returns what it printed, standard error included, and its exit code. err is
// set only when it could not be run, or did not end in time; then it is killed.
func (v *VM) Run(command string, timeout time.Duration) (out string, code int, err error) {
	p, err := v.Spawn(command)
	if err != nil {
		return "", -1, err
	}
	code, err = p.Wait(timeout)
	if err != nil {
		p.Signal(syscall.SIGKILL)
	}
	return p.Output(), code, err
}

// Listening waits until something in the machine listens on the TCP port. siw's listeners count: they are
// kernel sockets.
func (v *VM) Listening(port uint16, timeout time.Duration) error {
	command := fmt.Sprintf(
		`until grep -qE '^ *[0-9]+: [0-9A-F]+:%04X [0-9A-F]+:0000 0A' /proc/net/tcp /proc/net/tcp6; do sleep 0.05; done`, port)
	if _, _, err := v.Run(command, timeout); err != nil {
		return fmt.Errorf("nothing listens on port %d of the machine: %w", port, err)
	}
	return nil
}
