package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"xwarp/bench/relay/impair"
	"xwarp/scripts/lab/output"
	"xwarp/scripts/lab/trial"
)

const secondNIC = "eth1"

// withBond runs f on a rig whose hosts each have a bond of their two cards. It fails if a card still has an XDP program
// afterwards.
func withBond(r *rig, options string, f func() (string, error)) (string, error) {
	const create = `modprobe bonding max_bonds=0
if ! $ip link show eth1 >/dev/null 2>&1; then
	dev=$(grep -lx %s$((n + 2)) /sys/class/net/*/address | cut -d/ -f5)
	ip link set $dev netns $host
	$ip link set dev $dev name eth1
fi
$run ethtool -L eth1 combined 1 || true
for m in eth0 eth1; do # 802.3ad needs a speed, and virtio-net has none
	$run ethtool -s $m speed 1000 duplex full || true
done
$ip link add bond0 type bond %s
$ip addr flush dev eth0
for m in eth0 eth1; do
	$ip link set $m down
	$ip link set $m master bond0
	$ip link set $m promisc %s
done
$ip addr add 192.0.2.$n/24 dev bond0
$run sysctl -q net.ipv6.conf.bond0.accept_dad=0
$ip addr add %s$n/64 dev bond0
$ip link set bond0 mtu 1500 up`
	const remove = "$ip link del bond0\nfor m in eth0 eth1; do $ip link show $m | grep -q prog/xdp && exit 1; " +
		"$ip link set $m promisc off; done\n" +
		"$ip link set eth1 down\n" + address
	promisc := "off"
	if r.kind.forgetsMAC {
		promisc = "on"
	}
	return r.onDevice("bond0", fmt.Sprintf(create, mac, options, promisc, addr6), remove, f)
}

// Options of ip link for the bonds of the trials.
const (
	activeBackup = "mode active-backup miimon 50"
	balanceXOR   = "mode balance-xor miimon 50 xmit_hash_policy layer3+4"
	lacp         = "mode 802.3ad miimon 50 lacp_rate fast xmit_hash_policy layer3+4"
	arpMonitor   = "mode active-backup arp_interval 100 arp_ip_target 192.0.2.$((3 - n))"
)

// bondBW returns a trial that compares the bandwidth of Writes on a bond with that on its first card alone.
func bondBW(options string) func(*rig, string) (string, error) {
	return func(r *rig, mode string) (string, error) {
		measure := func() (float64, error) { return r.writeBandwidth(mode, "-q 8 -D 3") }
		return compare(func() (rate float64, err error) {
			_, err = withBond(r, options, func() (string, error) {
				if err := r.onBoth(membersUp); err != nil { // e1000e needs seconds to bring a link up
					return "", err
				}
				rate, err = measure()
				return "", err
			})
			return rate, err
		}, measure)
	}
}

// slowBond is a cable so slow that a copy of slowBondSize MiB takes more than ten minutes and outlasts all events. The
// queue of the cable is short, so that it is empty before a member returns to the bond.
var slowBond = impair.Config{Rate: 32e4, Queue: 20 << 10}

const slowBondSize = 24

// bondFailovers returns a trial that copies over one connection while the links of a bond fail in turn.
func bondFailovers(options string) func(*rig, string) (string, error) {
	return duringBondCopy(options, failOver(20))
}

// bondMembers returns a trial that copies over one connection while members leave the bond and return.
func bondMembers(options string) func(*rig, string) (string, error) {
	return duringBondCopy(options, changeMembers)
}

// changeMembers makes the members of a bond leave and return in turn, four times in all.
func changeMembers(r *rig) error {
	return r.cycleMembers(4, "nomaster", 2*time.Second, "master bond0", 3*time.Second)
}

// failOver returns a function that takes the links of a bond down and up in turn, n times in all.
func failOver(n int) func(*rig) error {
	const pause = 700 * time.Millisecond
	return func(r *rig) error { return r.cycleMembers(n, "down", pause, "up", pause) }
}

// failOverByARP takes the links of a bond with ARP monitoring down and up in turn. Such a bond does not look at the
// links: it changes members when the other host does not answer.
func failOverByARP(r *rig) error {
	for i := range 6 {
		link := "ip link set " + []string{nic, secondNIC}[i%2] + " "
		if err := r.onBoth(link + "down"); err != nil {
			return err
		}
		if err := errors.Join(r.reachable(), r.onBoth(link+"up"), r.reachable()); err != nil {
			return err
		}
		time.Sleep(2 * time.Second)
	}
	return nil
}

// membersUp waits until the bond of a host uses both members: a card may take seconds to bring its link up, and LACP
// some more.
const membersUp = `sh -c '
for i in $(seq 300); do
	[ "$(ip -d link show master bond0 | grep -c "mii_status UP")" = 2 ] &&
		! ip -d link show bond0 | grep -q "ad_num_ports [01] " && exit 0
	sleep 0.1
done
echo "the bond does not use both members"
exit 1'`

