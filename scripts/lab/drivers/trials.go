package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"xwarp/bench/relay/impair"
)

// trial is one row of the table.
type trial struct {
	what string
	run  func(r *rig) (string, error)
}

// trials are in the order in which they run: later ones leave the machine in a worse state.
func trials() []trial {
	list := []trial{{"doctor --fix", doctor}}
	for _, mtu := range []int{1500, 3000, 9000} {
		for _, mode := range modes {
			list = append(list, trial{fmt.Sprintf("put / get, MTU %d, %s", mtu, mode),
				atMTU(mtu, mode)})
		}
	}
	for _, mode := range modes {
		list = append(list, trial{"loss, reordering, duplicates, corruption, " +
			mode, mistreated(mode)})
	}
	for _, mode := range modes {
		list = append(list, trial{"rping, " + mode, rping(mode)}, trial{"write_bw, " +
			mode, writeBW(mode)}, trial{"soak, " + mode, soak(mode)})
	}
	for _, mode := range modes {
		list = append(list, trial{"64 connections, 4 queues, " + mode, shares(mode)})
	}
	for _, s := range onTop {
		list = append(list, trial{s.what, on(s)})
	}
	for _, e := range events {
		list = append(list, trial{"in a put: " + e.what, during(e)})
	}
	return append(list, trial{"in a put: driver unbound and bound", rebind})
}

// doctor mends what it can on both hosts, and must then find nothing that fails.
func doctor(r *rig) (text string, err error) {
	for _, h := range []string{hostA, hostB} {
		if text, err = r.mend(h, nic); err != nil {
			return "", err
		}
	}
	return text, nil
}

// mend runs doctor --fix for a device of a host and returns what it mended and warns of.
func (r *rig) mend(host, dev string) (string, error) {
	out, err := r.run(in(host, fmt.Sprintf("%s doctor --fix --interface %s --json --state "+
		"/var/lib/xwarp-doctor/%s-%s.json || true", xwarp, dev, host, dev)), patience)
	if err != nil {
		return "", err
	}
	var v struct {
		Lines []struct {
			Check, Status, What, Error string
			Fixed                      bool
		}
	}
	if err := json.Unmarshal([]byte(jsonObject.FindString(out)), &v); err != nil {
		return "", fmt.Errorf("%w in %q", err, lastLine(out))
	}
	var mended, warn, fail []string
	for _, l := range v.Lines {
		switch {
		case l.Error != "":
			fail = append(fail, l.Check+": "+l.Error)
		case l.Fixed:
			mended = append(mended, l.Check)
		case l.Status == "warn":
			warn = append(warn, l.Check)
		case l.Status == "fail":
			fail = append(fail, l.Check+": "+l.What)
		}
	}
	if len(fail) > 0 {
		return "", fmt.Errorf("%s", strings.Join(fail, "; "))
	}
	return list("mended", mended) + list("warns of", warn), nil
}

func list(word string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return " " + word + " " + strings.Join(names, ", ")
}

func atMTU(mtu int, mode string) func(*rig) (string, error) {
	return func(r *rig) (string, error) {
		if err := r.setMTU(mtu); err != nil {
			return "", fmt.Errorf("%w: MTU %d: %w", errNotOffered, mtu, err)
		}
		out, err := r.transfer(mode)
		return out, r.expect(mode, mtu, err)
	}
}

// bad is a cable that nobody should use.
var bad = impair.Config{Loss: 0.01, Reorder: 0.02, Duplicate: 0.01, Corrupt: 0.001}

func mistreated(mode string) func(*rig) (string, error) {
	return func(r *rig) (string, error) {
		if err := r.setMTU(1500); err != nil {
			return "", err
		}
		if err := r.cable.mistreat(bad); err != nil {
			return "", err
		}
		defer r.cable.mistreat(impair.Config{})
		out, err := r.transfer(mode)
		return out, r.expect(mode, 1500, err)
	}
}
