package main

import (
	"fmt"

	"xwarp/bench/relay/impair"
	"xwarp/scripts/lab/output"
)

// trial is one row of the table.
type trial struct {
	what string
	run  func(r *rig, mode string) (string, error)
	mode string // empty: the driver's best
}

// trials are in the order in which they run: later ones leave the machine in a worse state.
func trials() []trial {
	list := []trial{{what: "doctor --fix", run: doctor}}
	inModes := func(trials ...trial) {
		for _, mode := range modes {
			for _, t := range trials {
				list = append(list, trial{t.what + ", " + mode, t.run, mode})
			}
		}
	}
	for _, mtu := range []int{1500, 3000, 9000} {
		inModes(trial{what: fmt.Sprintf("cp there / back, MTU %d", mtu), run: atMTU(mtu)})
	}
	inModes(trial{what: "loss, reordering, duplicates, corruption", run: tryBadCable})
	inModes(trial{what: "send_lat", run: sendLatency}, trial{what: "write_bw", run: writeBW})
	list = append(list, trial{what: "cp there / back, IPv6", run: overIPv6},
		trial{what: "cp there / back through xwarpd", run: throughDaemons(0)},
		trial{what: "the same, fill ring often empty, copy", run: throughDaemons(few),
			mode: "copy"},
		trial{what: "the same, fill ring often empty", run: throughDaemons(few)},
		trial{what: "soak", run: soak})
	inModes(trial{what: "busy polling by the worker (poll_nic)", run: polling})
	inModes(trial{what: "64 connections, 4 queues", run: shares})
	list = append(list, trial{what: "flow steering", run: steering})
	inModes(trial{what: "write_bw on a VLAN / on its card", run: vlanBW})
	list = append(list, trial{what: "cp over a card and its VLANs through one xwarpd",
		run: vlansThroughDaemons})
	for _, b := range []struct{ name, options string }{{"active-backup", activeBackup},
		{"balance-xor", balanceXOR}, {"802.3ad", lacp}} {
		bond, over := "bond ("+b.name+")", "during cp over a bond ("+b.name+"): "
		list = append(list,
			trial{what: "write_bw on a " + bond + " / on its card", run: bondBW(b.options)},
			trial{what: over + "20 failovers", run: bondFailovers(b.options)},
			trial{what: over + "members leave and return", run: bondMembers(b.options)})
		if b.name != "active-backup" {
			list = append(list, trial{what: bond + ": 16 connections on both members",
				run: bondSpreads(b.options)})
		}
	}
	list = append(list, trial{what: "during cp over a bond: other modes", run: bondModes},
		trial{what: "fio over a bond, 20 failovers", run: bondFio},
		trial{what: "cp over a VLAN of a bond", run: bondVLAN},
		trial{what: "bonds that xwarp cannot use", run: bondRefusals})
	for _, s := range onTop {
		list = append(list, trial{what: s.what, run: on(s)})
	}
	for _, e := range events {
		list = append(list, trial{what: "during cp: " + e.what, run: during(e)})
	}
	return append(list, trial{what: "during cp: driver unbound and bound", run: rebind})
}

// doctor runs doctor --fix on both hosts; after it no check may fail.
func doctor(r *rig, _ string) (text string, err error) {
	for _, h := range []string{hostA, hostB} {
		if text, err = r.fixHost(h, nic); err != nil {
			return "", err
		}
	}
	return text, nil
}

// fixHost runs doctor --fix for a device of a host and returns its fixes and warnings.
func (r *rig) fixHost(host, dev string) (string, error) {
	out, err := r.runScript(in(host, fmt.Sprintf("%s doctor --fix --interface %s --json --state "+
		"/var/lib/xwarp-doctor/%s-%s.json || true", xwarp, dev, host, dev)), patience)
	if err != nil {
		return "", err
	}
	return output.Doctor(out)
}

func atMTU(mtu int) func(*rig, string) (string, error) {
	return func(r *rig, mode string) (string, error) {
		if err := r.setMTU(mtu); err != nil {
			return "", fmt.Errorf("%w: MTU %d: %w", errNotOffered, mtu, err)
		}
		out, err := r.transfer(mode)
		return out, r.expect(mode, mtu, err)
	}
}

// badCable loses, reorders, duplicates and corrupts frames.
var badCable = impair.Config{Loss: 0.01, Reorder: 0.02, Duplicate: 0.01, Corrupt: 0.001}

// tryBadCable transfers over badCable.
func tryBadCable(r *rig, mode string) (string, error) {
	if err := r.setMTU(1500); err != nil {
		return "", err
	}
	if err := r.cable.mistreat(badCable); err != nil {
		return "", err
	}
	defer r.cable.heal()
	out, err := r.transfer(mode)
	return out, r.expect(mode, 1500, err)
}
