package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
)

// scripts/nic-check runs its steps between two hosts, reports that veth has no zero-copy, restores the MTU of both
// hosts, and writes a report of each.
func TestNICCheck(t *testing.T) {
	needs.Long(t)
	n := hosts(t, topo.NoOffloads, topo.NoOffloads)
	where := func(h *topo.Host) []string {
		return []string{fmt.Sprintf("netns:/proc/%d/fd/%d", os.Getpid(), h.Fd()), "eth0",
			h.Addr4.Addr().String()}
	}
	dir := t.TempDir()
	check := func(to []string, flags ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		args := append(flags, "-x", os.Args[0], "-n", "2", "-t", "1", "-r", dir)
		args = append(append(args, where(n.A)...), to...)
		c := exec.CommandContext(ctx, "../../scripts/nic-check", args...)
		c.Env = append(os.Environ(), asCommand+"=1")
		c.Cancel = func() error { return c.Process.Signal(os.Interrupt) } // the script then cleans up
		out, err := c.CombinedOutput()
		return string(out), err
	}
	out, err := check(where(n.B), "-m", "1400")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Log("\n" + out)
	for _, step := range []string{"doctor --fix, a", "doctor --fix, b",
		"cp there / back, MTU 1400, copy", "send_lat", "write_bw",
		"link of a down for 2 s during cp",
		"link of b down for 2 s during cp", "soak of 1 s"} {
		if !line(out, "ok", step) {
			t.Errorf("%s is not ok", step)
		}
	}
	if !line(out, "none", "cp there / back, MTU 1400, zero-copy") {
		t.Error("a veth has zero-copy")
	}
	for _, h := range []*topo.Host{n.A, n.B} {
		l, err := h.Netlink().LinkByName("eth0")
		if err != nil || l.Attrs().MTU != 1500 {
			t.Errorf("afterwards: %+v, %v", l, err)
		}
	}
	for _, end := range []string{"a", "b"} {
		var v reportDocument
		text, err := os.ReadFile(filepath.Join(dir, end+".json"))
		if err == nil {
			err = json.Unmarshal(text, &v)
		}
		if err != nil || v.NIC.Driver != "veth" {
			t.Errorf("the report of %s: %v: %s", end, err, text)
		}
	}
}

// line reports whether out has a line with a verdict on a step.
func line(out, verdict, step string) bool {
	for l := range strings.Lines(out) {
		if f := strings.Fields(l); len(f) > 0 && f[0] == verdict &&
			strings.HasPrefix(strings.TrimSpace(strings.TrimPrefix(l, verdict)), step+" ") {
			return true
		}
	}
	return false
}

// On an interface that does not exist, nic-check fails and reports no step as ok.
func TestNICCheckFails(t *testing.T) {
	n := hosts(t, topo.NoOffloads, topo.NoOffloads)
	var ends []string
	for _, h := range []*topo.Host{n.A, n.B} {
		ends = append(ends, fmt.Sprintf("netns:/proc/%d/fd/%d", os.Getpid(), h.Fd()), "eth7",
			h.Addr4.Addr().String())
	}
	args := append([]string{"-x", os.Args[0], "-m", "1500", "-n", "1", "-t", "1", "-r",
		t.TempDir()}, ends...)
	c := exec.CommandContext(t.Context(), "../../scripts/nic-check", args...)
	c.Env = append(os.Environ(), asCommand+"=1")
	out, err := c.CombinedOutput()
	if err == nil || strings.Contains(string(out), "\nok ") ||
		!line(string(out), "FAILED", "send_lat") ||
		!line(string(out), "FAILED", "doctor --fix, a") {
		t.Errorf("on a NIC that is not there: %v\n%s", err, out)
	}
}
