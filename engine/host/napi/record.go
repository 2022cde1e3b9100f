package napi

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/host/netspace"
)

// recordDir has a file for each offload that is switched, with the pid of the restoring process. The next program reads
// it. Without rights to write there, nothing is recorded.
const recordDir = "/run/xwarp"

// restoreWait is the maximum time that a program waits for the restoring process of the previous program.
const restoreWait = 5 * time.Second

// recordOf returns the path of the record of an interface's offload, in the network namespace of the calling thread. It
// returns "" without /proc.
func recordOf(ifindex int, feature string) string {
	space := netspace.Name()
	if space == "" {
		return ""
	}
	return filepath.Join(recordDir, fmt.Sprintf("%s-%s-%d", feature, space, ifindex))
}

// writeRecord records that process pid restores an offload when this process ends.
func writeRecord(path string, pid int) {
	if path == "" || os.MkdirAll(recordDir, 0o755) != nil {
		return
	}
	const flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC | unix.O_NOFOLLOW | unix.O_NONBLOCK
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	fmt.Fprintln(f, pid)
}

// clearRecord removes a record, or empties it in a directory of another user.
func clearRecord(path string) {
	if path != "" && os.Remove(path) != nil {
		os.Truncate(path, 0)
	}
}

// wasLeft reports whether a record still exists although its restoring process has ended: that process was killed, and
// restored nothing. While that process runs, wasLeft waits up to restoreWait; after that time it returns true.
func wasLeft(path string) bool {
	for end := time.Now().Add(restoreWait); ; time.Sleep(10 * time.Millisecond) {
		f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			return false
		}
		text := make([]byte, 32)
		n, _ := f.Read(text)
		f.Close()
		pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
		if err != nil {
			return false
		}
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if !bytes.HasPrefix(name, []byte(processName)) || time.Now().After(end) {
			return true
		}
	}
}
