package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"path/filepath"
	"time"

	"xwarp/scripts/lab/vm"
)

// The machine has two hosts: network namespaces joined by a veth pair. The machine itself is on the lab's network.
const (
	hostA, hostB = "a", "b"
	addrB        = "192.0.2.2"
	xwarp        = vm.SharePath + "/xwarp"
	payload      = "/tmp/payload"
	payloadMiB   = 2
)

// patience is the timeout of one command, for a machine that shares two processors with other work.
const patience = 10 * time.Minute

type machine struct {
	vm   *vm.VM
	net  *vm.Network
	host string // the programs for this host
	log  io.Writer
}

// boot makes a machine with the programs for its processor, and its two hosts.
func boot(ctx context.Context, k kernel, arch string, o *options, log io.Writer) (m *machine,
	err error) {
	m = &machine{host: o.build, log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.close())
		}
	}()
	if m.net, err = vm.NewNetwork(0); err != nil {
		return m, err
	}
	share := o.build
	if arch != "amd64" {
		share = filepath.Join(share, arch)
	}
	m.vm, err = vm.Start(ctx, vm.Options{Network: m.net, Kernel: k.name, NoSiw: true, Share: share,
		CPUs: 2, MemoryMiB: 1536})
	if err != nil {
		return m, err
	}
	_, err = m.runScript(fmt.Sprintf(`head -c %dM /dev/urandom >%s
ip netns add a
ip netns add b
ip link add link-a type veth peer name link-b
for h in a b; do
	ip link set link-$h netns $h name eth0
	ip -n $h link set lo up
	ip -n $h addr add 192.0.2.$([ $h = a ] && echo 1 || echo 2)/24 dev eth0
	ip -n $h link set eth0 up
done`, payloadMiB, payload))
	return m, err
}

func (m *machine) runScript(script string) (string, error) {
	return m.vm.Script(m.log, script, patience)
}

// in returns a command that runs in a host's namespace.
func in(host, command string) string { return "ip netns exec " + host + " " + command }

// here runs a command of xwarp on this computer, in the namespace beside the machine.
func (m *machine) here(args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(m.host, "xwarp"), args...)
	var out []byte
	err := m.net.Peer.Do(func() (err error) {
		out, err = cmd.CombinedOutput()
		return err
	})
	fmt.Fprintf(m.log, "here$ %v\n%s", cmd.Args, out)
	return string(out), err
}

// addr is the machine's address on the lab's network.
func (m *machine) addr() netip.Addr { return m.vm.Addr4 }

func (m *machine) close() error {
	var errs []error
	if m.vm != nil {
		fmt.Fprintf(m.log, "console:\n%s\n", m.vm.Console())
		errs = append(errs, m.vm.Close())
	}
	if m.net != nil {
		errs = append(errs, m.net.Close())
	}
	return errors.Join(errs...)
}
