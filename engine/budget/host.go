package budget

import (
	"bufio"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// OperatorDescriptors are the descriptors that are kept for the operator's sessions, of a process that may
// have four times as many.
const OperatorDescriptors = 128

// Descriptors are numbered from the lowest that is free, so that a number says how many are open at least.
// Who takes a descriptor on behalf of somebody else closes it again when it is one of the last.

// KeptForOperator reports whether a descriptor is among the last of the process, which only the operator's
// sessions may use, because a flood of programs or peers must not keep the operator out.
func KeptForOperator(fd int) bool { return int64(fd) >= maxFiles()-operatorFiles() }

// KeptForPrograms reports whether a descriptor is among those that connections of peers may not use, because a flood
// of connections must not keep programs out.
func KeptForPrograms(fd int) bool {
	n := maxFiles()
	return int64(fd) >= n-n/reserve-operatorFiles()
}

// IsKept reports whether the descriptor of a connection is one that is kept for others.
func IsKept(c any, kept func(fd int) bool) (found bool) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err == nil {
		raw.Control(func(fd uintptr) { found = kept(int(fd)) })
	}
	return found
}

func operatorFiles() int64 { return min(OperatorDescriptors, maxFiles()/reserve) }

// maxFiles is RLIMIT_NOFILE, which may change while the process runs.
func maxFiles() int64 {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil || l.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	return int64(l.Cur)
}

// HostBounds returns what the host and this process allow all users and tenants together, by kind; 0: unbounded. Half
// of the descriptors are left for devices, exports and peers.
func HostBounds() Amounts {
	return Amounts{Mappings: MaxMappings, Descriptors: maxFiles() / 2,
		DaemonMemory: int64(min(physicalMemory(), groupMemory("/"), math.MaxInt64))}
}

// physicalMemory is the memory of the host in bytes.
func physicalMemory() uint64 {
	var s syscall.Sysinfo_t
	if syscall.Sysinfo(&s) != nil {
		return math.MaxInt64
	}
	return s.Totalram * uint64(s.Unit)
}

// groupMemory is the least memory.max of the process's control group and those above it, in bytes; root is
// where the file system begins.
func groupMemory(root string) uint64 {
	least := uint64(math.MaxInt64)
	f, err := os.Open(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return least
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		path, ok := strings.CutPrefix(lines.Text(), "0::")
		for ok {
			b, _ := os.ReadFile(filepath.Join(root, "sys/fs/cgroup", path, "memory.max"))
			if n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64); err == nil {
				least = min(least, n)
			}
			ok = len(path) > 1
			path = filepath.Dir(path)
		}
	}
	return least
}