// cycleMembers takes the members of a bond away in turn, n times in all: by the ip link setting away on both hosts for
// the time isAway, then by the setting back until the bond uses them, and for the time isBack. It fails if that cost
// the sender more than one retransmission timeout for each change.
func (r *rig) cycleMembers(n int, away string, isAway time.Duration, back string,
	isBack time.Duration) error {
	before, err := r.Timeouts(hostA)
	if err != nil {
		return err
	}
	for i := range n {
		link := "ip link set " + []string{nic, secondNIC}[i%2] + " "
		if err := r.onBoth(link + away); err != nil {
			return err
		}
		time.Sleep(isAway)
		if err := errors.Join(r.onBoth(link+back), r.onBoth(membersUp)); err != nil {
			return err
		}
		time.Sleep(isBack)
	}
	after, err := r.Timeouts(hostA)
	if err == nil && after-before > uint64(2*n) {
		err = fmt.Errorf("%d retransmission timeouts in %d changes", after-before, 2*n)
	}
	return err
}

// bondModes copies over one connection while the bond's mode changes, on both hosts at once. One of the modes is
// unknown to xwarp, which must then stop using the members.
func bondModes(r *rig, mode string) (string, error) {
	return duringBondCopy(activeBackup, func(r *rig) error {
		for _, other := range []string{"balance-xor", "balance-rr", "active-backup"} {
			change := fmt.Sprintf(`sh -e -c '
for m in eth0 eth1; do ip link set $m nomaster; done
ip link set bond0 down
ip link set bond0 type bond mode %s
for m in eth0 eth1; do ip link set $m master bond0; done
ip link set bond0 up'`, other)
			if err := r.Do(in(hostA, change) + " & a=$!\n" + in(hostB, change) +
				"\nwait $a"); err != nil {
				return err
			}
			time.Sleep(8 * time.Second)
		}
		return nil
	})(r, mode)
}

// duringBondCopy returns a trial that runs f during one copy over a bond of slow cables.
func duringBondCopy(options string, f func(*rig) error) func(*rig, string) (string, error) {
	return func(r *rig, mode string) (string, error) {
		return withBond(r, options, func() (string, error) { return r.copyThroughout(mode, f) })
	}
}

// copyThroughout runs f during one copy over slow cables, through an xwarpd on each host, and compares the data
// afterwards.
func (r *rig) copyThroughout(mode string, f func(*rig) error) (text string, err error) {
	defer r.heal()
	if err := r.MakePayload(slowBondSize); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, r.MakePayload(r.size)) }()
	return r.withDaemons(mode, "", func() (text string, err error) {
		c, err := r.slowCopy(mode, slowBond)
		if err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, r.Interrupt(c.Process)) }()
		if err := r.requireNative(c.server); err != nil {
			return "", err
		}
		if text, err = r.outlast(c, f); err != nil {
			return "", err
		}
		if _, err := r.copyFrom(mode); err != nil {
			return "", fmt.Errorf("the copy back: %w", err)
		}
		return fmt.Sprintf("%s %s, one connection, in %.0f s, %s", c.how.XDPMode, c.how.Copy,
			c.moved.Seconds, text), nil
	})
}

// bondFio runs fio through an xwarpd on each host while the links of their bond fail in turn, and its members leave and
// return. xwarpd has dropped its privileges by then. The receiver verifies each block.
func bondFio(r *rig, mode string) (string, error) {
	job := func(host, flags string) string {
		return in(host, fmt.Sprintf("env XWARP_SOCKET=%s %s run -- fio --name=x "+
			"--ioengine=rdma --port=7501 --size=%dm --bs=64k --verify=crc32c %s",
			trial.Socket(host), xwarp, slowBondSize, flags))
	}
	transfer := func() (text string, err error) {
		defer r.heal()
		p, err := r.Background(job(hostB, "--rw=read --iodepth=16 --verb=recv --verify_fatal=1"),
			"Starting")
		if err != nil {
			return "", err
		}
		c := &copying{}
		err = r.Do(fmt.Sprintf("for i in $(seq 60); do %s resource show listener --socket %s | "+
			"grep -q 7501 && exit 0; sleep 1; done; exit 1", xwarp, trial.Socket(hostB)))
		if err == nil {
			err = r.mistreat(slowBond)
		}
		if err == nil {
			err = c.begin(r, func() (output.Moved, error) {
				return output.Moved{}, r.Do(job(hostA, "--hostname="+addrB+
					" --rw=write --iodepth=4 --verb=send --do_verify=0"))
			})
		}
		if err == nil {
			text, err = r.outlast(c, func(r *rig) error {
				return errors.Join(failOver(20)(r), changeMembers(r))
			})
		}
		if err != nil {
			return "", errors.Join(err, p.Kill())
		}
		return "every block verified, " + text, r.WaitSuccess(p)
	}
	return withBond(r, activeBackup, func() (string, error) {
		return r.withDaemons(mode, "", transfer)
	})
}

