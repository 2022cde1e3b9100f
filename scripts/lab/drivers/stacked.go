package main

import (
	"errors"
	"fmt"
)

// onDevice runs f on a rig whose hosts have a device called name on top of their cards; transfers of f use it. The
// scripts create and remove run once for each host: $host is its name, $n its number from 1, $ip its ip command, and
// $run runs a command in its namespace.
func (r *rig) onDevice(name, create, remove string, f func() (string, error)) (text string,
	err error) {
	for n, h := range hosts {
		vars := fmt.Sprintf("n=%d host=%[2]s ip='ip -n %[2]s' run='ip netns exec %[2]s'\n", n+1, h)
		if err := r.Do(vars + create); err != nil {
			return "", fmt.Errorf("making %s: %w", name, err)
		}
		defer func() { err = errors.Join(err, r.Do(vars+remove)) }()
	}
	if err := r.reachable(); err != nil {
		return "", err
	}
	r.dev = name
	defer func() { r.dev, r.addr = nic, addrB }()
	return f()
}

// address is a script for one host that gives its first card its addresses again.
const address = "$ip addr flush dev eth0\n$ip addr add 192.0.2.$n/24 dev eth0\n$ip addr add " +
	addr6 + "$n/64 dev eth0 nodad\n$ip link set eth0 up\n"

const bridgeName, macvlanName = "br0", "macvlan0"

// bridge transfers over a bridge on each host's card, in ring mode auto.
func bridge(r *rig, _ string) (string, error) {
	const create = `$ip addr flush dev eth0
$ip link add br0 type bridge
$ip link set eth0 master br0
$ip link set eth0 up
$ip addr add 192.0.2.$n/24 dev br0
$ip link set br0 up`
	return r.onDevice(bridgeName, create, "$ip link set eth0 nomaster\n$ip link del br0\n"+address,
		func() (string, error) {
			if _, err := r.Fix(bridgeName); err != nil { // switches off GRO of the card below, among others
				return "", err
			}
			return r.transfer("auto")
		})
}

// macvlan transfers over a macvlan on each host's card, in ring mode auto.
func macvlan(r *rig, _ string) (string, error) {
	const create = `$ip addr flush dev eth0
$ip link add link eth0 name macvlan0 type macvlan mode bridge
$ip addr add 192.0.2.$n/24 dev macvlan0
$ip link set macvlan0 up`
	return r.onDevice(macvlanName, create, "$ip link del macvlan0\n"+address,
		func() (string, error) { return r.transfer("auto") })
}
