package main

import (
	"errors"
	"fmt"
	"strings"
)

// vlanAddr is the address of host B in VLAN 5. xwarp uses VLANs 5 and 6 of the cards; VLAN 7 stays with the kernel.
const vlanAddr = "198.51.100.2"

// withVLANs runs f on a rig whose cards have VLAN devices. It fails if the card's setting for stripping VLAN tags is
// not the same afterwards.
func withVLANs(r *rig, f func() (string, error)) (string, error) {
	const create = `modprobe 8021q
for v in 5 6 7; do
	$ip link add link eth0 name vlan$v type vlan id $v
	$ip link set vlan$v up
done
$ip addr add 198.51.100.$n/24 dev vlan5
$ip addr add 203.0.113.$n/24 dev vlan6
$ip addr add 198.18.0.$n/24 dev vlan7`
	strips := in(hostB, "ethtool -k eth0 | grep rx-vlan-offload")
	before, err := r.Script(strips)
	if err != nil {
		return "", err
	}
	remove := "for v in 5 6 7; do $ip link del vlan$v; done"
	return r.onDevice("vlan5", create, remove, func() (string, error) {
		text, err := f()
		after, failure := r.Script(strips)
		if err = errors.Join(err, failure); err == nil && after != before {
			err = fmt.Errorf("rxvlan is %q afterwards, and was %q", strings.TrimSpace(after),
				strings.TrimSpace(before))
		}
		return text, err
	})
}

// vlanBW compares the bandwidth of Writes on a VLAN with that on its card.
func vlanBW(r *rig, mode string) (string, error) {
	return withVLANs(r, func() (string, error) {
		on := func(dev, addr string) func() (float64, error) {
			return func() (float64, error) {
				r.dev, r.addr = dev, addr
				return r.writeBandwidth(mode, "-q 8 -D 3")
			}
		}
		return compare(on("vlan5", vlanAddr), on(nic, addrB))
	})
}

// vlansThroughDaemons transfers over a card and two of its VLANs through one xwarpd on each host. Meanwhile the hosts'
// kernels must still answer ping on the card, on one of these VLANs and on a third VLAN.
func vlansThroughDaemons(r *rig, mode string) (string, error) {
	table := func(name string) string {
		return fmt.Sprintf("[[interface]]\nname = %q\nring_mode = %q\n", name, mode)
	}
	transfers := func() (string, error) {
		var moved []string
		for _, on := range [][2]string{{"vlan5", vlanAddr}, {nic, addrB},
			{"vlan6", "203.0.113.2"}} {
			r.dev, r.addr = on[0], on[1]
			one, err := r.transfer(mode)
			if err != nil {
				return "", fmt.Errorf("%s: %w", r.dev, err)
			}
			moved = append(moved, r.dev+" "+one)
		}
		for _, to := range []string{"198.18.0.2", "198.51.100.2", addrB} {
			if err := r.Do(in(hostA, "ping -q -c 2 -W 5 "+to)); err != nil {
				return "", fmt.Errorf("the kernel does not answer at %s: %w", to, err)
			}
		}
		devices, err := r.Status(hostB)
		if err != nil {
			return "", err
		}
		for _, d := range devices {
			if d.Device != nic && (d.Trunk != nic || d.VLAN == 0 ||
				r.kind.native && d.XDPMode != "native") {
				return "", fmt.Errorf("status of %s: VLAN %d on %q, %s", d.Device, d.VLAN,
					d.Trunk, d.XDPMode)
			}
		}
		return strings.Join(moved, ", "), nil
	}
	return withVLANs(r, func() (string, error) {
		r.dev = nic
		return r.withDaemons(mode, table("vlan5")+table("vlan6"), transfers)
	})
}
