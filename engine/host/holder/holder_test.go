package holder

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/bpf/needs"
	"xwarp/engine/host/ports"
)

// socket opens an AF_XDP socket with a mapped ring, as every socket in use has, and returns its inode.
func socket(t *testing.T) uint64 {
	t.Helper()
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.SOL_XDP, unix.XDP_RX_RING, 256); err != nil {
		t.Fatal(err)
	}
	ring, err := unix.Mmap(fd, unix.XDP_PGOFF_RX_RING, os.Getpagesize(),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(ring) })
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// diagReply is the reply of the kernel's xsk_diag about a socket.
func diagReply(inode uint64, ifindex, queue uint32) *netlink.XDPDiagInfoResp {
	return &netlink.XDPDiagInfoResp{
		XDPDiagMsg: &netlink.XDPSocket{Family: unix.AF_XDP, Type: unix.SOCK_RAW,
			Ino: uint32(inode)},
		XDPInfo: &netlink.XDPInfo{Ifindex: ifindex, QueueID: queue},
	}
}

// TestOfQueue: if the kernel reports which socket a queue has, OfQueue returns only that one, with its inode. Otherwise
// it returns all AF_XDP sockets, and sure is false.
func TestOfQueue(t *testing.T) {
	needs.XSK(t)
	first, second := socket(t), socket(t)
	mine := func(list []Process) (inodes []uint64) {
		for _, p := range list {
			if p.Pid == os.Getpid() {
				inodes = append(inodes, p.Inode)
				if !strings.Contains(p.String(), "socket inode ") {
					t.Errorf("%v does not name the socket", p)
				}
			}
		}
		slices.Sort(inodes)
		return inodes
	}
	all := []*netlink.XDPDiagInfoResp{diagReply(first, 7, 0), diagReply(second, 7, 1),
		diagReply(second+1, 8, 0)}
	both := []uint64{min(first, second), max(first, second)}
	for name, c := range map[string]struct {
		list  []*netlink.XDPDiagInfoResp
		err   error
		queue int
		want  []uint64
		sure  bool
	}{
		"the first queue":         {all, nil, 0, []uint64{first}, true},
		"the second":              {all, nil, 1, []uint64{second}, true},
		"one that no socket has":  {all, nil, 2, both, false},
		"no xsk_diag":             {nil, unix.ENOENT, 0, both, false},
		"another netns sees none": {nil, nil, 0, both, false},
		"a dump that changed":     {all, netlink.ErrDumpInterrupted, 0, both, false},
		"without XDP_DIAG_INFO": {[]*netlink.XDPDiagInfoResp{{XDPDiagMsg: all[0].XDPDiagMsg}}, nil,
			0, both, false},
	} {
		list, sure := ofQueue(7, c.queue, func() ([]*netlink.XDPDiagInfoResp, error) {
			return c.list, c.err
		})
		if got := mine(list); !slices.Equal(got, c.want) || sure != c.sure {
			t.Errorf("%s: sockets %v, sure %v; want %v, %v", name, got, sure, c.want, c.sure)
		}
	}
}

// TestAsksKernel: this kernel accepts the query, or lacks the module. Changes may interrupt the dump.
func TestAsksKernel(t *testing.T) {
	if _, err := netlink.SocketDiagXDP(); err != nil && !errors.Is(err, unix.ENOENT) &&
		!errors.Is(err, unix.EINVAL) && !errors.Is(err, netlink.ErrDumpInterrupted) {
		t.Errorf("query of AF_XDP sockets: %v", err)
	}
}

// TestOfPort: the process with a socket that is bound to a port and does not listen is found.
func TestOfPort(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet6{}); err != nil {
		t.Fatal(err)
	}
	at, _ := unix.Getsockname(fd)
	port := ports.Of(at)
	if got := OfPort(port); len(got) != 1 || got[0].Pid != os.Getpid() {
		t.Errorf("the holders of port %d: %v", port, got)
	}
	unix.Close(fd)
	if got := OfPort(port); len(got) != 0 {
		t.Errorf("the holders of a free port: %v", got)
	}
}
