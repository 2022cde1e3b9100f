package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"xwarp/bench/topo"
	"xwarp/scripts/lab/proto"
)

// agent is the host's end of the RPC connection to the guest agent.
type agent struct {
	*rpc.Client
	conn *os.File
}

// answerTimeout is the timeout of requests that the agent answers at once.
const answerTimeout = 5 * time.Minute

// exitTimeout is the time within which the emulator ends after its machine has.
const exitTimeout = 5 * time.Second

// do sends the agent a request that it answers immediately, and waits for the answer.
func (a *agent) do(method string, args, reply any) error {
	call := a.Go(method, args, reply, nil)
	select {
	case <-call.Done:
		if call.Error != nil {
			return fmt.Errorf("%s in the machine: %w", method, call.Error)
		}
		return nil
	case <-time.After(answerTimeout):
		return fmt.Errorf("the machine did not answer %s within %v", method, answerTimeout)
	}
}

func (a *agent) waitReady(ctx context.Context, exited <-chan struct{}) error {
	ready := a.Go("Agent.Ready", 0, new(int), nil)
	select {
	case <-ready.Done:
		return ready.Error
	case <-exited:
		return errors.New("the emulator ended before the machine was ready")
	case <-ctx.Done():
		return fmt.Errorf("the machine is not ready: %w", ctx.Err())
	}
}

// halt asks the machine to power off, if the agent is still connected.
func (a *agent) halt() {
	a.conn.SetWriteDeadline(time.Now().Add(time.Second))
	a.Go("Agent.Halt", 0, new(int), nil) // does not wait: the caller kills a machine that does not end
}

// Process is a command that was started in a machine.
type Process struct {
	vm      *VM
	pid     int
	command string

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when one of the following fields changes
	output  bytes.Buffer
	ended   bool
	code    int
	err     error
}

// follow collects the output of the command until it ends.
func (p *Process) follow() {
	for ended := false; !ended; {
		var o proto.Output
		err := p.vm.agent.Call("Agent.Read", p.pid, &o)
		if err != nil {
			err = p.vm.ended(fmt.Errorf("run %q: %w", p.command, err))
			o = proto.Output{Ended: true, Code: -1}
		}
		if ended = o.Ended; ended && err == nil {
			p.vm.running.Delete(p)
		}
		p.mu.Lock()
		p.output.Write(o.Data)
		p.ended, p.code, p.err = ended, o.Code, err
		close(p.changed)
		p.changed = make(chan struct{})
		p.mu.Unlock()
	}
}

// Pid returns the command's process ID in the machine.
func (p *Process) Pid() int { return p.pid }

// Output returns what the command has printed until now, standard error included.
func (p *Process) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// wait waits until is returns true, and reports whether it did in time. is may read fields that mu guards.
func (p *Process) wait(timeout time.Duration, is func() bool) bool {
	late := time.After(timeout)
	for {
		p.mu.Lock()
		ok, changed := is(), p.changed
		p.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-late:
			return false
		}
	}
}

// WaitOutput waits until the command has printed text.
func (p *Process) WaitOutput(text string, timeout time.Duration) error {
	found := false
	inTime := p.wait(timeout, func() bool {
		found = bytes.Contains(p.output.Bytes(), []byte(text))
		return found || p.ended
	})
	switch {
	case found:
		return nil
	case inTime && p.err != nil:
		return p.err
	case inTime:
		return fmt.Errorf("%q ended without printing %q; it printed %q", p.command, text,
			p.Output())
	}
	return fmt.Errorf("%q did not print %q within %v; it printed %q", p.command, text, timeout,
		p.Output())
}

// Wait waits until the command has ended and returns its exit code, which is 128 + the signal's number if a signal
// ended it. If the command does not end in time, Wait returns an error and the command keeps running.
func (p *Process) Wait(timeout time.Duration) (code int, err error) {
	if !p.wait(timeout, func() bool { return p.ended }) {
		return -1, fmt.Errorf("%q did not end within %v; it printed %q", p.command, timeout,
			p.Output())
	}
	return p.code, p.err // needs no lock: they no longer change
}

