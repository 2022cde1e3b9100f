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

// OperatorDescriptors is the number of file descriptors reserved for the operator's sessions, limited to a quarter of
// those that the process may have.
const OperatorDescriptors = 128

// The kernel gives a new descriptor the lowest free number, so this number is a lower bound of the descriptors in use.
// Code that opens a descriptor on behalf of others closes it again if its number is one of the last.

// KeptForOperator reports whether a descriptor is reserved for the operator's sessions, so that a flood of programs or
// peers cannot lock out the operator.
func KeptForOperator(fd int) bool { return int64(fd) >= maxFiles()-operatorFiles() }

// KeptForPrograms reports whether a descriptor is reserved for programs or the operator, so that a flood of connections
// cannot lock them out.
func KeptForPrograms(fd int) bool {
	n := maxFiles()
	return int64(fd) >= n-n/reserve-operatorFiles()
}

// IsKept reports whether kept, such as KeptForOperator, is true for the descriptor of a connection.
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

// maxFiles returns RLIMIT_NOFILE, which may change while the process runs.
func maxFiles() int64 {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil || l.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	return int64(l.Cur)
}

// HostBounds returns the amounts that the host and this process allow all users and tenants together, by kind. Zero
// means no bound. Half of the descriptors are left for devices, exports and peers.
func HostBounds() Amounts {
	return Amounts{Mappings: MaxMappings, Descriptors: maxFiles() / 2,
		DaemonMemory: int64(min(physicalMemory(), groupMemory("/"), math.MaxInt64))}
}

// physicalMemory returns the memory of the host in bytes.
func physicalMemory() uint64 {
	var s syscall.Sysinfo_t
	if syscall.Sysinfo(&s) != nil {
		return math.MaxInt64
	}
	return s.Totalram * uint64(s.Unit)
}

// groupMemory returns the lowest memory.max, in bytes, of the process's control group and its ancestors. Without a
// limit it returns math.MaxInt64. root is the root of the file system.
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