// outlast runs f during a copy through daemons, which must not end before f. It then heals the cables and waits for the
// end of the copy. text has the sender's retransmission timeouts during f, and the number of TCP resets that the hosts'
// kernels tried to send.
func (r *rig) outlast(c *copying, f func(*rig) error) (text string, err error) {
	before, err := r.kernelResets()
	if err != nil {
		return "", err
	}
	timeouts, err := r.Timeouts(hostA)
	if err != nil {
		return "", err
	}
	failure := f(r)
	timeoutsAfter, unread := r.Timeouts(hostA)
	select {
	case <-c.done:
		failure = errors.Join(errors.New("the copy ended before the last event"), failure)
	default:
	}
	healed := r.heal()
	err = c.wait()
	after, counted := r.kernelResets()
	text = fmt.Sprintf("%d retransmission timeouts, %d and %d resets of the kernels held",
		timeoutsAfter-timeouts, after[0]-before[0], after[1]-before[1])
	if err := errors.Join(failure, err, healed, counted, unread); err != nil {
		return "", fmt.Errorf("%w, %s", errors.Join(err, r.bypassed()), text)
	}
	return text, nil
}

// kernelResets returns the kernels' counters of sent TCP resets, one for each host.
func (r *rig) kernelResets() (n [2]int, err error) {
	for i, h := range hosts {
		out, err := r.Script(in(h, "nstat -asz TcpOutRsts"))
		if err != nil {
			return n, err
		}
		_, counter, _ := strings.Cut(out, "TcpOutRsts")
		if _, err := fmt.Sscan(counter, &n[i]); err != nil {
			return n, fmt.Errorf("nstat printed %q: %w", out, err)
		}
	}
	return n, nil
}

// bondSpreads returns a trial that sends over 16 connections and checks that both members of the bond carry a part of
// the frames.
func bondSpreads(options string) func(*rig, string) (string, error) {
	return func(r *rig, mode string) (string, error) {
		return withBond(r, options, func() (string, error) {
			first, second := r.sentBy()
			rate, err := r.writeBandwidth(mode, "-q 16 -D 3")
			if err != nil {
				return "", err
			}
			after, after2 := r.sentBy()
			n := [2]float64{float64(after - first), float64(after2 - second)}
			share := 100 * n[0] / max(n[0]+n[1], 1)
			if share < 10 || share > 90 {
				return "", fmt.Errorf("the members sent %.0f and %.0f frames", n[0], n[1])
			}
			return fmt.Sprintf("%.1f MiB/s, members %.0f %% and %.0f %%", rate, share,
				100-share), nil
		})
	}
}

// bondVLAN copies over a VLAN of a bond while the bond's links fail in turn.
func bondVLAN(r *rig, mode string) (string, error) {
	const create = `modprobe 8021q
$ip link add link bond0 name vlan5 type vlan id 5
$ip addr add 198.51.100.$n/24 dev vlan5
$ip link set vlan5 up`
	return withBond(r, activeBackup, func() (string, error) {
		return r.onDevice("vlan5", create, "$ip link del vlan5", func() (string, error) {
			r.addr = vlanAddr
			return r.copyThroughout(mode, failOver(4))
		})
	})
}

// bondRefusals gives xwarp bonds that it cannot use natively. A bond of mode balance-rr must be used in generic mode,
// and a bond without members must be refused with a message.
func bondRefusals(r *rig, _ string) (string, error) {
	serve := func(ready string) (string, error) {
		p, err := r.background(hostB, "serve /tmp --listen "+addrB+" --json"+
			r.device(hostB, "auto"), ready)
		if err != nil {
			return "", err
		}
		return p.Output(), r.Interrupt(p)
	}
	_, err := withBond(r, "mode balance-rr miimon 50", func() (string, error) {
		out, err := serve(`"listening"`)
		if err == nil && !strings.Contains(out, `"xdp_mode":"generic"`) {
			err = fmt.Errorf("balance-rr printed %q", out)
		}
		return "", err
	})
	if err != nil {
		return "", err
	}
	_, err = withBond(r, activeBackup, func() (string, error) {
		err := r.Do(in(hostB, "sh -c 'ip link set eth0 nomaster; ip link set eth1 nomaster'"))
		if err != nil {
			return "", err
		}
		_, err = serve(`"listening"`)
		if err == nil || !strings.Contains(err.Error(), "has no members") {
			return "", fmt.Errorf("a bond without members: %v", err)
		}
		return "", nil
	})
	return "balance-rr is generic; a bond without members is refused", err
}
