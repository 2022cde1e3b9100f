package topo

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/vishvananda/netns"
)

// namedDir is where `ip netns` and package netns keep named namespaces.
const namedDir = "/run/netns"

// baseName returns a unique name that says which process made it: prefix-pid.start-random. The start time makes it
// safe against a process number that is used again.
func baseName(prefix string) (string, error) {
	start, err := startTime(os.Getpid())
	if err != nil {
		return "", err
	}
	var r [4]byte
	rand.Read(r[:])
	return fmt.Sprintf("%s-%d.%d-%s", prefix, os.Getpid(), start, hex.EncodeToString(r[:])), nil
}

// startTime returns the start of a process in clock ticks since boot: field 22 of /proc/pid/stat (proc(5)).
func startTime(pid int) (uint64, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	// The command in field 2 may hold anything, so count from its closing parenthesis.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 {
		return 0, fmt.Errorf("topo: /proc/%d/stat has only %d fields after the command", pid,
			len(f))
	}
	return strconv.ParseUint(f[19], 10, 64)
}

// ownerGone reports whether name was made by baseName with that prefix, by a process that has ended.
func ownerGone(name, prefix string) bool {
	var pid int
	var start uint64
	rest, ok := strings.CutPrefix(name, prefix+"-")
	if _, err := fmt.Sscanf(rest, "%d.%d-", &pid, &start); !ok || err != nil || pid <= 0 {
		return false
	}
	now, err := startTime(pid)
	return errors.Is(err, os.ErrNotExist) || (err == nil && now != start)
}

// Sweep removes named namespaces that processes which have ended left behind, and returns their names. An empty prefix
// means DefaultPrefix. Anonymous namespaces need no sweeping.
func Sweep(prefix string) (removed []string, err error) {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	entries, err := os.ReadDir(namedDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("topo: sweeping: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if !ownerGone(e.Name(), prefix) {
			continue
		}
		if err := netns.DeleteNamed(e.Name()); err != nil {
			errs = append(errs, fmt.Errorf("topo: sweeping %s: %w", e.Name(), err))
			continue
		}
		removed = append(removed, e.Name())
	}
	return removed, errors.Join(errs...)
}
