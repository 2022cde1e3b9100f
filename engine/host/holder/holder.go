// Package holder finds the processes that hold the resources that xwarp needs: the XDP program and the queues of an
// interface, and TCP ports. It is used only for reports, and is slow. Of processes of other users and PID namespaces it
// finds those that the kernel shows to this process.
package holder

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/engine/host/ports"
)

// Process is a process that holds a resource.
type Process struct {
	Pid     int
	Command string
	Inode   uint64 // of its AF_XDP socket, from OfQueue; otherwise 0
}

func (p Process) String() string {
	s := fmt.Sprintf("%s (pid %d)", p.Command, p.Pid)
	if p.Inode != 0 {
		s = fmt.Sprintf("%s (pid %d, socket inode %d)", p.Command, p.Pid, p.Inode)
	}
	return s
}

// Text formats holders for an error; empty if there are none.
func Text(list []Process) string {
	var names []string
	for _, p := range list {
		names = append(names, p.String())
	}
	return strings.Join(names, ", ")
}

// OfProgram returns the processes that keep the XDP program with kernel ID id attached, by an open BPF link.
func OfProgram(id uint32) []Process {
	want := fmt.Appendf(nil, "\nprog_id:\t%d\n", id)
	return processes(func(dir string) (inodes []uint64) {
		files, _ := filepath.Glob(dir + "/fdinfo/*")
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err == nil && bytes.Contains(b, []byte("link_type:\txdp\n")) &&
				bytes.Contains(b, want) {
				return []uint64{0}
			}
		}
		return nil
	})
}

// OfQueue returns the processes with the AF_XDP socket of a queue, and true. If the kernel does not report this socket
// (CONFIG_XDP_SOCKETS_DIAG), it returns those with any AF_XDP socket, and false.
func OfQueue(ifindex, queue int) (list []Process, sure bool) {
	return ofQueue(ifindex, queue, netlink.SocketDiagXDP)
}

func ofQueue(ifindex, queue int, ask func() ([]*netlink.XDPDiagInfoResp, error)) (list []Process,
	sure bool) {
	all, err := ask()
	var bound []uint64
	for _, s := range all {
		if i := s.XDPInfo; i != nil && int(i.Ifindex) == ifindex && int(i.QueueID) == queue {
			bound = append(bound, uint64(s.XDPDiagMsg.Ino))
		}
	}
	sure = err == nil && len(bound) > 0
	return processes(func(dir string) (inodes []uint64) {
		for _, n := range mapped(dir) {
			if sure && slices.Contains(bound, n) || !sure && isXDP(dir, n) {
				inodes = append(inodes, n)
			}
		}
		return inodes
	}), sure
}

// OfPort returns the processes with an unconnected TCP socket at a port in the network namespace of this process. It
// also finds sockets that are bound and do not listen, such as the engine's; the kernel's lists of sockets omit these.
func OfPort(port uint16) []Process {
	own, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(own)
	space, err := unix.GetsockoptUint64(own, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return nil
	}
	return processes(func(dir string) []uint64 {
		found := false
		sockets(dir, func(string) bool { return true }, func(fd int) {
			protocol, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
			its, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
			_, unconnected := unix.Getpeername(fd)
			at, _ := unix.Getsockname(fd)
			found = found || protocol == unix.IPPROTO_TCP && err == nil && its == space &&
				unconnected != nil && ports.Of(at) == port
		})
		if found {
			return []uint64{0}
		}
		return nil
	})
}

// sockets calls look with a duplicate of each socket of the process with the /proc directory dir, if wanted accepts the
// socket's link there. It closes the duplicate after the call.
func sockets(dir string, wanted func(link string) bool, look func(fd int)) {
	pid, _ := strconv.Atoi(filepath.Base(dir))
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(process)
	files, _ := filepath.Glob(dir + "/fd/*")
	for _, f := range files {
		to, err := os.Readlink(f)
		if err != nil || !strings.HasPrefix(to, "socket:[") || !wanted(to) {
			continue
		}
		n, _ := strconv.Atoi(filepath.Base(f))
		if fd, err := unix.PidfdGetfd(process, n, 0); err == nil {
			look(fd)
			unix.Close(fd)
		}
	}
}

// processes calls look with the /proc directory of each process. Its result has a process once for each inode that look
// returned.
func processes(look func(dir string) []uint64) (list []Process) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		for _, n := range look(dir) {
			name, err := os.ReadFile(dir + "/comm")
			if err == nil {
				list = append(list, Process{pid, strings.TrimSpace(string(name)), n})
			}
		}
	}
	return list
}

// mapped returns the inodes of the sockets whose rings a process has mapped: AF_XDP sockets, and others with rings.
func mapped(dir string) (inodes []uint64) {
	f, err := os.Open(dir + "/maps")
	if err != nil {
		return nil
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		_, name, ok := strings.Cut(s.Text(), "socket:[")
		n, err := strconv.ParseUint(strings.TrimSuffix(name, "]"), 10, 64)
		if ok && err == nil && !slices.Contains(inodes, n) {
			inodes = append(inodes, n)
		}
	}
	return inodes
}

// isXDP reports whether a socket of another process is an AF_XDP socket, which it reads from a duplicate of the socket.
func isXDP(dir string, inode uint64) (yes bool) {
	link := fmt.Sprintf("socket:[%d]", inode)
	sockets(dir, func(to string) bool { return to == link }, func(fd int) {
		domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
		yes = yes || err == nil && domain == unix.AF_XDP
	})
	return yes
}
