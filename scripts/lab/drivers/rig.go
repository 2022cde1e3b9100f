package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"xwarp/scripts/lab/output"
	"xwarp/scripts/lab/vm"
)

// The two hosts are network namespaces of one machine, each with one card, and a second one for bonds.
const (
	hostA, hostB = "a", "b"
	nic          = "eth0"
	addrA, addrB = "192.0.2.1", "192.0.2.2"
	addr6        = "2001:db8::" // with 1 or 2 behind it
	xwarp        = vm.SharePath + "/xwarp"

	macA, macB   = "52:54:00:aa:00:01", "52:54:00:aa:00:02"
	macA2, macB2 = "52:54:00:aa:00:03", "52:54:00:aa:00:04" // of the second cards, which only bonds use
)

// rig is a machine with cards of a kind, and the cables between them.
type rig struct {
	kind  kind
	cable *cable
	spare *cable // between the hosts' second cards
	m     *vm.VM
	dev   string // the device that transfers use: the card, or one on top of it
	addr  string // the server's
	mtu   int
	log   io.Writer
	soak  time.Duration
	size  int // MiB of the payload

	daemons bool // each host has an xwarpd, which transfers go through
}

// patience is the timeout of one command, for a machine that shares two processors with other work.
const patience = 5 * time.Minute

func newRig(ctx context.Context, k kind, share string, log io.Writer) (r *rig, err error) {
	r = &rig{kind: k, dev: nic, addr: addrB, log: log}
	defer func() {
		if err != nil {
			r.close()
			r = nil
		}
	}()
	if r.cable, err = newCable(k.queues); err != nil {
		return r, err
	}
	if r.spare, err = newCable(k.queues); err != nil {
		return r, err
	}
	r.m, err = vm.Start(ctx, vm.Options{
		Newest: true, Share: share, CPUs: 2, MemoryMiB: 1536,
		NICs: []vm.NIC{
			{Device: k.device, MAC: macA, Taps: r.cable.taps[0]},
			{Device: k.device, MAC: macB, Taps: r.cable.taps[1]},
			{Device: k.device, MAC: macA2, Taps: r.spare.taps[0]},
			{Device: k.device, MAC: macB2, Taps: r.spare.taps[1]},
		},
	})
	if err != nil {
		return r, err
	}
	err = r.do("modprobe " + k.module + "\nip netns add " + hostA + "\nip netns add " + hostB)
	if err == nil {
		err = r.plug(hostA, hostB)
	}
	if err == nil {
		err = r.onBoth("ethtool -L " + nic + " combined 1 || true") // who can have several
	}
	if err == nil {
		err = r.setMTU(1500) // virtio-net's device has a larger one
	}
	return r, err
}

// deviceFile, with a host's name behind it, holds the name of the device on its bus.
const deviceFile = "/run/card-"

// plug moves the cards from the machine's own namespace to the hosts, after the driver was loaded or bound.
func (r *rig) plug(hosts ...string) error {
	for _, h := range hosts {
		mac, n := macA, "1"
		if h == hostB {
			mac, n = macB, "2"
		}
		err := r.do(fmt.Sprintf(`
for i in $(seq 600); do
	dev=$(grep -lx %[1]s /sys/class/net/*/address 2>/dev/null | cut -d/ -f5)
	[ -n "$dev" ] && break
	sleep 0.1
done
basename $(readlink -f /sys/class/net/$dev/device) >%[6]s%[2]s
[ -n "$dev" ] || { echo "no card with the address %[1]s"; exit 1; }
ip link set $dev netns %[2]s
ip -n %[2]s link set $dev name %[3]s
ip netns exec %[2]s sysctl -q net.ipv6.conf.%[3]s.accept_dad=0 net.ipv6.conf.%[3]s.accept_ra=0
ip -n %[2]s addr add 192.0.2.%[4]s/24 dev %[3]s
ip -n %[2]s addr add %[5]s%[4]s/64 dev %[3]s
ip -n %[2]s link set %[3]s up`, mac, h, nic, n, addr6, deviceFile))
		if err != nil {
			return err
		}
	}
	return r.reachable()
}

// reachable waits until the hosts' kernels reach each other.
func (r *rig) reachable() error {
	return r.do(in(hostA, `sh -c 'for i in $(seq 120); do ping -q -c 1 -W 1 `+
		addrB+` >/dev/null && exit 0; done; echo "no answer to ping"; exit 1'`))
}

// setMTU sets both cards.
func (r *rig) setMTU(mtu int) error {
	if err := setMTUs(mtu)(r); err != nil {
		return err
	}
	r.mtu = mtu
	return r.reachable()
}

// fill makes a payload of a number of MiB.
func (r *rig) fill(size int) error {
	return r.do(fmt.Sprintf("head -c %dM /dev/urandom > %s", size, payload))
}

// do runs a script that must succeed.
func (r *rig) do(script string) error {
	_, err := r.runScript(script, patience)
	return err
}

// onBoth runs a command on both hosts.
func (r *rig) onBoth(command string) error {
	return r.do(in(hostA, command) + "\n" + in(hostB, command))
}

// runScript runs a script and returns its output; the error of a failed script includes the output.
func (r *rig) runScript(script string, timeout time.Duration) (string, error) {
	return r.m.Script(r.log, script, timeout)
}

// in returns a command that runs in a host's namespace.
func in(host, command string) string { return "ip netns exec " + host + " " + command }

func (r *rig) close() error {
	var err error
	if r.m != nil {
		fmt.Fprintf(r.log, "console:\n%s\n", r.m.Console())
		err = r.m.Close()
	}
	for _, c := range []*cable{r.cable, r.spare} {
		if c != nil {
			err = errors.Join(err, c.close())
		}
	}
	return err
}

// steering asks the driver for n-tuple rules that steer TCP ports to one of several queues, to the second if there is
// one. The answer of a driver without such rules is the result. The card's settings are restored.
func steering(r *rig, _ string) (text string, err error) {
	queue := 1
	if ethtool("-L %s combined "+strconv.Itoa(shareQueues))(r) == nil {
		queue = shareQueues - 1
		defer ethtool("-L %s combined 1")(r)
	}
	doctor := in(hostB, xwarp+" doctor --json --state /var/lib/xwarp-doctor/steering.json ")
	out, err := r.runScript(fmt.Sprintf("%s --only flow-steering --interface %s --queues %d --port 7174 --steer --fix || true",
		doctor, nic, queue), patience)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, r.do(doctor+"--undo")) }()
	text, err = output.Doctor(out)
	if err != nil {
		err = fmt.Errorf("%w: %w", errNotOffered, err)
	}
	return text, err
}
