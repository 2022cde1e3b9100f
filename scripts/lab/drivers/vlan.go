package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"xwarp/scripts/lab/output"
)

// VLANs 5 and 6 of the cards are served; VLAN 7 is the kernel's.
const (
	vlanDevices = "vlan5 vlan6 vlan7"
	vlanAddr    = "198.51.100.2" // of host B in VLAN 5
)

// withVLANs runs f on a rig whose cards have VLAN devices. Afterwards the cards must strip tags as before.
func withVLANs(r *rig, f func() (string, error)) (text string, err error) {
	strips := "ethtool -k eth0 | grep rx-vlan-offload"
	before, err := r.runScript(in(hostB, strips), patience)
	if err != nil {
		return "", err
	}
	for n, h := range []string{hostA, hostB} {
		if err := r.do(fmt.Sprintf(`modprobe 8021q
for v in 5 6 7; do
	ip -n %[1]s link add link eth0 name vlan$v type vlan id $v
	ip -n %[1]s link set vlan$v up
done
ip -n %[1]s addr add 198.51.100.%[2]d/24 dev vlan5
ip -n %[1]s addr add 203.0.113.%[2]d/24 dev vlan6
ip -n %[1]s addr add 198.18.0.%[2]d/24 dev vlan7`, h, n+1)); err != nil {
			return "", fmt.Errorf("making VLANs: %w", err)
		}
		defer func() {
			err = errors.Join(err,
				r.do("for v in "+vlanDevices+"; do ip -n "+h+" link del $v; done"))
		}()
	}
	defer func() {
		after, failure := r.runScript(in(hostB, strips), patience)
		if err = errors.Join(err, failure); err == nil && after != before {
			err = fmt.Errorf("rxvlan is %q afterwards, and was %q", strings.TrimSpace(after),
				strings.TrimSpace(before))
		}
	}()
	return f()
}

// vlanBW compares write_bw on a VLAN with that on its card: the median of three, taken in turn.
func vlanBW(r *rig, mode string) (string, error) {
	return withVLANs(r, func() (string, error) {
		defer func() { r.dev, r.addr = nic, addrB }()
		var onCard, onVLAN []float64
		for range 3 {
			for _, on := range []struct {
				dev, addr string
				rates     *[]float64
			}{{nic, addrB, &onCard}, {"vlan5", vlanAddr, &onVLAN}} {
				r.dev, r.addr = on.dev, on.addr
				rate, err := r.writeBandwidth(mode, "-q 8 -D 3")
				if err != nil {
					return "", err
				}
				*on.rates = append(*on.rates, rate)
			}
		}
		slices.Sort(onCard)
		slices.Sort(onVLAN)
		return fmt.Sprintf("%.1f / %.1f MiB/s, ratio %.2f", onVLAN[1], onCard[1],
			onVLAN[1]/onCard[1]), nil
	})
}

// vlansThroughDaemons transfers over a card and two of its VLANs, which an xwarpd on each host shares, while another
// VLAN and ping stay with the kernel.
func vlansThroughDaemons(r *rig, mode string) (string, error) {
	return withVLANs(r, func() (text string, err error) {
		table := func(name string) string {
			return fmt.Sprintf("[[interface]]\nname = %q\nring_mode = %q", name, mode)
		}
		for _, h := range []string{hostA, hostB} {
			d, failure := r.startDaemon(h, mode, 0, table("vlan5"), table("vlan6"))
			if failure != nil {
				return "", failure
			}
			defer func() { err = errors.Join(err, d.terminate()) }()
		}
		r.daemons = true
		defer func() { r.daemons, r.dev, r.addr = false, nic, addrB }()
		for _, on := range [][2]string{{"vlan5", vlanAddr}, {nic, addrB},
			{"vlan6", "203.0.113.2"}} {
			r.dev, r.addr = on[0], on[1]
			one, err := r.transfer(mode)
			if err != nil {
				return "", fmt.Errorf("%s: %w", r.dev, err)
			}
			text += ", " + r.dev + " " + one
		}
		for _, to := range []string{"198.18.0.2", "198.51.100.2", addrB} {
			if err := r.do(in(hostA, "ping -q -c 2 -W 5 "+to)); err != nil {
				return "", fmt.Errorf("the kernel does not answer at %s: %w", to, err)
			}
		}
		out, err := r.runScript(in(hostB, xwarp+" status --json --socket "+daemonSocket+hostB),
			patience)
		var v struct {
			Devices []struct {
				Device, Trunk string
				XDPMode       string `json:"xdp_mode"`
				VLAN          int
			}
		}
		if err = errors.Join(err, json.Unmarshal([]byte(out), &v)); err != nil {
			return "", fmt.Errorf("xwarp status printed %q: %w", output.LastLine(out), err)
		}
		for _, d := range v.Devices {
			if d.Device != nic && (d.Trunk != nic || d.VLAN == 0 ||
				r.kind.native && d.XDPMode != "native") {
				return "", fmt.Errorf("status of %s: VLAN %d on %q, %s", d.Device, d.VLAN,
					d.Trunk, d.XDPMode)
			}
		}
		return text[2:], nil
	})
}
