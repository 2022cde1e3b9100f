package main

import (
	"fmt"

	"xwarp/bench/relay/impair"
)

// row is one row of the table.
type row struct {
	what string
	run  func(r *rig, mode string) (string, error)
	mode string // ring mode; empty: the best that the driver offers
}

// trials returns the rows in the order in which they run. Those that may leave the machine in a bad state come last.
func trials() []row {
	list := []row{{what: "doctor --fix", run: doctor}}
	inModes := func(trials ...row) {
		for _, mode := range modes {
			for _, t := range trials {
				list = append(list, row{t.what + ", " + mode, t.run, mode})
			}
		}
	}
	for _, mtu := range []int{1500, 3000, 9000} {
		inModes(row{what: fmt.Sprintf("cp there / back, MTU %d", mtu), run: atMTU(mtu)})
	}
	list = append(list, row{what: "cp there / back, MTU 3814, zero-copy", // as much as a chunk holds
		run: atMTU(3814), mode: "zero-copy"})
	inModes(row{what: "loss, reordering, duplicates, corruption", run: tryBadCable})
	inModes(row{what: "send_lat", run: sendLatency}, row{what: "write_bw", run: writeBW})
	list = append(list, row{what: "cp there / back, IPv6", run: overIPv6},
		row{what: "cp there / back through xwarpd", run: throughDaemons(0)},
		row{what: "the same, fill ring often empty, copy", run: throughDaemons(fewChunks),
			mode: "copy"},
		row{what: "the same, fill ring often empty", run: throughDaemons(fewChunks)},
		row{what: "cp there / back in blocks, generic XDP", run: inBlocks, mode: "copy"},
		row{what: "soak", run: soak})
	inModes(row{what: "busy polling by the worker (poll_nic)", run: polling})
	inModes(row{what: "64 connections, 4 queues", run: shares})
	list = append(list, row{what: "flow steering", run: steering})
	inModes(row{what: "write_bw on a VLAN / on its card", run: vlanBW})
	list = append(list, row{what: "cp over a card and its VLANs through one xwarpd",
		run: vlansThroughDaemons})
	for _, b := range []struct{ name, options string }{{"active-backup", activeBackup},
		{"balance-xor", balanceXOR}, {"802.3ad", lacp}} {
		bond, over := "bond ("+b.name+")", "during cp over a bond ("+b.name+"): "
		list = append(list,
			row{what: "write_bw on a " + bond + " / on its card", run: bondBW(b.options)},
			row{what: over + "20 failovers", run: bondFailovers(b.options)},
			row{what: over + "members leave and return", run: bondMembers(b.options)})
		if b.name != "active-backup" {
			list = append(list, row{what: bond + ": 16 connections on both members",
				run: bondSpreads(b.options)})
		}
	}
	list = append(list, row{what: "during cp over a bond (arp_interval): 6 failovers",
		run: duringBondCopy(arpMonitor, failOverByARP)},
		row{what: "during cp over a bond: other modes", run: bondModes},
		row{what: "fio over a bond, 20 failovers, members leave and return", run: bondFio},
		row{what: "during cp over a VLAN of a bond: 4 failovers", run: bondVLAN},
		row{what: "bonds that xwarp cannot use", run: bondRefusals})
	list = append(list, row{what: "bridge", run: bridge}, row{what: "macvlan", run: macvlan})
	for _, e := range events {
		list = append(list, row{what: "during cp: " + e.what, run: during(e)})
	}
	return append(list, row{what: "during cp: driver unbound and bound", run: rebind})
}

// doctor runs xwarp doctor --fix on both hosts.
func doctor(r *rig, _ string) (string, error) { return r.Fix(nic) }

func atMTU(mtu int) func(*rig, string) (string, error) {
	return func(r *rig, mode string) (string, error) {
		if err := r.setMTU(mtu); err != nil {
			return "", fmt.Errorf("%w: MTU %d: %w", errNotOffered, mtu, err)
		}
		out, err := r.transfer(mode)
		return out, r.requireMode(mode, mtu, err)
	}
}

// badCable loses, reorders, duplicates and corrupts frames.
var badCable = impair.Config{Loss: 0.01, Reorder: 0.02, Duplicate: 0.01, Corrupt: 0.001}

// tryBadCable transfers at MTU 1500 over badCable.
func tryBadCable(r *rig, mode string) (string, error) {
	if err := r.setMTU(1500); err != nil {
		return "", err
	}
	if err := r.mistreat(badCable); err != nil {
		return "", err
	}
	defer r.heal()
	out, err := r.transfer(mode)
	return out, r.requireMode(mode, 1500, err)
}
