package main

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"xwarp/scripts/lab/output"
	"xwarp/scripts/lab/vm"
)

// served is the directory that servers export, made by makeServed.
const (
	served     = "/tmp/served"
	makeServed = "rm -rf " + served + "; mkdir " + served + "\n"
)

// export is the configuration of a daemon's export for cp.
const export = `[[export]]
name = "lab"
listen = "0.0.0.0:7174"
serve = "directory"
path = "` + served + `"
`

// daemon is an xwarpd in the machine.
type daemon struct {
	m      *machine
	p      *vm.Process
	socket string
}

// daemon starts xwarpd on a host, or in the machine itself, and returns when it serves.
func (m *machine) daemon(host, exports string) (*daemon, error) {
	d := &daemon{m: m, socket: "/run/xwarp-" + host + "/control.sock"}
	file := "/tmp/xwarp-" + host + ".toml"
	_, err := m.runScript(makeServed + fmt.Sprintf(`mkdir -p $(dirname %[1]s)
cat >%[2]s <<'TOML'
[daemon]
socket = %[1]q
grace = "10s" # the machine is slow
[[interface]]
name = "eth0"
%[3]sTOML`, d.socket, file, exports))
	if err != nil {
		return nil, err
	}
	command := vm.SharePath + "/xwarpd -config " + file
	if host != "" {
		command = in(host, command)
	}
	fmt.Fprintf(m.log, "$ %s &\n", command)
	if d.p, err = m.vm.Spawn("exec " + command); err != nil {
		return nil, err
	}
	// The socket appears last.
	_, err = m.runScript(fmt.Sprintf("until %s status --socket %s; do kill -0 %d; sleep 0.2; done",
		xwarp,
		d.socket, d.p.Pid()))
	if err == nil {
		return d, nil
	}
	code, ended := d.p.Wait(10 * time.Second)
	fmt.Fprintf(m.log, "xwarpd: %s[%d]\n", d.p.Output(), code)
	if ended != nil {
		return nil, errors.Join(errors.New("xwarpd does not serve"), err, d.p.Kill())
	}
	return nil, errors.New(output.LastLine(d.p.Output()))
}

// status returns the modes of the daemon's device.
func (d *daemon) status() (string, error) {
	out, err := d.m.runScript(xwarp + " status --json --socket " + d.socket)
	if err != nil {
		return "", err
	}
	var v struct {
		Devices []struct {
			XDPMode  string `json:"xdp_mode"`
			Copy     string
			Transmit string
		}
	}
	if err := output.JSON(out, &v); err != nil {
		return "", err
	}
	if len(v.Devices) != 1 {
		return "", fmt.Errorf("status shows %d devices", len(v.Devices))
	}
	return v.Devices[0].XDPMode + ", " + v.Devices[0].Copy + ", " + v.Devices[0].Transmit, nil
}

// stop ends the daemon in order.
func (d *daemon) stop() error {
	if err := d.p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	code, err := d.p.Wait(patience)
	fmt.Fprintf(d.m.log, "xwarpd: %s[%d]\n", d.p.Output(), code)
	if err == nil && code != 0 {
		err = errors.New("xwarpd: " + output.LastLine(d.p.Output()))
	}
	return err
}