// PingCode returns 0 if the exit code of rping only comes from a race at its end, otherwise code. At its end rping
// closes an event channel on which one of its threads may still wait. It then exits with 255 although all its work is
// done.
func PingCode(code int, output string) int {
	const late = "rdma_get_cm_event: Bad file descriptor"
	if code == 255 && strings.HasSuffix(strings.TrimSpace(output), late) {
		return 0
	}
	return code
}

// Signal sends sig to the command's process group. It does nothing if the command has ended.
func (p *Process) Signal(sig syscall.Signal) error {
	return p.vm.agent.do("Agent.Signal", proto.Signal{PID: p.pid, Signal: int(sig)}, new(int))
}

// Kill kills the command's process group and waits until the command has ended.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	_, err := p.Wait(time.Minute)
	return err
}

// Spawn starts command with sh -c in the background. Several commands may run at the same time.
func (v *VM) Spawn(command string) (*Process, error) {
	p := &Process{vm: v, command: command, changed: make(chan struct{})}
	if err := v.agent.do("Agent.Start", command, &p.pid); err != nil {
		return nil, v.ended(err)
	}
	v.running.Store(p, nil)
	go p.follow()
	return p, nil
}

// ended returns err, the error of a call to the agent, joined with the cause of the machine's end if the machine has
// ended.
func (v *VM) ended(err error) error {
	select {
	case <-v.exited:
	case <-time.After(exitTimeout):
	}
	return errors.Join(err, v.death())
}

// Run runs command with sh -c. It returns its output, standard error included, and its exit code. err is not nil only
// if the command could not be run or did not end in time. In the latter case Run kills it.
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

// Listening waits until a kernel socket in the machine listens on the TCP port. The listeners of siw are such sockets.
func (v *VM) Listening(port uint16, timeout time.Duration) error {
	command := fmt.Sprintf(
		`until grep -qE '^ *[0-9]+: [0-9A-F]+:%04X [0-9A-F]+:0000 0A' /proc/net/tcp /proc/net/tcp6; do sleep 0.05; done`, port)
	if _, _, err := v.Run(command, timeout); err != nil {
		return fmt.Errorf("nothing listens on port %d of the machine: %w", port, err)
	}
	return nil
}

// Script runs a shell script, which ends at the first command that fails, and returns its output. It writes the script
// and its output to log. The error of a failed script is the last line of its output.
func (v *VM) Script(log io.Writer, script string, timeout time.Duration) (string, error) {
	fmt.Fprintf(log, "$ %s\n", script)
	begin := time.Now()
	out, code, err := v.Run("set -e\n"+script, timeout)
	fmt.Fprintf(log, "%s[%d, %.1f s]\n", out, code, time.Since(begin).Seconds())
	output := strings.TrimSpace(out)
	last := output[strings.LastIndexByte(output, '\n')+1:]
	if err != nil && v.Running() {
		err = fmt.Errorf("did not end within %v; last line: %s", timeout, last)
	}
	if err == nil && code != 0 {
		err = errors.New(last)
	}
	return out, err
}

// guestState and hostState are commands that show the state of the network, in the machine and in the namespaces of the
// host. They help to find out why it stalls.
const (
	guestState = `ip -s -s link show eth0; ip neigh; ss -tnoime; grep virtio /proc/interrupts
cat /proc/net/softnet_stat; ethtool -S eth0 | grep -v ': 0$'; nstat -as | grep -v ' 0  '`
	hostState = `ip -s -s link; ip neigh; tc -s qdisc; ss -tnoime; cat /proc/net/softnet_stat`
)

// NetworkState returns as text the state of each part of the network, from the machine to the peer namespace, and the
// output of a ping of the machine.
func (v *VM) NetworkState() string {
	var b strings.Builder
	say := func(where, out string, err error) {
		fmt.Fprintf(&b, "\n%s:\n%s", where, out)
		if err != nil {
			fmt.Fprintln(&b, err)
		}
	}
	out, _, err := v.Run(guestState, time.Minute)
	say("the machine", out, err)
	for _, n := range []struct {
		name string
		*topo.Namespace
	}{{"the bridge", v.net.hub}, {"the peer", v.net.Peer}} {
		out, _, err = n.Run(time.Minute, "sh", "-c", hostState)
		say(n.name, out, err)
	}
	out, _, err = v.net.Peer.Run(time.Minute, "ping", "-c", "3", "-W", "5", v.Addr4.String())
	say("ping from the peer", out, err)
	return b.String()
}
