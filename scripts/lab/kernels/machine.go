package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"xwarp/scripts/lab/output"
	"xwarp/scripts/lab/trial"
	"xwarp/scripts/lab/vm"
)

const (
	hostA, hostB = trial.HostA, trial.HostB
	xwarp        = trial.Xwarp
	payload      = trial.Payload
	payloadMiB   = 2
)

// machine is a virtual machine with two hosts, which are namespaces joined by a veth pair. The machine itself is on the
// lab's network.
type machine struct {
	*trial.Machine
	net  *vm.Network
	host string // directory with the programs for this computer
}

// boot boots a machine with a kernel and makes its two hosts. The machine gets the programs for its processor from the
// directory build.
func boot(ctx context.Context, kernel, build string, log io.Writer) (m *machine, err error) {
	m = &machine{host: build}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	if m.net, err = vm.NewNetwork(0); err != nil {
		return m, err
	}
	_, arch, err := vm.KernelOf(kernel)
	if err != nil {
		return m, err
	}
	share := build
	if arch != "amd64" {
		share = filepath.Join(share, arch)
	}
	v, err := vm.Start(ctx, vm.Options{Network: m.net, Kernel: kernel, NoSiw: true, Share: share,
		CPUs: 2, MemoryMiB: 1536})
	if err != nil {
		return m, err
	}
	m.Machine = &trial.Machine{VM: v, Log: log}
	return m, errors.Join(m.MakePayload(payloadMiB), m.Do(`ip netns add a
ip netns add b
ip link add link-a type veth peer name link-b
for h in a b; do
	ip link set link-$h netns $h name eth0
	ip -n $h link set lo up
	ip -n $h addr add 192.0.2.$([ $h = a ] && echo 1 || echo 2)/24 dev eth0
	ip -n $h link set eth0 up
done`))
}

// in returns a command that runs in a host's namespace.
func in(host, command string) string { return trial.In(host, command) }

// here runs xwarp on this computer, in the peer namespace of the machine's network.
func (m *machine) here(args ...string) (string, error) {
	out, code, err := m.net.Peer.Run(trial.Patience, filepath.Join(m.host, "xwarp"), args...)
	fmt.Fprintf(m.Log, "here$ xwarp %v\n%s[%d]\n", args, out, code)
	if err == nil && code != 0 {
		err = errors.New(output.LastLine(out))
	}
	return out, err
}

// Close ends the machine and removes its network.
func (m *machine) Close() (err error) {
	if m.Machine != nil {
		err = m.Machine.Close()
	}
	if m.net != nil {
		err = errors.Join(err, m.net.Close())
	}
	return err
}
