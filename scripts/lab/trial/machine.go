package trial

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"xwarp/scripts/lab/output"
	"xwarp/scripts/lab/vm"
)

// Names in a machine. Its two hosts are the namespaces HostA and HostB, each with an interface NIC. Server is the
// address of host B.
const (
	HostA, HostB = "a", "b"
	NIC          = "eth0"
	Server       = "192.0.2.2"
	Payload      = "/tmp/payload" // the file that transfers move
	Served       = "/tmp/served"  // the directory that a server serves
	Xwarp        = vm.SharePath + "/xwarp"
)

// MakeServed is a script that makes Served an empty directory.
const MakeServed = "rm -rf " + Served + "; mkdir " + Served + "\n"

// Patience is the timeout of one command. It is long, because the emulated machine may share two processors with other
// work.
const Patience = 15 * time.Minute

// Machine is a virtual machine, and the log of what runs in it.
type Machine struct {
	*vm.VM
	Log io.Writer
}

// In returns a command that runs in a host's namespace.
func In(host, command string) string { return "ip netns exec " + host + " " + command }

// Script runs a shell script and returns its output. The error of a failed script has its last line of output.
func (m *Machine) Script(text string) (string, error) { return m.VM.Script(m.Log, text, Patience) }

// Do runs a script that must succeed.
func (m *Machine) Do(script string) error {
	_, err := m.Script(script)
	return err
}

// MakePayload makes Payload a file of mib MiB of random bytes.
func (m *Machine) MakePayload(mib int) error {
	return m.Do(fmt.Sprintf("head -c %dM /dev/urandom >%s", mib, Payload))
}

// Background starts a command and waits until it has printed ready. If the command ends before, the error has its last
// line of output.
func (m *Machine) Background(command, ready string) (*vm.Process, error) {
	fmt.Fprintf(m.Log, "$ %s &\n", command)
	p, err := m.Spawn("exec " + command)
	if err != nil {
		return nil, err
	}
	if err := p.WaitOutput(ready, Patience); err != nil {
		fmt.Fprintf(m.Log, "%s%v\n", p.Output(), err)
		p.Kill()
		if last := output.LastLine(p.Output()); last != "" {
			err = errors.New(last)
		}
		return nil, err
	}
	return p, nil
}

// WaitSuccess waits until a command has ended, and kills it after Patience. It returns an error unless the exit code is
// 0.
func (m *Machine) WaitSuccess(p *vm.Process) error {
	code, err := p.Wait(Patience)
	fmt.Fprintf(m.Log, "server: %s[%d]\n", p.Output(), code)
	if err != nil {
		return errors.Join(err, p.Kill())
	}
	if code != 0 {
		return errors.New("server: " + output.LastLine(p.Output()))
	}
	return nil
}

// Interrupt ends a server by SIGINT and waits for its end as WaitSuccess does.
func (m *Machine) Interrupt(p *vm.Process) error {
	if err := p.Signal(syscall.SIGINT); err != nil {
		return err
	}
	return m.WaitSuccess(p)
}

// Socket returns the path of the control socket of a host's daemon.
func Socket(host string) string { return "/run/xwarpd-" + host }

// StartDaemon starts an xwarpd for an interface on a host, or in the machine itself if host is empty. It returns when
// the daemon serves. more is appended to its configuration file, which ends with the table of the interface.
func (m *Machine) StartDaemon(host, device, more string) (*vm.Process, error) {
	file := Socket(host) + ".toml"
	if err := m.Do(fmt.Sprintf(`cat >%s <<'END'
[daemon]
socket = %q
grace = "10s" # the machine is slow
[[interface]]
name = %q
%s
END`, file, Socket(host), device, more)); err != nil {
		return nil, err
	}
	command := vm.SharePath + "/xwarpd -config " + file
	if host != "" {
		command = In(host, command)
	}
	return m.Background(command, "listening on the operator socket")
}

// Status returns the devices of a host's daemon.
func (m *Machine) Status(host string) ([]output.Device, error) {
	out, err := m.Script(Xwarp + " status --json --socket " + Socket(host))
	if err != nil {
		return nil, err
	}
	var v struct{ Devices []output.Device }
	if err := output.JSON(out, &v); err != nil {
		return nil, err
	}
	if len(v.Devices) == 0 {
		return nil, errors.New("xwarp status shows no device")
	}
	return v.Devices, nil
}

// Timeouts returns the retransmission timeouts of all connections of a host's daemon, including closed ones.
func (m *Machine) Timeouts(host string) (n uint64, err error) {
	out, err := m.Script(Xwarp + " statistic show --json --socket " + Socket(host))
	if err != nil {
		return 0, err
	}
	var v struct {
		Statistics []struct {
			Part     string
			Counters map[string]uint64
		}
	}
	err = output.JSON(out, &v)
	for _, s := range v.Statistics {
		if s.Part == "tcp" {
			n += s.Counters["timeouts"]
		}
	}
	return n, err
}

// Fix runs xwarp doctor --fix for a device on each host. It fails if a check still fails, and returns the fixes and
// warnings of host B as text.
func (m *Machine) Fix(device string) (text string, err error) {
	for _, h := range []string{HostA, HostB} {
		out, err := m.Script(In(h, fmt.Sprintf("%s doctor --fix --interface %s --json --state "+
			"/var/lib/xwarp-doctor/%s-%s.json || true", Xwarp, device, h, device)))
		if err != nil {
			return "", err
		}
		if text, err = output.Doctor(out); err != nil {
			return "", err
		}
	}
	return text, nil
}

// Close writes the console of the machine to the log and ends the machine.
func (m *Machine) Close() error {
	fmt.Fprintf(m.Log, "console:\n%s\n", m.Console())
	return m.VM.Close()
}
