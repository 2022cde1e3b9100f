package main

import (
	"errors"
	"fmt"
)

// stacked is a device on top of the cards.
type stacked struct {
	what string
	dev  string
	make string // a script for one host: $n is its number, $ip its ip command
	undo string
}

var onTop = []stacked{
	{
		what: "bridge", dev: "br0",
		make: "$ip addr flush dev eth0\n$ip link add br0 type bridge\n$ip link set eth0 master " +
			"br0\n$ip link set eth0 up",
		undo: "$ip link set eth0 nomaster\n$ip link del br0\n" + address,
	},
}

const address = "$ip addr flush dev eth0\n$ip addr add 192.0.2.$n/24 dev eth0\n$ip addr add " +
	addr6 + "$n/64 dev eth0 nodad\n$ip link set eth0 up\n"

// on runs transfers over a device on top of the cards, in whatever mode it has.
func on(s stacked) func(*rig, string) (string, error) {
	return func(r *rig, _ string) (text string, err error) {
		for n, h := range []string{hostA, hostB} {
			script := fmt.Sprintf("ip='ip -n %s' n=%d\n", h, n+1)
			if err := r.do(script + s.make); err != nil {
				return "", fmt.Errorf("making the %s: %w", s.what, err)
			}
			defer func() { err = errors.Join(err, r.do(script+s.undo)) }()
			if err := r.do(script + fmt.Sprintf("$ip addr flush dev eth0\n$ip addr add "+
				"192.0.2.$n/24 dev %[1]s\n$ip link set %[1]s up", s.dev)); err != nil {
				return "", err
			}
		}
		if err := r.reachable(); err != nil {
			return "", err
		}
		for _, h := range []string{hostA, hostB} { // GRO below, above all
			if _, err := r.fixHost(h, s.dev); err != nil {
				return "", err
			}
		}
		r.dev = s.dev
		defer func() { r.dev = nic }()
		return r.transfer("auto")
	}
}
