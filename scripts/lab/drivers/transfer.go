package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"xwarp/scripts/lab/output"
	"xwarp/scripts/lab/table"
	"xwarp/scripts/lab/trial"
	"xwarp/scripts/lab/vm"
)

// errNotOffered is wrapped by errors about features that the driver lacks.
var errNotOffered = table.ErrNotOffered

// server is an xwarp serve on host B.
type server struct {
	*vm.Process
	how struct { // from the first line of xwarp serve --json
		XDPMode        string `json:"xdp_mode"`
		Copy, Transmit string
	}
}

// startServer starts a server in a ring mode and waits until it listens. If the card's driver refuses the mode, the
// error wraps errNotOffered.
func (r *rig) startServer(mode string) (*server, error) {
	if err := r.Do(trial.MakeServed); err != nil {
		return nil, err
	}
	p, err := r.background(hostB, "serve "+trial.Served+" --listen "+r.addr+" --json"+
		r.device(hostB, mode), `"listening"`)
	if err != nil {
		return nil, err
	}
	s := &server{Process: p}
	line, _, _ := strings.Cut(p.Output()[strings.Index(p.Output(), "{"):], "\n")
	return s, json.Unmarshal([]byte(line), &s.how)
}

// device returns the flags with which a command on a host uses the rig's device in a ring mode, or through the host's
// daemon.
func (r *rig) device(host, mode string) string {
	if r.daemons {
		return fmt.Sprintf(" --interface %s --transport daemon --socket %s ", r.dev,
			trial.Socket(host))
	}
	return fmt.Sprintf(" --interface %s --ring-mode %s ", r.dev, mode)
}

// background starts a subcommand of xwarp on a host and waits until it prints ready.
func (r *rig) background(host, command, ready string) (*vm.Process, error) {
	p, err := r.Background(in(host, xwarp+" "+command), ready)
	return p, wrapNotOffered(err)
}

// wrapNotOffered wraps errNotOffered around the engine's message about a ring mode that the driver lacks. It returns
// any other error unchanged.
func wrapNotOffered(err error) error {
	if err == nil {
		return nil
	}
	before, _, ok := strings.Cut(output.LastLine(err.Error()), " (ring mode auto copies instead)")
	if !ok {
		return err
	}
	const where = "queue 0: "
	if i := strings.LastIndex(before, where); i >= 0 {
		before = before[i+len(where):]
	}
	return fmt.Errorf("%w: %s", errNotOffered, before)
}

// unhurried is a flag with a long timeout, because the emulation may share its processors with other work.
const unhurried = " --timeout 2m"

// remote returns the argument of xwarp cp for a file on the server.
func (r *rig) remote(name string) string {
	if strings.Contains(r.addr, ":") {
		return "[" + r.addr + "]:/" + name
	}
	return r.addr + ":/" + name
}

// flags returns the flags of xwarp cp on host A.
func (r *rig) flags(mode string) string {
	return " --connections 1 --json" + r.device(hostA, mode) + unhurried
}

// copyTo copies the payload to the server.
func (r *rig) copyTo(mode string) (output.Moved, error) {
	return r.client(in(hostA, xwarp+" cp "+payload+" "+r.remote("file")+r.flags(mode)))
}

// copyFrom copies the file from the server back to host A and compares it with the payload.
func (r *rig) copyFrom(mode string) (output.Moved, error) {
	return r.client("rm -f /tmp/back\n" + in(hostA, xwarp+" cp "+r.remote("file")+" /tmp/back"+
		r.flags(mode)) + "\ncmp " + payload + " /tmp/back")
}

func (r *rig) client(command string) (m output.Moved, err error) {
	out, err := r.Script(command)
	if err != nil {
		return m, wrapNotOffered(err)
	}
	return m, output.JSON(out, &m)
}

// transfer copies the payload to a new server and back, with both ends in a ring mode. It checks that the server has
// that mode, and native XDP as requireNative says.
func (r *rig) transfer(mode string) (string, error) {
	s, err := r.startServer(mode)
	if err != nil {
		return "", err
	}
	to, err := r.copyTo(mode)
	from := output.Moved{}
	if err == nil {
		from, err = r.copyFrom(mode)
	}
	if err = errors.Join(err, r.Interrupt(s.Process)); err != nil {
		return "", err
	}
	if mode != "auto" && s.how.Copy != mode {
		return "", fmt.Errorf("asked for %s, had %s", mode, s.how.Copy)
	}
	if err := r.requireNative(s); err != nil {
		return "", err
	}
	text := s.how.XDPMode
	if mode == "auto" {
		text += ", " + s.how.Copy
	}
	if s.how.Transmit == blocks {
		text += ", " + blocks
	} else if s.how.XDPMode == "generic" {
		return "", fmt.Errorf("in generic mode it sends by %q", s.how.Transmit)
	}
	return fmt.Sprintf("%s, %.0f / %.0f MiB/s", text, to.Rate(), from.Rate()), nil
}

// requireNative returns an error if the driver has native XDP, and s does not use it on a card, a VLAN or a bond.
func (r *rig) requireNative(s *server) error {
	generic := r.generic || r.dev == bridgeName || r.dev == macvlanName
	if s.how.XDPMode != "native" && r.kind.native && !generic && r.mtu <= chunkMTU {
		return fmt.Errorf("had %s XDP", s.how.XDPMode)
	}
	return nil
}

// blocks is the way of sending that hands blocks of several segments to the driver, or to the kernel if the driver
// cannot cut them.
const blocks = "packet-gso"

// requireMode removes errNotOffered from an error, so that it counts as a failure, if the driver should have the mode
// at that MTU.
func (r *rig) requireMode(mode string, mtu int, err error) error {
	if errors.Is(err, errNotOffered) && (mode == "copy" || r.kind.zeroCopy && mtu <= chunkMTU) {
		return errors.New(err.Error())
	}
	return err
}

// chunkMTU is the largest tested MTU whose frames fit into one chunk.
const chunkMTU = 3000
