package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"xwarp/bench/relay"
	"xwarp/bench/relay/impair"
	"xwarp/scripts/lab/output"
	"xwarp/scripts/lab/trial"
	"xwarp/scripts/lab/vm"
)

// The hosts, their cards and addresses. Each host has one card for most trials, and a second one for bonds.
const (
	hostA, hostB = trial.HostA, trial.HostB
	nic          = trial.NIC
	addrB        = trial.Server
	addr6        = "2001:db8::" // followed by 1 on host A, by 2 on host B
	xwarp        = trial.Xwarp
	payload      = trial.Payload

	mac = "52:54:00:aa:00:0" // followed by 1 or 2 for the first cards of A and B, by 3 or 4 for their second cards
)

var hosts = []string{hostA, hostB}

// rig is a virtual machine with two hosts, which are network namespaces, and the cables between their cards.
type rig struct {
	*trial.Machine
	kind  kind
	cable *cable
	spare *cable // between the hosts' second cards
	dev   string // the device that transfers use: the card, or a device on top of it
	addr  string // the server's address
	mtu   int
	soak  time.Duration
	size  int // MiB of the payload

	daemons bool // each host has an xwarpd, and transfers go through it
	generic bool // these daemons are configured to use generic mode
}

// newRig boots a machine with cards of kind k, the programs in the directory share, and a payload of mib MiB.
func newRig(ctx context.Context, k kind, share string, mib int, log io.Writer) (r *rig,
	err error) {
	r = &rig{kind: k, dev: nic, addr: addrB, size: mib}
	defer func() {
		if err != nil {
			r.Close()
			r = nil
		}
	}()
	if r.cable, err = newCable(k.queues); err != nil {
		return r, err
	}
	if r.spare, err = newCable(k.queues); err != nil {
		return r, err
	}
	o := vm.Options{Newest: true, Share: share, CPUs: 2, MemoryMiB: 1536}
	for i := range 4 {
		c := []*cable{r.cable, r.spare}[i/2]
		o.NICs = append(o.NICs, vm.NIC{Device: k.device, MAC: mac + strconv.Itoa(i+1),
			Taps: c.taps[i%2]})
	}
	m, err := vm.Start(ctx, o)
	if err != nil {
		return r, err
	}
	r.Machine = &trial.Machine{VM: m, Log: log}
	err = r.Do("modprobe " + k.module + "\nip netns add " + hostA + "\nip netns add " + hostB)
	if err == nil {
		err = r.plug(hosts...)
	}
	if err == nil {
		err = r.onBoth("ethtool -L " + nic + " combined 1 || true") // fails on cards with only one queue
	}
	if err == nil {
		err = r.setMTU(1500) // virtio-net's default here is the device's host_mtu
	}
	if err == nil {
		err = r.MakePayload(mib)
	}
	return r, err
}

// deviceFile, followed by a host's name, is a file with the bus address of that host's first card.
const deviceFile = "/run/card-"

// plug moves the first cards of hosts from the machine's own namespace to theirs and configures them. The driver must
// have been loaded or bound just before.
func (r *rig) plug(hosts ...string) error {
	for _, h := range hosts {
		n := "1"
		if h == hostB {
			n = "2"
		}
		err := r.Do(fmt.Sprintf(`
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
ip -n %[2]s link set %[3]s up`, mac+n, h, nic, n, addr6, deviceFile))
		if err != nil {
			return err
		}
	}
	return r.reachable()
}

// reachable waits until the hosts' kernels reach each other.
func (r *rig) reachable() error {
	return r.Do(in(hostA, `sh -c 'for i in $(seq 120); do ping -q -c 1 -W 1 `+
		addrB+` >/dev/null && exit 0; done; echo "no answer to ping"; exit 1'`))
}

// setMTU sets the MTU of both hosts' first cards and waits until the hosts reach each other.
func (r *rig) setMTU(mtu int) error {
	if err := setMTUs(mtu)(r); err != nil {
		return err
	}
	r.mtu = mtu
	return r.reachable()
}

// onBoth runs a command on both hosts.
func (r *rig) onBoth(command string) error {
	return r.Do(in(hostA, command) + "\n" + in(hostB, command))
}

// in returns a command that runs in a host's namespace.
func in(host, command string) string { return trial.In(host, command) }

// mistreat sets the impairments of both cables, in both directions, to cfg.
func (r *rig) mistreat(cfg impair.Config) error {
	return errors.Join(r.cable.mistreat(cfg), r.spare.mistreat(cfg))
}

// heal removes all impairments.
func (r *rig) heal() error { return r.mistreat(impair.Config{}) }

// sentBy returns how many frames of host A have passed its first and its second cable.
func (r *rig) sentBy() (first, second uint64) {
	return r.cable.relay.Counters(relay.AToB).Out, r.spare.relay.Counters(relay.AToB).Out
}

// Close ends the machine and removes its cables.
func (r *rig) Close() (err error) {
	if r.Machine != nil {
		err = r.Machine.Close()
	}
	for _, c := range []*cable{r.cable, r.spare} {
		if c != nil {
			err = errors.Join(err, c.close())
		}
	}
	return err
}

// steering lets xwarp doctor ask the driver for n-tuple rules that steer a TCP port to one queue: to the last of
// shareQueues, or to queue 1 if the card cannot have that many. A driver without such rules yields errNotOffered with
// doctor's message. Afterwards the card's settings are restored.
func steering(r *rig, _ string) (text string, err error) {
	queue := 1
	if ethtool("-L %s combined "+strconv.Itoa(shareQueues))(r) == nil {
		queue = shareQueues - 1
		defer ethtool("-L %s combined 1")(r)
	}
	doctor := in(hostB, xwarp+" doctor --json --state /var/lib/xwarp-doctor/steering.json ")
	out, err := r.Script(fmt.Sprintf("%s --only flow-steering --interface %s --queues %d --port 7174 --steer --fix || true",
		doctor, nic, queue))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, r.Do(doctor+"--undo")) }()
	text, err = output.Doctor(out)
	if err != nil {
		err = fmt.Errorf("%w: %w", errNotOffered, err)
	}
	return text, err
}
